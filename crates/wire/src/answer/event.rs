//! What one event of a stream says, in the protocols that aren't chat.

use serde_json::Value;

use super::says_something;
use crate::error::{BodyShape, ErrorFacts, is_error};

/// Finish reasons of Gemini with which there is no answer that anybody could use.
pub(super) const GEMINI_FAILED: [&str; 4] =
    ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "OTHER"];

/// What one event says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// Nothing that matters.
    Silent,
    /// The model said something.
    Content,
    /// The answer is complete, for a reason where one is given.
    End(Option<String>),
    /// The model said something, and the answer is complete.
    Last(Option<String>),
    /// The upstream says that it failed.
    Error(Box<ErrorFacts>),
}

/// Reads an event.
pub(super) fn read(name: Option<&str>, tree: Value) -> Says {
    let kind = tree.get("type").and_then(Value::as_str).or(name).unwrap_or_default().to_owned();
    if failed(&kind, &tree) || (!known(&kind) && is_error(&tree)) {
        return Says::Error(Box::new(ErrorFacts::read_tree(200, tree)));
    }
    let text = |at: &str| tree.pointer(at).and_then(Value::as_str).map(str::to_owned);
    match kind.as_str() {
        "message_start" | "content_block_stop" | "ping" => return Says::Silent,
        "content_block_start" => return content(tree.pointer("/content_block/type") == Some(&Value::from("tool_use"))),
        "content_block_delta" => return content(tree.get("delta").is_some_and(says_something)),
        "message_delta" => return text("/delta/stop_reason").map_or(Says::Silent, |why| Says::End(Some(why))),
        "message_stop" => return Says::End(None),
        "response.completed" => return Says::End(None),
        "response.incomplete" => return Says::End(text("/response/incomplete_details/reason")),
        _ if kind.starts_with("response.") => return content(kind.ends_with(".delta")),
        _ => {}
    }
    if let Some(frame) = binary(&tree) {
        return frame;
    }
    other(&tree)
}

fn failed(kind: &str, tree: &Value) -> bool {
    let exception = tree.pointer("/headers/:message-type").and_then(Value::as_str) == Some("exception");
    let carried = tree.pointer("/headers/:exception-type").is_some();
    kind == "error" || kind == "response.failed" || exception || carried
}

/// Events whose members would look like those of an error.
fn known(kind: &str) -> bool {
    kind.starts_with("message_")
        || kind.starts_with("content_block_")
        || kind.starts_with("response.")
        || kind == "ping"
}

fn content(said: bool) -> Says {
    if said { Says::Content } else { Says::Silent }
}

/// A frame of Bedrock's event stream, decoded.
fn binary(tree: &Value) -> Option<Says> {
    Some(match tree.pointer("/headers/:event-type")?.as_str()? {
        "contentBlockDelta" => content(tree.pointer("/payload/delta").is_some_and(says_something)),
        "messageStop" => Says::End(tree.pointer("/payload/stopReason").and_then(Value::as_str).map(str::to_owned)),
        _ => Says::Silent,
    })
}

/// Gemini, Ollama, Cohere and the like: the answer so far, and why it ended.
fn other(tree: &Value) -> Says {
    if let Some(why) = tree.pointer("/promptFeedback/blockReason").and_then(Value::as_str) {
        return Says::Error(Box::new(ErrorFacts {
            status: 200,
            code: Some(why.to_owned()),
            kind: Some("prompt_blocked".to_owned()),
            shape: BodyShape::Json,
            ..ErrorFacts::default()
        }));
    }
    let places = [
        "/candidates/0/content/parts",
        "/message/content",
        "/delta/message/content",
        "/output/text",
        "/response",
        "/result",
        "/text",
    ];
    let said = places.iter().any(|place| tree.pointer(place).is_some_and(says_something));
    let reasons = [
        "/candidates/0/finishReason",
        "/done_reason",
        "/finish_reason",
        "/output/finish_reason",
        "/delta/finish_reason",
    ];
    let why = reasons.iter().find_map(|place| tree.pointer(place)?.as_str()).filter(|why| *why != "null");
    let over = why.is_some() || ["done", "is_end"].iter().any(|name| tree.get(*name) == Some(&Value::Bool(true)));
    match (said, over) {
        (true, true) => Says::Last(why.map(str::to_owned)),
        (false, true) => Says::End(why.map(str::to_owned)),
        (said, false) => content(said),
    }
}
