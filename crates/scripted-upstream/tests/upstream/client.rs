//! A client without any leniency: it sees bytes, pauses and ends as they are.

use std::io;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use waybill_scripted_upstream::{Call, Reply, Script, ScriptedUpstream};

const DEADLINE: Duration = Duration::from_secs(10);

/// How a connection ended for the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    Closed,
    Reset,
}

/// What came over a connection until its end.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) bytes: Vec<u8>,
    /// Bytes of each read, with its time.
    pub(super) reads: Vec<(Vec<u8>, Instant)>,
    pub(super) end: End,
}

impl Seen {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    pub(super) fn head(&self) -> String {
        self.text().split("\r\n\r\n").next().unwrap().to_owned()
    }

    /// What follows the (last) head, as it came.
    pub(super) fn raw_body(&self) -> Vec<u8> {
        let at = self.bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        self.bytes[at + 4..].to_vec()
    }

    /// The chunks of a chunked body, and whether the closing one came.
    pub(super) fn chunks(&self) -> (Vec<Vec<u8>>, bool) {
        let mut rest = self.raw_body();
        let mut chunks = Vec::new();
        loop {
            let Some(at) = rest.windows(2).position(|two| two == b"\r\n") else { return (chunks, false) };
            let size = usize::from_str_radix(std::str::from_utf8(&rest[..at]).unwrap(), 16).unwrap();
            if size == 0 {
                return (chunks, true);
            }
            let data = rest[at + 2..].to_vec();
            if data.len() < size + 2 {
                chunks.push(data);
                return (chunks, false);
            }
            chunks.push(data[..size].to_vec());
            rest = data[size + 2..].to_vec();
        }
    }
}

pub(super) fn chat_request(path: &str, stream: bool, close: bool) -> String {
    let body = format!(
        r#"{{"model":"m1","stream":{stream},"stream_options":{{"include_usage":true}},"messages":[{{"role":"user","content":"hi"}}]}}"#
    );
    let connection = if close { "close" } else { "keep-alive" };
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer k\r\nconnection: {connection}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub(super) async fn connect(url: &str) -> (TcpStream, String) {
    let rest = url.strip_prefix("http://").unwrap();
    let (address, path) = rest.split_once('/').unwrap();
    (TcpStream::connect(address).await.unwrap(), format!("/{path}/chat/completions"))
}

/// Reads until the connection ends.
pub(super) async fn read_all(stream: &mut TcpStream) -> Seen {
    let mut seen = Seen { bytes: Vec::new(), reads: Vec::new(), end: End::Closed };
    let read = async {
        loop {
            let mut buffer = vec![0; 65536];
            match stream.read(&mut buffer).await {
                Ok(0) => return,
                Ok(n) => {
                    seen.bytes.extend_from_slice(&buffer[..n]);
                    seen.reads.push((buffer[..n].to_vec(), Instant::now()));
                }
                Err(fault) if fault.kind() == io::ErrorKind::ConnectionReset => {
                    seen.end = End::Reset;
                    return;
                }
                Err(fault) => panic!("{fault}"),
            }
        }
    };
    tokio::time::timeout(DEADLINE, read).await.expect("the connection ends in time");
    seen
}

/// One call on a connection of its own; the server closes it afterwards.
pub(super) async fn call(upstream: &ScriptedUpstream, source: &str, stream: bool) -> Seen {
    let (mut connection, path) = connect(&upstream.base_url(source)).await;
    connection.write_all(chat_request(&path, stream, true).as_bytes()).await.unwrap();
    read_all(&mut connection).await
}

/// What a client sees of one reply, and what the log says of it.
pub(super) async fn one(reply: Reply, stream: bool) -> (Seen, Call) {
    let upstream = ScriptedUpstream::start(Script::new().always("a", reply)).await.unwrap();
    let seen = call(&upstream, "a", stream).await;
    let call = ended(&upstream, "a").await;
    upstream.stop().await;
    (seen, call)
}

/// The last call of a source, once it has ended.
pub(super) async fn ended(upstream: &ScriptedUpstream, source: &str) -> Call {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(call) = upstream.calls_of(source).pop().filter(|call| call.ended.is_some()) {
            return call;
        }
        assert!(Instant::now() < end, "the call has no end");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
