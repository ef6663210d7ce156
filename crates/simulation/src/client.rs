//! Clients: each sends one request and keeps what it saw of the answer.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::BytesMut;
use http::Request;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::json;
use tower::ServiceExt as _;
use waybill_event::Boot;

use crate::freeze::Freeze;
use crate::ground::Ground;

/// What a client asks for.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Its number.
    pub client: u64,
    /// Its key.
    pub token: String,
    /// The model.
    pub model: String,
    /// Whether it wants a stream.
    pub stream: bool,
    /// Whether it offers tools.
    pub tools: bool,
    /// Which of its SDK's own retries it is.
    pub retry: u64,
    /// How long it lets the gateway try.
    pub deadline: Duration,
    /// When it goes away, if it does.
    pub leaves_after: Option<Duration>,
}

/// How it ended, as the client saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Not yet.
    Waiting,
    /// Everything came.
    Whole,
    /// An error stood in the stream.
    ErrorEvent,
    /// The client went away.
    Left,
    /// The connection broke.
    Reset,
}

/// What a client saw.
#[derive(Debug, Clone)]
pub struct Seen {
    /// What it asked for.
    pub asked: Asked,
    /// Whom.
    pub proxy: String,
    /// In which of its lives.
    pub boot: Boot,
    /// The status.
    pub status: Option<u16>,
    /// The request's id, as the answer tells it.
    pub id: Option<String>,
    /// The error's code.
    pub code: Option<String>,
    /// How it ended.
    pub end: End,
    /// It went away and its replica, which stood still, hasn't noticed.
    pub unnoticed: bool,
}

/// What a client sees, while it sees it.
pub type Watched = Arc<Mutex<Seen>>;

/// Sends the request and reads the answer, until its end or until the client has had enough.
///
/// A replica that is frozen neither answers nor sees its client go.
pub async fn ask(ground: Arc<Ground>, router: Router, freeze: Freeze, watched: Watched) {
    let (asked, proxy) = {
        let seen = watched.lock();
        (seen.asked.clone(), seen.proxy.clone())
    };
    ground.trace.note(format_args!("client {} asks {proxy} for {} stream {}", asked.client, asked.model, asked.stream));
    let mut asking = freeze.over(Box::pin(read(router, asked.clone(), Arc::clone(&watched))));
    match asked.leaves_after {
        None => asking.await,
        Some(after) => {
            if tokio::time::timeout(after, &mut asking).await.is_err() {
                {
                    let mut seen = watched.lock();
                    if seen.end == End::Waiting {
                        seen.end = End::Left;
                    }
                    seen.unnoticed = true;
                }
                freeze.thawed().await;
                drop(asking);
                watched.lock().unnoticed = false;
            }
        }
    }
    let seen = watched.lock();
    let (status, code) = (seen.status, &seen.code);
    ground.trace.note(format_args!("client {} saw {status:?} {code:?} {:?}", asked.client, seen.end));
}

async fn read(router: Router, asked: Asked, watched: Watched) {
    let mut body = json!({
        "model": asked.model, "stream": asked.stream, "messages": [{"role": "user", "content": "hello"}],
    });
    if asked.tools {
        body["tools"] = json!([{"type": "function", "function": {"name": "f"}}]);
    }
    let request = Request::post("/v1/chat/completions")
        .header("authorization", format!("Bearer {}", asked.token))
        .header("content-type", "application/json")
        .header("x-client-request-id", format!("client-{}", asked.client))
        .header("x-stainless-retry-count", asked.retry.to_string())
        .header("idempotency-key", asked.client.to_string())
        .header("x-waybill-deadline-ms", asked.deadline.as_millis().to_string())
        .body(Body::from(body.to_string()))
        .unwrap();
    // A router never fails.
    let Ok(response) = router.oneshot(request).await;
    let status = response.status().as_u16();
    {
        let mut seen = watched.lock();
        seen.status = Some(status);
        seen.id = response.headers().get("x-request-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    }
    let mut body = response.into_body();
    let mut text = BytesMut::new();
    let end = loop {
        match body.frame().await {
            Some(Ok(frame)) => text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
            Some(Err(_)) => break End::Reset,
            None => break End::Whole,
        }
        if asked.stream && status == 200 {
            let end = streamed(&text);
            if end != End::Waiting {
                watched.lock().end = end;
            }
        }
    };
    let mut seen = watched.lock();
    if seen.end == End::Waiting {
        seen.end = if asked.stream && status == 200 { End::Reset } else { end };
    }
    if status != 200 {
        let error: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        seen.code = error.pointer("/error/code").and_then(|code| code.as_str()).map(str::to_owned);
    }
}

fn streamed(text: &[u8]) -> End {
    if text.ends_with(b"data: [DONE]\n\n") {
        End::Whole
    } else if text.windows(9).any(|w| w == b"\"error\":{") {
        End::ErrorEvent
    } else {
        End::Waiting
    }
}
