//! What is sent in reply to a request: the script's reply, or a sensible one.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::chat::{self, Answer};
use crate::request::Request;
use crate::script::{Body, Chat, Framing, Reply, Source};

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream; charset=utf-8";
const SAID: &str = "This is a scripted answer.";

/// A body ready to be cut into pieces, with what the head says of it.
#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) content_type: Option<String>,
    /// Events of a stream, or the whole body as one.
    pub(crate) frames: Vec<Bytes>,
    /// How its end is told unless the script says otherwise.
    pub(crate) framing: Framing,
    /// Whether it replaces the whole HTTP response.
    pub(crate) wire: bool,
}

impl Payload {
    fn whole(content_type: &str, bytes: impl Into<Bytes>) -> Self {
        Self {
            content_type: Some(content_type.into()),
            frames: vec![bytes.into()],
            framing: Framing::Length,
            wire: false,
        }
    }

    fn stream(frames: Vec<String>) -> Self {
        Self {
            content_type: Some(EVENTS.into()),
            frames: frames.into_iter().map(Bytes::from).collect(),
            framing: Framing::Chunked,
            wire: false,
        }
    }
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A chat completion.
    Chat,
    /// The list of models.
    Models,
    /// One model.
    Model,
    /// Anything else.
    Unknown,
}

impl Purpose {
    pub(crate) fn of(method: &str, path: &str) -> Self {
        let path = path.split('?').next().unwrap_or_default().trim_end_matches('/');
        match method {
            "POST" if path.ends_with("/chat/completions") => Self::Chat,
            "GET" if path.ends_with("/models") => Self::Models,
            "GET" if path.contains("/models/") => Self::Model,
            _ => Self::Unknown,
        }
    }
}

/// The reply to a request, before its body is rendered.
pub(crate) fn reply(source: &Source, request: &Request, purpose: Purpose, turn: usize) -> Reply {
    if source.key.as_ref().is_some_and(|key| !presents(request, key)) {
        return Reply::error(401, "invalid_api_key");
    }
    match purpose {
        Purpose::Chat => {
            let scripted = of_model(source, request).or_else(|| source.reply(turn));
            scripted.cloned().unwrap_or_else(|| sensible(request))
        }
        Purpose::Models => {
            let list: Vec<Value> = source.models.iter().map(|name| model(name)).collect();
            let sensible = || Reply::json(200, json!({"object": "list", "data": list}));
            source.models_reply.clone().unwrap_or_else(sensible)
        }
        Purpose::Model => {
            let name = request.path.rsplit('/').next().unwrap_or_default();
            match source.models.iter().find(|found| found.as_str() == name) {
                Some(name) => Reply::json(200, model(name)),
                None => Reply::error(404, "model_not_found"),
            }
        }
        Purpose::Unknown => Reply::error(404, "unknown_url"),
    }
}

/// Renders a body. `call` makes ids unique.
pub(crate) fn payload(body: &Body, source: &Source, request: &Request, status: u16, call: &str) -> Payload {
    match body {
        Body::Chat(chat) => {
            let json: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            let said = source.text.as_deref().unwrap_or(SAID);
            let answer = Answer::new(chat, &json, said, call);
            if chat.stream.unwrap_or_else(|| chat::wants_stream(&json)) {
                Payload::stream(answer.frames(chat, chat::wants_usage(&json)))
            } else {
                Payload::whole(JSON, answer.object().to_string())
            }
        }
        Body::Json(value) => Payload::whole(JSON, value.to_string()),
        Body::Error { kind, message } => Payload::whole(JSON, error(status, kind, message.as_deref()).to_string()),
        Body::Text { content_type, text } => Payload::whole(content_type, text.clone()),
        Body::Bytes { content_type, bytes } => Payload::whole(content_type, bytes.clone()),
        Body::Frames(frames) => Payload::stream(chat::framed(frames.clone(), false)),
        Body::Empty => Payload { content_type: None, frames: Vec::new(), framing: Framing::Length, wire: false },
        Body::Wire(text) => {
            Payload { content_type: None, frames: vec![text.clone().into()], framing: Framing::Close, wire: true }
        }
    }
}

fn of_model<'a>(source: &'a Source, request: &Request) -> Option<&'a Reply> {
    if source.by_model.is_empty() {
        return None;
    }
    let json: Value = serde_json::from_slice(&request.body).ok()?;
    source.by_model.get(json.get("model")?.as_str()?)
}

fn sensible(request: &Request) -> Reply {
    let json: Option<Value> = serde_json::from_slice(&request.body).ok();
    match json.as_ref().and_then(|json| json.get("messages")).and_then(Value::as_array) {
        Some(messages) if !messages.is_empty() => Reply::chat(Chat::default()),
        Some(_) | None => Reply::error(400, "invalid_request_error"),
    }
}

fn presents(request: &Request, key: &str) -> bool {
    request.headers.iter().any(|(name, value)| match name.as_str() {
        "authorization" => value.strip_prefix("Bearer ") == Some(key),
        "x-api-key" => value == key,
        _ => false,
    })
}

fn model(name: &str) -> Value {
    json!({"id": name, "object": "model", "created": 1_767_225_600, "owned_by": "scripted"})
}

fn error(status: u16, kind: &str, message: Option<&str>) -> Value {
    let class = match status {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        _ => "server_error",
    };
    let message = message.map_or_else(|| format!("scripted {status}: {kind}"), str::to_owned);
    json!({"error": {"message": message, "type": class, "param": null, "code": kind}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: &str) -> Request {
        Request {
            method: "POST".into(),
            path: "/a/v1/chat/completions".into(),
            headers: vec![("authorization".into(), "Bearer k".into())],
            body: Bytes::copy_from_slice(body.as_bytes()),
            keep_alive: true,
        }
    }

    #[test]
    fn purposes_are_told_by_method_and_path() {
        let check = |method, path, expected| assert_eq!(Purpose::of(method, path), expected, "{method} {path}");
        check("POST", "/a/v1/chat/completions?x=1", Purpose::Chat);
        check("GET", "/a/v1/models/", Purpose::Models);
        check("GET", "/v1/models/gpt-4o", Purpose::Model);
        check("GET", "/v1/chat/completions", Purpose::Unknown);
    }

    #[test]
    fn the_last_reply_repeats_and_a_wrong_key_uses_none() {
        let source = Source::default().then(Reply::empty(500)).then(Reply::empty(200));
        let status = |source: &Source, turn| reply(source, &request("{}"), Purpose::Chat, turn).status;
        assert_eq!([0, 1, 2, 9].map(|turn| status(&source, turn)), [500, 200, 200, 200]);
        assert_eq!([1, 2, 4].map(|turn| status(&source.clone().over_again(), turn)), [200, 500, 500]);
        assert_eq!(status(&source.clone().with_key("other"), 0), 401);
        assert_eq!(status(&source.with_key("k"), 0), 500);
    }

    #[test]
    fn by_default_a_chat_is_answered_and_nonsense_is_refused() {
        let source = Source::default();
        let status = |body| reply(&source, &request(body), Purpose::Chat, 0).status;
        assert_eq!(status(r#"{"messages":[{"role":"user","content":"x"}]}"#), 200);
        assert_eq!(["not json", "{}", r#"{"messages":[]}"#].map(status), [400; 3]);
    }
}
