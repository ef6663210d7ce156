//! What a client has been given of a streamed answer, and whether another answer repeats it: so that a stream which broke
//! off can go on with a second answer where the two are the same, and nowhere else.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Most that is remembered of an answer, in bytes. A longer one can't be resumed.
pub const MAX_BYTES: usize = 1 << 20;

/// Names one text of an answer: the choice, and what of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    choice: u64,
    part: Part,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// A text member of the delta: `content`, `reasoning_content`, `refusal` …
    Text(String),
    /// The name of a tool that is called.
    Tool(u64),
    /// Its arguments.
    Arguments(u64),
}

/// What the client has.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    texts: BTreeMap<Place, String>,
    bytes: usize,
    /// It can't be told exactly any more: too long, or something that isn't understood.
    lost: bool,
}

/// Another answer, as it is compared with what the client has.
#[derive(Debug, Clone)]
pub struct Repetition {
    told: Transcript,
    heard: BTreeMap<Place, usize>,
    caught_up: bool,
}

/// What becomes of a chunk of another answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Repeated {
    /// The client has all of it.
    Known,
    /// This goes to the client: what it hasn't yet.
    New(Value),
    /// The answer is another one.
    Differs,
}

impl Transcript {
    /// Takes in a chunk that goes to the client, by its data.
    pub fn take(&mut self, data: &[u8]) {
        if self.lost {
            return;
        }
        match serde_json::from_slice::<Value>(data) {
            Ok(chunk) => self.take_chunk(&chunk),
            Err(_) => self.lost = true,
        }
    }

    fn take_chunk(&mut self, chunk: &Value) {
        for (place, text) in texts(chunk) {
            self.bytes = self.bytes.saturating_add(text.len());
            self.texts.entry(place).or_default().push_str(text);
        }
        self.lost |= self.bytes > MAX_BYTES;
    }

    /// Whether another answer can be compared with it at all.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        !self.lost
    }

    /// Begins the comparison with another answer.
    #[must_use]
    pub fn repeated(self) -> Repetition {
        let caught_up = self.texts.values().all(String::is_empty);
        Repetition { told: self, heard: BTreeMap::new(), caught_up }
    }
}

impl Repetition {
    /// Whether the other answer has repeated all that the client has.
    #[must_use]
    pub const fn caught_up(&self) -> bool {
        self.caught_up
    }

    /// What the client has by now: for the case that this answer breaks off too.
    #[must_use]
    pub fn into_transcript(self) -> Transcript {
        self.told
    }

    /// Takes in a chunk of the other answer.
    pub fn take(&mut self, data: &[u8]) -> Repeated {
        let Ok(mut chunk) = serde_json::from_slice::<Value>(data) else { return Repeated::Differs };
        if self.caught_up {
            self.told.take_chunk(&chunk);
            return Repeated::New(chunk);
        }
        let mut fresh = false;
        let ends = ends(&chunk);
        for choice in choices_mut(&mut chunk) {
            let index = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
            let Some(delta) = choice.get_mut("delta").and_then(Value::as_object_mut) else { continue };
            match self.strip(index, delta) {
                Some(more) => fresh |= more,
                None => return Repeated::Differs,
            }
        }
        self.caught_up = self.told.texts.iter().all(|(place, told)| self.heard(place) >= told.len());
        if (fresh || ends) && !self.caught_up {
            // It goes on, or ends, without what the client has.
            return Repeated::Differs;
        }
        if !fresh && !ends && !has_usage(&chunk) {
            return Repeated::Known;
        }
        self.told.take_chunk(&chunk);
        Repeated::New(chunk)
    }

    fn heard(&self, place: &Place) -> usize {
        self.heard.get(place).copied().unwrap_or(0)
    }

    /// Takes from a delta what the client has; says whether something is left, or nothing if the two differ.
    fn strip(&mut self, choice: u64, delta: &mut Map<String, Value>) -> Option<bool> {
        let mut fresh = false;
        for (name, value) in delta.iter_mut() {
            if let Value::String(text) = value
                && name != "role"
            {
                let left = self.compare(Place { choice, part: Part::Text(name.clone()) }, text)?;
                fresh |= !left.is_empty();
                *text = left;
            }
        }
        for call in delta.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
            let index = call.get("index").and_then(Value::as_u64).unwrap_or(0);
            let Some(function) = call.get_mut("function").and_then(Value::as_object_mut) else { continue };
            for (name, part) in [("name", Part::Tool(index)), ("arguments", Part::Arguments(index))] {
                if let Some(Value::String(text)) = function.get_mut(name) {
                    let left = self.compare(Place { choice, part }, text)?;
                    fresh |= !left.is_empty();
                    *text = left;
                }
            }
        }
        // The role was told with the first chunk.
        delta.remove("role");
        Some(fresh)
    }

    /// What of a text the client hasn't; nothing if it is another text.
    fn compare(&mut self, place: Place, text: &str) -> Option<String> {
        let heard = self.heard(&place);
        let told = self.told.texts.get(&place).map_or("", String::as_str);
        let expected = told.as_bytes().get(heard..).unwrap_or_default();
        let both = expected.len().min(text.len());
        if expected.get(..both) != text.as_bytes().get(..both) {
            return None;
        }
        let left = text.get(both..)?.to_owned();
        self.heard.insert(place, heard + text.len());
        Some(left)
    }
}

fn choices_mut(chunk: &mut Value) -> impl Iterator<Item = &mut Value> {
    chunk.get_mut("choices").and_then(Value::as_array_mut).into_iter().flatten()
}

fn choices(chunk: &Value) -> impl Iterator<Item = &Value> {
    chunk.get("choices").and_then(Value::as_array).into_iter().flatten()
}

fn ends(chunk: &Value) -> bool {
    choices(chunk).any(|choice| choice.get("finish_reason").is_some_and(|reason| !reason.is_null()))
}

fn has_usage(chunk: &Value) -> bool {
    chunk.get("usage").is_some_and(Value::is_object)
}

/// All texts of a chunk with their places.
fn texts(chunk: &Value) -> Vec<(Place, &str)> {
    let mut found = Vec::new();
    for choice in choices(chunk) {
        let index = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
        let Some(delta) = choice.get("delta").and_then(Value::as_object) else { continue };
        for (name, value) in delta.iter().filter(|(name, _)| *name != "role") {
            if let Some(text) = value.as_str() {
                found.push((Place { choice: index, part: Part::Text(name.clone()) }, text));
            }
        }
        for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            let tool = call.get("index").and_then(Value::as_u64).unwrap_or(0);
            let text = |name: &str| call.get("function").and_then(|function| function.get(name)?.as_str());
            found.extend(text("name").map(|text| (Place { choice: index, part: Part::Tool(tool) }, text)));
            found.extend(text("arguments").map(|text| (Place { choice: index, part: Part::Arguments(tool) }, text)));
        }
    }
    found
}

#[cfg(test)]
mod tests;
