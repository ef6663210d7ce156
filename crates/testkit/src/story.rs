//! A request's history as the admin API gives it, read the way that tests ask.

use std::ops::Deref;

use serde_json::Value;

/// One request's history.
#[derive(Debug, Clone)]
pub struct Story(Value);

/// One attempt, in the words of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Name of the source that was asked.
    pub source: String,
    /// Why it was asked.
    pub why: String,
    /// What became of it.
    pub kind: String,
    /// The rule that said so, without its version.
    pub rule: String,
    /// What came next; empty after a success.
    pub next: String,
}

impl Story {
    pub(crate) const fn new(history: Value) -> Self {
        Self(history)
    }

    /// The final state.
    #[must_use]
    pub fn state(&self) -> &str {
        self.text("/request/state")
    }

    /// The status that the client got.
    #[must_use]
    pub fn status(&self) -> u64 {
        self.0.pointer("/request/status").and_then(Value::as_u64).unwrap_or_default()
    }

    /// Name of the source that served; empty where none did.
    #[must_use]
    pub fn served_by(&self) -> String {
        self.0.pointer("/request/served_source").map(|source| self.name(source)).unwrap_or_default()
    }

    /// The attempts in their order.
    #[must_use]
    pub fn attempts(&self) -> Vec<Attempt> {
        let rows = self.0.get("attempts").and_then(Value::as_array).cloned().unwrap_or_default();
        let attempt = |row: &Value| {
            let text = |field: &str| row.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            let rule = text("rule");
            Attempt {
                source: row.get("source").map(|source| self.name(source)).unwrap_or_default(),
                why: text("why"),
                kind: text("kind"),
                rule: rule.split('@').next().unwrap_or_default().to_owned(),
                next: text("next"),
            }
        };
        rows.iter().map(attempt).collect()
    }

    /// Names of the sources asked, in their order.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.attempts().into_iter().map(|attempt| attempt.source).collect()
    }

    /// The kinds of the attempts, in their order.
    #[must_use]
    pub fn kinds(&self) -> Vec<String> {
        self.attempts().into_iter().map(|attempt| attempt.kind).collect()
    }

    /// Everything it says in words, one line per event.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let lines = self.0.get("lines").and_then(Value::as_array).cloned().unwrap_or_default();
        lines.iter().filter_map(|line| Some(line.get("text")?.as_str()?.to_owned())).collect()
    }

    fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    fn name(&self, source: &Value) -> String {
        let id = source_text(source);
        let name = self.0.get("names").and_then(|names| names.get(&id)).and_then(Value::as_str);
        name.map_or(id, str::to_owned)
    }
}

impl Deref for Story {
    type Target = Value;
    fn deref(&self) -> &Value {
        &self.0
    }
}

/// A source as text, e.g. `channel:1`: events and rows write it as an object, `/state` and `/sources` as text.
#[must_use]
pub fn source_text(source: &Value) -> String {
    match (source.as_str(), source.get("kind").and_then(Value::as_str), source.get("id")) {
        (Some(text), ..) => text.to_owned(),
        (None, Some(kind), Some(id)) => format!("{kind}:{id}"),
        (None, ..) => String::new(),
    }
}
