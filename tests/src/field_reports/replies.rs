//! What upstreams say, in short.

use serde_json::{Value, json};
use waybill_testkit::upstream::{Body, Chat, Chunking, Framing, Reply, Source, Usage};

/// Always the same.
pub(super) fn always(reply: Reply) -> Source {
    Source::default().then(reply)
}

/// These in turn; the last one repeats.
pub(super) fn turns(replies: impl IntoIterator<Item = Reply>) -> Source {
    replies.into_iter().fold(Source::default(), Source::then)
}

/// A healthy source.
pub(super) fn well() -> Source {
    always(ok())
}

/// A healthy answer, streamed when a stream is asked for.
pub(super) fn ok() -> Reply {
    let usage = Usage { prompt_tokens: 10, completion_tokens: 5, ..Usage::default() };
    Reply::chat(Chat { usage: Some(usage), ..Chat::default() })
}

/// An error object.
pub(super) fn error(kind: &str, code: &str, message: &str) -> Value {
    json!({"error": {"type": kind, "code": code, "message": message}})
}

/// A status with an error object.
pub(super) fn told(status: u16, kind: &str, code: &str, message: &str) -> Reply {
    Reply::json(status, error(kind, code, message))
}

/// A fault of the caller.
pub(super) fn invalid(status: u16, code: &str, message: &str) -> Reply {
    told(status, "invalid_request_error", code, message)
}

/// A fault of the upstream.
pub(super) fn ill(status: u16) -> Reply {
    told(status, "server_error", "x", "x")
}

/// A limit, without a hint.
pub(super) fn slow_down() -> Reply {
    told(429, "rate_limit_error", "rl", "slow")
}

/// A bad key.
pub(super) fn bad_key() -> Reply {
    told(401, "authentication_error", "invalid_api_key", "bad key")
}

/// An event stream of these texts, byte for byte.
pub(super) fn stream(text: &str) -> Reply {
    stream_of(text.as_bytes().to_vec())
}

/// An event stream of these bytes.
pub(super) fn stream_of(bytes: Vec<u8>) -> Reply {
    let body = Body::Bytes { content_type: "text/event-stream".to_owned(), bytes };
    Reply { body, ..Reply::default() }.framing(Framing::Chunked).chunking(Chunking::Whole)
}

/// A page or a text.
pub(super) fn page(status: u16, content_type: &str, text: &str) -> Reply {
    let body = Body::Text { content_type: content_type.to_owned(), text: text.to_owned() };
    Reply { status, body, ..Reply::default() }
}

/// An event with this piece of the answer.
pub(super) fn piece(text: &str) -> String {
    format!("data: {}", json!({"choices": [{"delta": {"content": text}, "index": 0}]}))
}

/// An event that says who speaks, and nothing more.
pub(super) fn role() -> String {
    format!("data: {}", json!({"choices": [{"delta": {"role": "assistant"}, "index": 0}]}))
}

/// An event with this error.
pub(super) fn fault(error: &Value) -> String {
    format!("data: {error}")
}

/// The terminal signal, with usage.
pub(super) fn stop() -> String {
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5});
    format!("data: {}", json!({"choices": [{"delta": {}, "finish_reason": "stop", "index": 0}], "usage": usage}))
}

/// The closing sentinel.
pub(super) fn done() -> String {
    "data: [DONE]".to_owned()
}
