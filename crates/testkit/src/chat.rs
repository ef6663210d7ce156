//! A client of the proxies that takes whole answers. Where single bytes and their timing matter, see `raw`.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::HeaderMap;
use serde_json::{Map, Value, json};

/// A chat request to be sent.
#[derive(Debug, Clone)]
pub struct Chat {
    url: String,
    key: String,
    headers: Vec<(String, String)>,
    body: Map<String, Value>,
    http: reqwest::Client,
}

impl Chat {
    /// A request of `key` for `model`, to the proxy at `base` (without `/v1`).
    #[must_use]
    pub fn new(http: &reqwest::Client, base: &str, key: &str, model: &str) -> Self {
        let mut body = Map::new();
        body.insert("model".to_owned(), model.into());
        body.insert("messages".to_owned(), json!([{"role": "user", "content": "Say something."}]));
        let url = format!("{base}/v1/chat/completions");
        Self { url, key: key.to_owned(), headers: Vec::new(), body, http: http.clone() }
    }

    /// Wants a stream.
    #[must_use]
    pub fn streamed(self) -> Self {
        self.with("stream", true)
    }

    /// Sets a field of the body.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.body.insert(field.to_owned(), value.into());
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends it to another proxy.
    #[must_use]
    pub fn to(mut self, base: &str) -> Self {
        self.url = format!("{base}/v1/chat/completions");
        self
    }

    /// Sends it and reads the whole answer, if one comes.
    ///
    /// # Errors
    /// What went wrong on the way.
    pub async fn try_send(&self) -> Result<Answer, reqwest::Error> {
        let mut request = self.http.post(&self.url).bearer_auth(&self.key).json(&self.body);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let answer = request.timeout(Duration::from_secs(60)).send().await?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        Ok(Answer { status, headers, body: answer.bytes().await? })
    }

    /// Sends it and reads the whole answer.
    ///
    /// # Panics
    /// When none comes.
    pub async fn send(&self) -> Answer {
        match self.try_send().await {
            Ok(answer) => answer,
            Err(error) => panic!("{}: {error:?}", self.url),
        }
    }

    /// Sends it; the answer must be a success.
    ///
    /// # Panics
    /// When it isn't one, or a stream with an error in it.
    pub async fn served(&self) -> Answer {
        let answer = self.send().await;
        let text = answer.text();
        if answer.status != 200 || text.starts_with("{\"error\"") || text.contains("data: {\"error\"") {
            panic!("{} answered {}: {text}\n{:?}", self.url, answer.status, answer.headers);
        }
        answer
    }
}

/// A whole answer of a proxy.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

impl Answer {
    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; null when it isn't.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// A header as text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The gateway's id of the request.
    ///
    /// # Panics
    /// When the answer carries none.
    #[must_use]
    pub fn request(&self) -> &str {
        match self.header("x-request-id") {
            Some(id) => id,
            None => panic!("no x-request-id on {} {}: {:?}", self.status, self.text(), self.headers),
        }
    }

    /// The public error code, where it is an error.
    #[must_use]
    pub fn code(&self) -> Option<String> {
        Some(self.json().pointer("/error/code")?.as_str()?.to_owned())
    }

    /// The data of the events of a stream.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        sse_data(&self.body)
    }

    /// What the assistant said: of a whole answer or of a stream.
    #[must_use]
    pub fn said(&self) -> String {
        let whole = self.json();
        if let Some(text) = whole.pointer("/choices/0/message/content").and_then(Value::as_str) {
            return text.to_owned();
        }
        let chunks = self.events();
        let texts = chunks.iter().filter_map(|data| {
            let chunk: Value = serde_json::from_str(data).ok()?;
            Some(chunk.pointer("/choices/0/delta/content")?.as_str()?.to_owned())
        });
        texts.collect()
    }
}

/// The data of the events of an event stream whose lines end in LF or CRLF.
#[must_use]
pub fn sse_data(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n");
    let data = text.split("\n\n").filter_map(|event| {
        let lines: Vec<&str> = event.lines().filter_map(|line| line.strip_prefix("data:")).collect();
        let lines: Vec<&str> = lines.into_iter().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    });
    data.collect()
}
