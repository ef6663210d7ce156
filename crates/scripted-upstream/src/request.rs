//! Reads requests from a connection, and sees when the client goes away.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::net::TcpStream;

/// Largest head, in bytes.
const MAX_HEAD: usize = 64 * 1024;
/// Largest body, in bytes: images in base64 fit.
const MAX_BODY: usize = 64 * 1024 * 1024;
/// How much of a client's next request is read while it waits for this one's reply.
const MAX_AHEAD: usize = 64 * 1024;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// With the query.
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
    /// Whether the client wants to go on using the connection.
    pub(crate) keep_alive: bool,
}

/// Why there is no request.
#[derive(Debug)]
pub(crate) enum NoRequest {
    /// The client closed the connection between two requests, or broke it.
    Gone,
    /// What came is no request, or too large; the reason is for the reply.
    Bad(&'static str),
}

impl From<io::Error> for NoRequest {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// What has come and wasn't used yet.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    buffer: BytesMut,
}

impl Inbox {
    /// Reads what is there; an error when the client has gone.
    async fn more(&mut self, stream: &TcpStream) -> io::Result<()> {
        loop {
            stream.readable().await?;
            match stream.try_read_buf(&mut self.buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Ok(()),
                Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => {}
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Ends when the client goes away. What it sends meanwhile is kept for the next request.
    pub(crate) async fn gone(&mut self, stream: &TcpStream) {
        while self.buffer.len() < MAX_AHEAD {
            if self.more(stream).await.is_err() {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Reads the next request whole.
    pub(crate) async fn request(&mut self, stream: &TcpStream) -> Result<Request, NoRequest> {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if self.buffer.len() > MAX_HEAD {
                return Err(NoRequest::Bad("the head is too large"));
            }
            self.more(stream).await?;
        };
        let head = self.buffer.split_to(end);
        let mut request = parse_head(&head).ok_or(NoRequest::Bad("the head is no HTTP request"))?;
        let value = |name: &str| request.headers.iter().find(|(found, _)| found == name).map(|(_, v)| v.clone());
        if value("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
            write_all(stream, b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        request.body = match (value("transfer-encoding"), value("content-length")) {
            (Some(coding), _) if coding.eq_ignore_ascii_case("chunked") => self.chunked(stream).await?,
            (Some(_), _) => return Err(NoRequest::Bad("only chunked transfer is known")),
            (None, Some(length)) => {
                let length = length.trim().parse().map_err(|_| NoRequest::Bad("the content length is no number"))?;
                self.exactly(stream, length).await?
            }
            (None, None) => Bytes::new(),
        };
        Ok(request)
    }

    async fn exactly(&mut self, stream: &TcpStream, length: usize) -> Result<Bytes, NoRequest> {
        if length > MAX_BODY {
            return Err(NoRequest::Bad("the body is too large"));
        }
        while self.buffer.len() < length {
            self.more(stream).await?;
        }
        Ok(self.buffer.split_to(length).freeze())
    }

    async fn line(&mut self, stream: &TcpStream) -> Result<Bytes, NoRequest> {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                let line = self.buffer.split_to(at).freeze();
                self.buffer.advance(2);
                return Ok(line);
            }
            if self.buffer.len() > MAX_HEAD {
                return Err(NoRequest::Bad("a chunk's size line is too long"));
            }
            self.more(stream).await?;
        }
    }

    async fn chunked(&mut self, stream: &TcpStream) -> Result<Bytes, NoRequest> {
        let mut body = BytesMut::new();
        loop {
            let line = self.line(stream).await?;
            let digits = String::from_utf8_lossy(&line);
            let digits = digits.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(digits, 16).map_err(|_| NoRequest::Bad("a chunk's size is no number"))?;
            if size == 0 {
                // Trailers, then a blank line.
                while !self.line(stream).await?.is_empty() {}
                return Ok(body.freeze());
            }
            if body.len().saturating_add(size) > MAX_BODY {
                return Err(NoRequest::Bad("the body is too large"));
            }
            body.extend_from_slice(&self.exactly(stream, size).await?);
            self.line(stream).await?;
        }
    }
}

fn parse_head(head: &[u8]) -> Option<Request> {
    let text = std::str::from_utf8(head).ok()?;
    let mut lines = text.trim_end().split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, path, version) = (first.next()?, first.next()?, first.next()?);
    if first.next().is_some() || !version.starts_with("HTTP/1.") {
        return None;
    }
    let headers: Option<Vec<(String, String)>> = lines
        .map(|line| line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())))
        .collect();
    let headers = headers?;
    let connection = headers.iter().find(|(name, _)| name == "connection").map_or("", |(_, value)| value);
    let keep_alive = if version == "HTTP/1.1" {
        !connection.eq_ignore_ascii_case("close")
    } else {
        connection.eq_ignore_ascii_case("keep-alive")
    };
    Some(Request { method: method.into(), path: path.into(), headers, body: Bytes::new(), keep_alive })
}

/// Writes all of `bytes`; the stream is shared with whoever watches for the client's going.
pub(crate) async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}
