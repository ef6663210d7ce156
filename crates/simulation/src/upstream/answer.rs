//! What an upstream answers, as it goes over the wire.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;

use super::Trouble;
use crate::chance::Chance;

/// An answer of an upstream.
#[derive(Debug)]
pub struct Answer {
    /// Time until its head, or until it is known that there is none.
    pub after: Duration,
    /// What comes.
    pub kind: Kind,
}

/// What comes of a call.
#[derive(Debug)]
pub enum Kind {
    /// Nobody listens.
    Refused,
    /// The connection is reset.
    Reset,
    /// Nothing, ever.
    Silence,
    /// A head and a body.
    Reply(Reply),
}

/// A head and a body in pieces.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The pieces, each with the time before it.
    pub pieces: Vec<(Duration, Bytes)>,
    /// How the body ends after them.
    pub end: End,
}

/// How a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Whole,
    /// It breaks off.
    Broken,
    /// Never.
    Silent,
}

impl End {
    /// The error it shows as, if it is one.
    #[must_use]
    pub fn error(self) -> Option<io::Error> {
        (self == Self::Broken).then(|| io::Error::from(io::ErrorKind::ConnectionReset))
    }
}

const GAP: Duration = Duration::from_millis(30);

impl Answer {
    /// The credential isn't taken.
    #[must_use]
    pub fn unauthorised() -> Self {
        let error = json!({"error": {"message": "Incorrect API key provided.", "type": "invalid_request_error",
            "code": "invalid_api_key", "param": null}});
        Self::whole(Duration::from_millis(20), 401, error.to_string())
    }

    /// An answer as it should be.
    pub fn good(chance: &mut Chance, after: Duration, stream: bool, model: &str) -> Self {
        let words = chance.among(1, 4);
        if stream {
            Self::events(after, model, words, true, End::Whole)
        } else {
            Self::whole(after, 200, answer(model))
        }
    }

    /// An answer as it shouldn't be.
    pub fn bad(trouble: Trouble, chance: &mut Chance, after: Duration, stream: bool, model: &str) -> Self {
        let error = |status, message: &str, kind: &str, code: &str| {
            let body = json!({"error": {"message": message, "type": kind, "code": code, "param": null}});
            Self::whole(after, status, body.to_string())
        };
        let nothing = |kind| Self { after, kind };
        match trouble {
            Trouble::Error => error(500, "The server had an error.", "server_error", "server_error"),
            Trouble::Edge => Self::of("text/html", after, 502, "<html><body>Bad Gateway</body></html>".to_owned()),
            Trouble::Overloaded => error(503, "The model is overloaded.", "server_error", "overloaded"),
            Trouble::Limited => error(429, "Rate limit reached.", "requests", "rate_limit_exceeded"),
            Trouble::LimitedFor => {
                let mut answer = error(429, "Rate limit reached.", "requests", "rate_limit_exceeded");
                if let Kind::Reply(reply) = &mut answer.kind {
                    reply.headers.insert("retry-after", HeaderValue::from(chance.among(1, 8)));
                }
                answer
            }
            Trouble::Broke => {
                error(429, "You exceeded your current quota.", "insufficient_quota", "insufficient_quota")
            }
            Trouble::NoModel => error(404, "The model does not exist.", "invalid_request_error", "model_not_found"),
            Trouble::Invalid => error(400, "Unknown parameter: 'x'.", "invalid_request_error", "unknown_parameter"),
            Trouble::Refused => nothing(Kind::Refused),
            Trouble::Reset => nothing(Kind::Reset),
            Trouble::Hang => nothing(Kind::Silence),
            Trouble::Empty if stream => Self::events(after, model, 0, true, End::Whole),
            Trouble::Empty => Self::whole(after, 200, String::new()),
            Trouble::Cut if stream => Self::events(after, model, chance.among(0, 3), false, End::Broken),
            Trouble::Stall if stream => Self::events(after, model, chance.among(0, 3), false, End::Silent),
            Trouble::ErrorEvent if stream => {
                let mut answer = Self::events(after, model, chance.among(0, 3), false, End::Whole);
                if let Kind::Reply(reply) = &mut answer.kind {
                    let error = json!({"error": {"message": "The server had an error.", "type": "server_error"}});
                    reply.pieces.push((GAP, Bytes::from(format!("data: {error}\n\n"))));
                }
                answer
            }
            Trouble::Cut | Trouble::Stall | Trouble::ErrorEvent => {
                let mut answer = Self::whole(after, 200, answer(model));
                if let Kind::Reply(reply) = &mut answer.kind {
                    reply.pieces.iter_mut().for_each(|(_, piece)| piece.truncate(40));
                    reply.end = if trouble == Trouble::Stall { End::Silent } else { End::Broken };
                }
                answer
            }
        }
    }

    fn whole(after: Duration, status: u16, body: String) -> Self {
        Self::of("application/json", after, status, body)
    }

    fn of(kind: &'static str, after: Duration, status: u16, body: String) -> Self {
        let headers = HeaderMap::from_iter([(http::header::CONTENT_TYPE, HeaderValue::from_static(kind))]);
        let pieces = if body.is_empty() { Vec::new() } else { vec![(Duration::ZERO, Bytes::from(body))] };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { after, kind: Kind::Reply(Reply { status, headers, pieces, end: End::Whole }) }
    }

    fn events(after: Duration, model: &str, words: u64, ends: bool, end: End) -> Self {
        let mut answer = Self::of("text/event-stream", after, 200, String::new());
        let Kind::Reply(reply) = &mut answer.kind else { return answer };
        reply.end = end;
        let mut push = |delta: serde_json::Value, finish: Option<&str>| {
            let event = json!({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": model,
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
            reply.pieces.push((GAP, Bytes::from(format!("data: {event}\n\n"))));
        };
        push(json!({"role": "assistant", "content": ""}), None);
        for word in 0..words {
            push(json!({"content": format!("word{word} ")}), None);
        }
        if ends {
            push(json!({}), Some("stop"));
            reply.pieces.push((GAP, Bytes::from_static(b"data: [DONE]\n\n")));
        }
        answer
    }
}

fn answer(model: &str) -> String {
    json!({"id": "c1", "object": "chat.completion", "created": 1, "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "a few words"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}})
    .to_string()
}
