//! The texts of an answer that its model brought to an end of its own: what can be held against a schema.

use std::collections::BTreeMap;

use serde_json::Value;

/// Texts by choice.
#[derive(Debug, Clone, Default)]
pub struct Finished {
    choices: BTreeMap<u64, Choice>,
}

#[derive(Debug, Clone, Default)]
struct Choice {
    text: String,
    /// It ended with `stop`: not by a limit, a filter, or in order to call a tool.
    stopped: bool,
    /// The model declined instead of answering.
    refused: bool,
}

impl Finished {
    /// Takes in a whole answer or a chunk of a streamed one; what is neither says nothing.
    pub fn take(&mut self, data: &[u8]) {
        let Ok(body) = serde_json::from_slice::<Value>(data) else { return };
        for choice in body.get("choices").and_then(Value::as_array).into_iter().flatten() {
            let index = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
            let held = self.choices.entry(index).or_default();
            if let Some(said) = choice.get("delta").or_else(|| choice.get("message")) {
                held.text.push_str(said.get("content").and_then(Value::as_str).unwrap_or_default());
                held.refused |= said.get("refusal").and_then(Value::as_str).is_some_and(|refusal| !refusal.is_empty());
            }
            held.stopped |= choice.get("finish_reason").and_then(Value::as_str) == Some("stop");
        }
    }

    /// The texts.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let whole = |choice: &&Choice| choice.stopped && !choice.refused && !choice.text.is_empty();
        self.choices.values().filter(whole).map(|choice| choice.text.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pieces: &[&str], expected: &[&str]) {
        let mut finished = Finished::default();
        pieces.iter().for_each(|piece| finished.take(piece.as_bytes()));
        assert_eq!(finished.texts().collect::<Vec<_>>(), expected, "{pieces:?}");
    }

    #[test]
    fn a_text_counts_when_its_model_has_ended_it() {
        check(&[r#"{"choices":[{"message":{"content":"{}"},"finish_reason":"stop"}]}"#], &["{}"]);
        check(&[r#"{"choices":[{"message":{"content":"{"},"finish_reason":"length"}]}"#], &[]);
        check(&[r#"{"choices":[{"message":{"content":null,"tool_calls":[{}]},"finish_reason":"tool_calls"}]}"#], &[]);
        check(&[r#"{"choices":[{"message":{"content":"","refusal":"no"},"finish_reason":"stop"}]}"#], &[]);
        check(&["not JSON", "[]", "{}"], &[]);
    }

    #[test]
    fn a_stream_says_it_piece_by_piece_for_each_choice() {
        let pieces = [
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"{\"a\""}},{"index":1,"delta":{"content":"tw"}}]}"#,
            r#"{"choices":[{"index":1,"delta":{"content":"o"},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":":1}"}}]}"#,
        ];
        check(&pieces, &["two"]);
        let ended = [&pieces[..], &[r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#]].concat();
        check(&ended, &[r#"{"a":1}"#, "two"]);
    }
}
