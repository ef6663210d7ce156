//! The facts of a whole chat answer, and whether it is one at all: a 200 alone says nothing.

#[cfg(test)]
mod tests;

use serde_json::Value;

use super::body::Body;
use super::choice::{failure, tree_says_something};
use crate::error::{ErrorFacts, is_error, looks_like_html};
use crate::json;
use crate::usage::Usage;

/// What a whole answer says beside its content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnswerFacts {
    /// The first finish reason given.
    pub finish_reason: Option<String>,
    /// Token counts, if reported.
    pub usage: Option<Usage>,
    /// The model that the upstream says it served.
    pub model: Option<String>,
}

/// Why a body with a success status is no chat answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShapeFault {
    /// Nothing, or `null`.
    Empty,
    /// A web page.
    Html,
    /// An event stream, though none was asked for.
    EventStream,
    /// Not JSON.
    NotJson,
    /// JSON that says what went wrong.
    ErrorObject(Box<ErrorFacts>),
    /// JSON of another shape.
    WrongShape,
    /// The right shape, but the model said nothing.
    EmptyOutput(Box<AnswerFacts>),
}

/// Reads a whole chat answer.
///
/// # Errors
/// [`ShapeFault`] if the body isn't a chat answer, or one in which the model said nothing without a reason.
pub fn inspect_answer(body: &[u8]) -> Result<AnswerFacts, ShapeFault> {
    let body = json::trim(body);
    if body.is_empty() || body == b"null" {
        return Err(ShapeFault::Empty);
    }
    let text = std::str::from_utf8(body).map_err(|_| ShapeFault::NotJson)?;
    scan(text).unwrap_or_else(|| inspect_tree(text))
}

/// The usual shape; nothing where a reader that sees all of it should judge.
fn scan(text: &str) -> Option<Result<AnswerFacts, ShapeFault>> {
    let body = Body::scan(text)?;
    let choices = body.choices.filter(|choices| choices.count > 0 && choices.whole)?;
    let facts = AnswerFacts {
        finish_reason: choices.finish_reason.map(str::to_owned),
        usage: body.usage,
        model: body.model.map(str::to_owned),
    };
    Some(judge(facts, choices.say_something))
}

fn judge(facts: AnswerFacts, said: bool) -> Result<AnswerFacts, ShapeFault> {
    if let Some(error) = failure(facts.finish_reason.as_deref()) {
        return Err(ShapeFault::ErrorObject(error));
    }
    if said || silence_has_a_reason(facts.finish_reason.as_deref()) {
        Ok(facts)
    } else {
        Err(ShapeFault::EmptyOutput(Box::new(facts)))
    }
}

/// Finish reasons with which an empty answer is an answer: the limit was reached, or a filter took the text away.
pub(super) fn silence_has_a_reason(finish_reason: Option<&str>) -> bool {
    matches!(finish_reason, Some("length" | "content_filter" | "tool_calls" | "function_call"))
}

fn inspect_tree(text: &str) -> Result<AnswerFacts, ShapeFault> {
    let Ok(tree) = serde_json::from_str::<Value>(text) else { return Err(text_fault(text)) };
    if is_error(&tree) {
        return Err(ShapeFault::ErrorObject(Box::new(ErrorFacts::read_tree(200, tree))));
    }
    let choices = tree.get("choices").and_then(Value::as_array).ok_or(ShapeFault::WrongShape)?;
    let whole = |choice: &Value| choice.get("message").is_some_and(Value::is_object) || choice.get("text").is_some();
    if !choices.iter().all(whole) {
        return Err(ShapeFault::WrongShape);
    }
    let owned = |value: &Value| value.as_str().map(str::to_owned);
    let facts = AnswerFacts {
        finish_reason: choices.iter().find_map(|choice| owned(choice.get("finish_reason")?)),
        usage: tree.get("usage").and_then(Usage::read),
        model: tree.get("model").and_then(owned),
    };
    judge(facts, choices.iter().any(tree_says_something))
}

fn text_fault(text: &str) -> ShapeFault {
    if looks_like_html(text) {
        return ShapeFault::Html;
    }
    if ["data:", "event:", ": ", "id:"].iter().any(|start| text.starts_with(start)) {
        return ShapeFault::EventStream;
    }
    ShapeFault::NotJson
}
