//! HTTP/1.1 over a bare connection, to see and to break what a library would hide: single chunks, their timing, resets.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// How long a read may take.
const READ_DEADLINE: Duration = Duration::from_secs(20);

/// A connection to a proxy.
#[derive(Debug)]
pub struct RawClient {
    stream: TcpStream,
    host: String,
    read: Vec<u8>,
}

/// An answer, with its body as it was cut.
#[derive(Debug, Clone, Default)]
pub struct RawReply {
    /// HTTP status.
    pub status: u16,
    /// Headers in their order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The chunks of the body, or the whole body as one.
    pub chunks: Vec<Vec<u8>>,
    /// Whether the body ended as its framing says.
    pub complete: bool,
}

impl RawReply {
    /// The body.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        self.chunks.concat()
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body()).into_owned()
    }

    /// A header; `name` in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

impl RawClient {
    /// Connects to a base URL such as `http://127.0.0.1:4000`.
    ///
    /// # Panics
    /// When nobody takes the connection.
    pub async fn connect(base: &str) -> Self {
        let host = base.trim_start_matches("http://").split('/').next().unwrap_or_default().to_owned();
        match TcpStream::connect(&host).await {
            Ok(stream) => {
                let _slower_without = stream.set_nodelay(true);
                Self { stream, host, read: Vec::new() }
            }
            Err(error) => panic!("can't connect to {host}: {error}"),
        }
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Sends a request with a body of known length. `headers` are lines without their ends.
    ///
    /// # Panics
    /// When the connection is broken.
    pub async fn request(&mut self, method: &str, path: &str, headers: &[&str], body: &[u8]) {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.host);
        for line in headers {
            head.push_str(line);
            head.push_str("\r\n");
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        let sent = async {
            self.send(head.as_bytes()).await?;
            self.send(body).await
        };
        if let Err(error) = sent.await {
            panic!("can't send to {}: {error}", self.host);
        }
    }

    /// Sends a chat request with `body`.
    ///
    /// # Panics
    /// When the connection is broken.
    pub async fn chat(&mut self, key: &str, body: &[u8]) {
        let bearer = format!("authorization: Bearer {key}");
        self.request("POST", "/v1/chat/completions", &[&bearer, "content-type: application/json"], body).await;
    }

    /// Reads until what was read holds `wanted`, and returns all of it; nothing is taken.
    ///
    /// # Panics
    /// When it doesn't come.
    pub async fn see(&mut self, wanted: &str) -> String {
        let end = Instant::now() + READ_DEADLINE;
        loop {
            let text = String::from_utf8_lossy(&self.read).into_owned();
            if text.contains(wanted) {
                return text;
            }
            if !self.more(end).await {
                panic!("the connection ended without {wanted:?}: {text}");
            }
        }
    }

    /// Reads one answer, head and body.
    ///
    /// # Panics
    /// When the connection breaks before the head is whole, or nothing comes.
    pub async fn reply(&mut self) -> RawReply {
        let end = Instant::now() + READ_DEADLINE;
        let head = match self.take_through(b"\r\n\r\n", end).await {
            Some(head) => String::from_utf8_lossy(&head).into_owned(),
            None => panic!("no answer, only {:?}", String::from_utf8_lossy(&self.read)),
        };
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or_default();
        let headers = lines.filter_map(|line| line.split_once(':'));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
        let mut reply = RawReply { status, headers, ..RawReply::default() };
        if reply.header("transfer-encoding") == Some("chunked") {
            self.chunks(&mut reply, end).await;
        } else {
            let length = reply.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
            let body = self.take(length, end).await;
            reply.complete = body.is_some();
            reply.chunks.extend(body.filter(|body| !body.is_empty()));
        }
        reply
    }

    async fn chunks(&mut self, reply: &mut RawReply, end: Instant) {
        loop {
            let Some(line) = self.take_through(b"\r\n", end).await else { return };
            let text = String::from_utf8_lossy(&line);
            let size = usize::from_str_radix(text.trim().split(';').next().unwrap_or_default(), 16);
            let Ok(size) = size else { panic!("{text:?} is no chunk size") };
            let Some(mut chunk) = self.take(size + 2, end).await else { return };
            chunk.truncate(size);
            if size == 0 {
                reply.complete = true;
                return;
            }
            reply.chunks.push(chunk);
        }
    }

    /// Takes everything up to and with `mark`; `None` where the connection ends before.
    async fn take_through(&mut self, mark: &[u8], end: Instant) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.read.windows(mark.len()).position(|window| window == mark) {
                return Some(self.read.drain(..at + mark.len()).collect());
            }
            if !self.more(end).await {
                return None;
            }
        }
    }

    async fn take(&mut self, length: usize, end: Instant) -> Option<Vec<u8>> {
        while self.read.len() < length {
            if !self.more(end).await {
                return None;
            }
        }
        Some(self.read.drain(..length).collect())
    }

    /// Reads some more; `false` at the end of the connection.
    async fn more(&mut self, end: Instant) -> bool {
        match timeout_at(end, self.stream.read_buf(&mut self.read)).await {
            Ok(Ok(count)) => count > 0,
            Ok(Err(_reset)) => false,
            Err(_) => panic!("nothing came within {READ_DEADLINE:?}, only {:?}", String::from_utf8_lossy(&self.read)),
        }
    }

    /// Closes the connection for good, read and write.
    pub fn leave(self) {
        drop(self);
    }
}
