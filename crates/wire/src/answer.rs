//! What an answer of any protocol amounts to. Chat answers are read as the data plane reads them; the others, which it
//! doesn't speak yet, by the shapes that they are known to have.

mod event;
mod stream;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::chat::{ShapeFault, inspect_answer};
use crate::error::{BodyShape, ErrorFacts};
use crate::json;

pub use stream::{AnyStream, read_stream};

/// Reads a whole answer of any protocol. Gives the reason for which it ended, where it says so; what a model says in place
/// of an answer is `refusal`.
///
/// # Errors
/// [`ShapeFault`] if it is no answer, or one in which the model said nothing without a reason.
pub fn read_answer(body: &[u8]) -> Result<Option<String>, ShapeFault> {
    match inspect_answer(body) {
        Ok(facts) if refused(body) => Ok(facts.finish_reason.and(Some("refusal".to_owned()))),
        Ok(facts) => Ok(facts.finish_reason),
        Err(ShapeFault::WrongShape) => match serde_json::from_slice::<Value>(json::trim(body)) {
            Ok(tree) => amount(&tree).unwrap_or(Err(ShapeFault::WrongShape)),
            Err(_) => Err(ShapeFault::WrongShape),
        },
        Err(fault) => Err(fault),
    }
}

/// Whether a chat answer's message holds a refusal and no content.
fn refused(body: &[u8]) -> bool {
    let Ok(tree) = serde_json::from_slice::<Value>(json::trim(body)) else { return false };
    let says = |message: &Value, name: &str| message.get(name).is_some_and(says_something);
    let choices = tree.get("choices").and_then(Value::as_array);
    choices
        .into_iter()
        .flatten()
        .filter_map(|choice| choice.get("message"))
        .any(|message| says(message, "refusal") && !says(message, "content") && !says(message, "tool_calls"))
}

type Amount = Result<Option<String>, ShapeFault>;

/// What a tree amounts to; nothing if no protocol has answers of this shape.
fn amount(tree: &Value) -> Option<Amount> {
    None.or_else(|| blocked_prompt(tree))
        .or_else(|| gemini(tree))
        .or_else(|| anthropic(tree))
        .or_else(|| responses(tree))
        .or_else(|| bedrock(tree))
        .or_else(|| plain(tree))
}

/// An answer, or none where the model said nothing although no reason stands in `silent`.
fn said(something: bool, finish: Option<&str>, silent: &[&str]) -> Amount {
    if something || finish.is_some_and(|why| silent.iter().any(|reason| reason.eq_ignore_ascii_case(why))) {
        Ok(finish.map(str::to_owned))
    } else {
        Err(ShapeFault::EmptyOutput(Box::default()))
    }
}

/// Gemini refuses a prompt with a 200 that has no candidates.
fn blocked_prompt(tree: &Value) -> Option<Amount> {
    let why = tree.pointer("/promptFeedback/blockReason")?.as_str()?;
    if tree.get("candidates").is_some_and(says_something) {
        return None;
    }
    Some(Err(ShapeFault::ErrorObject(Box::new(ErrorFacts {
        status: 200,
        code: Some(why.to_owned()),
        kind: Some("prompt_blocked".to_owned()),
        shape: BodyShape::Json,
        ..ErrorFacts::default()
    }))))
}

fn gemini(tree: &Value) -> Option<Amount> {
    let first = tree.get("candidates").and_then(Value::as_array).map(|candidates| candidates.first());
    if first.is_none() && tree.get("usageMetadata").is_none() {
        return None;
    }
    let Some(candidate) = first.flatten() else { return Some(said(false, None, &[])) };
    let finish = candidate.get("finishReason").and_then(Value::as_str);
    let parts = candidate.pointer("/content/parts").is_some_and(says_something);
    // What the model formed wrongly is nothing that anybody could use.
    let failed = finish.is_some_and(|why| event::GEMINI_FAILED.contains(&why));
    let silent = finish.is_some_and(|why| why != "STOP" && !failed);
    Some(if silent { Ok(finish.map(str::to_owned)) } else { said(parts && !failed, finish, &[]) })
}

fn anthropic(tree: &Value) -> Option<Amount> {
    (tree.get("type").and_then(Value::as_str) == Some("message")).then_some(())?;
    let finish = tree.get("stop_reason").and_then(Value::as_str);
    let content = tree.get("content").is_some_and(says_something);
    Some(said(content, finish, &["max_tokens", "refusal", "tool_use", "pause_turn", "stop_sequence"]))
}

fn responses(tree: &Value) -> Option<Amount> {
    (tree.get("object").and_then(Value::as_str) == Some("response")).then_some(())?;
    let reason = tree.pointer("/incomplete_details/reason").and_then(Value::as_str);
    let output = tree.get("output").and_then(Value::as_array);
    let items = || output.into_iter().flatten();
    let refused = items()
        .filter_map(|item| item.get("content")?.as_array())
        .flatten()
        .any(|part| part.get("type").and_then(Value::as_str) == Some("refusal"));
    let finish = if refused { Some("refusal") } else { reason.or(tree.get("status").and_then(Value::as_str)) };
    Some(said(items().next().is_some() || reason.is_some(), finish, &[]))
}

fn bedrock(tree: &Value) -> Option<Amount> {
    let finish = tree.get("stopReason").and_then(Value::as_str);
    let content = tree.pointer("/output/message/content").or_else(|| tree.pointer("/output/content"));
    if finish.is_none() && content.is_none() {
        return None;
    }
    Some(said(
        content.is_some_and(says_something),
        finish,
        &["guardrail_intervened", "content_filtered", "max_tokens", "tool_use"],
    ))
}

/// Members in which the answers of smaller protocols stand: Ollama, Cohere, Qianfan, DashScope, TGI.
const PLACES: [&str; 9] = [
    "/message/content",
    "/message/tool_calls",
    "/message/thinking",
    "/response",
    "/result",
    "/text",
    "/output/text",
    "/output/choices",
    "/generated_text",
];

fn plain(tree: &Value) -> Option<Amount> {
    let tree = tree.as_array().and_then(|items| items.first()).unwrap_or(tree);
    let there: Vec<&Value> = PLACES.iter().filter_map(|place| tree.pointer(place)).collect();
    if there.is_empty() {
        return None;
    }
    if tree.get("need_clear_history") == Some(&Value::Bool(true)) {
        return Some(Ok(Some("need_clear_history".to_owned())));
    }
    let finish = ["finish_reason", "done_reason", "stop_reason"].iter().find_map(|name| tree.get(*name)?.as_str());
    let finish = finish.or_else(|| tree.pointer("/output/choices/0/finish_reason").and_then(Value::as_str));
    Some(said(there.into_iter().any(says_something), finish, &["length", "max_tokens", "content_filter", "tool_calls"]))
}

/// Whether a value says something: not null, not `""`, `[]` or `{}`, and of a list or an object one that isn't.
pub(crate) fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => items.iter().any(says_something),
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| !["type", "role", "index"].contains(&name.as_str()) && says_something(value)),
        Value::Bool(_) | Value::Number(_) => true,
    }
}
