//! Takes out of an upstream's words what is the client's: providers quote prompts in their errors.

use memchr::memmem;
use serde_json::Value;

/// What stands in place of what was the client's.
const ECHO: &str = "[request]";
/// What is said of a request that is too large to compare with.
const LEFT_OUT: &str = "[left out: the request is no longer there, or too large, to compare with]";
/// Largest request that is compared with, in bytes.
const MAX_REQUEST_BYTES: usize = 4 * 1024 * 1024;
/// So many characters in a row that stand in the request are the request's.
const RUN_CHARS: usize = 16;
/// Texts of the request that are shorter than a run are looked for whole, from this many characters.
const WHOLE_CHARS: usize = 8;
/// How much of a message is looked at, in bytes: nothing beyond it is kept.
const MAX_MESSAGE_BYTES: usize = 2048;

/// The texts of a request: what an upstream's words are cleared of. Can't be printed.
#[derive(Default)]
pub struct Said {
    /// Those of at least a run, one after the other.
    long: String,
    short: Vec<String>,
    too_large: bool,
}

impl Said {
    /// The texts of a request, a JSON body. Its `model` isn't taken for a text of the client's: which model isn't there is what
    /// an error is about.
    #[must_use]
    pub fn of(request: &[u8]) -> Self {
        if request.len() > MAX_REQUEST_BYTES {
            return Self::unknown();
        }
        let mut said = Self::default();
        match serde_json::from_slice::<Value>(request) {
            Ok(body) => said.collect(&body, true),
            // What isn't JSON was refused before; whatever it is, it isn't quoted.
            Err(_) => said.long.push_str(&String::from_utf8_lossy(request)),
        }
        said
    }

    /// Of a request that is no longer there to compare with.
    #[must_use]
    pub fn unknown() -> Self {
        Self { too_large: true, ..Self::default() }
    }

    /// An upstream's words without what stands in the request.
    #[must_use]
    pub fn out_of(&self, message: &str) -> String {
        if self.too_large {
            return LEFT_OUT.to_owned();
        }
        let message = crate::json::cut(message, MAX_MESSAGE_BYTES);
        let mut told = replaced_runs(message, self.long.as_bytes());
        for text in &self.short {
            if told.contains(text) {
                told = told.replace(text, ECHO);
            }
        }
        told
    }

    fn collect(&mut self, value: &Value, top: bool) {
        match value {
            Value::String(text) => self.take(text),
            Value::Array(items) => items.iter().for_each(|item| self.collect(item, false)),
            Value::Object(members) => {
                members.iter().filter(|(name, _)| !top || *name != "model").for_each(|(_, value)| {
                    self.collect(value, false);
                });
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn take(&mut self, text: &str) {
        let chars = text.trim().chars().take(RUN_CHARS).count();
        if chars >= RUN_CHARS {
            self.long.push_str(text);
            self.long.push('\0');
        } else if chars >= WHOLE_CHARS {
            self.short.push(text.trim().to_owned());
        }
    }
}

/// The message with each run that stands in `haystack` replaced. Runs begin where words do.
fn replaced_runs(message: &str, haystack: &[u8]) -> String {
    let mut told = String::with_capacity(message.len());
    let mut rest = message;
    let mut at_word = true;
    while let Some(first) = rest.chars().next() {
        let begins = !first.is_whitespace() && (at_word || !first.is_ascii());
        let run = if begins { run(rest, haystack) } else { 0 };
        if run > 0 {
            told.push_str(ECHO);
            let (_, after) = rest.split_at(run);
            rest = after;
            at_word = true;
            continue;
        }
        told.push(first);
        at_word = !first.is_alphanumeric();
        rest = rest.get(first.len_utf8()..).unwrap_or_default();
    }
    told
}

/// Length in bytes of what at the beginning of `rest` stands in `haystack`; 0 where it is shorter than a run.
fn run(rest: &str, haystack: &[u8]) -> usize {
    let Some((end, _)) = rest.char_indices().nth(RUN_CHARS - 1) else { return 0 };
    let Some(window) = rest.get(..end).filter(|window| !window.trim().is_empty()) else { return 0 };
    let Some(at) = memmem::find(haystack, window.as_bytes()) else { return 0 };
    let there = haystack.get(at..).unwrap_or_default();
    let same = rest.bytes().zip(there).take_while(|(one, other)| one == *other).count();
    (0..=same).rev().find(|length| rest.is_char_boundary(*length)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(message: &str, content: &str, expected: &str) {
        let request =
            serde_json::json!({"model": "gpt-4o-mini-2024-07-18", "messages": [{"role": "user", "content": content}]});
        assert_eq!(Said::of(request.to_string().as_bytes()).out_of(message), expected);
    }

    #[test]
    fn what_the_client_said_is_not_quoted() {
        let said = "please tell nobody that my \"sister\" moved to Lisbon";
        check(
            &format!("Your prompt was refused: {said}. Change it."),
            said,
            "Your prompt was refused: [request]. Change it.",
        );
        check("refused: nobody that my \"sister\" mov… in the prompt", said, "refused: [request]… in the prompt");
        check(
            "拒绝:我妹妹搬到了里斯本请不要告诉任何人好吗",
            "我妹妹搬到了里斯本请不要告诉任何人好吗",
            "拒绝:[request]",
        );
        check("input 'Who is Bob?' is refused", "Who is Bob?", "input '[request]' is refused");
    }

    #[test]
    fn what_the_client_did_not_say_stays() {
        check(
            "The model `gpt-4o-mini-2024-07-18` does not exist",
            "hello there, how are you today?",
            "The model `gpt-4o-mini-2024-07-18` does not exist",
        );
        check("too short", "too", "too short");
        assert_eq!(Said::of(b"").out_of("a message of some length"), "a message of some length");
    }

    #[test]
    fn what_cannot_be_compared_is_left_out() {
        let large = vec![b' '; MAX_REQUEST_BYTES + 1];
        assert_eq!(Said::of(&large).out_of("anything"), LEFT_OUT);
    }
}
