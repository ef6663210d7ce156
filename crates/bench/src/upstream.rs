//! The upstream of all that is compared: as little as can answer like a model's API.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::MissedTickBehavior;

use crate::load::head_end;
use crate::peers::Peers;
use crate::request::HELD_MODEL;

/// Chunks of a stream, the last one with its end included.
pub(crate) const CHUNKS: usize = 200;
/// Pause between two chunks of a stream, so that each arrives alone.
const PAUSE: Duration = Duration::from_millis(4);
/// How much of a body is looked at for what is wanted.
const LOOK: usize = 200;

const ANSWER: &str = concat!(
    r#"{"id":"chatcmpl-bench","object":"chat.completion","created":1790812800,"model":"bench-chat","choices":["#,
    r#"{"index":0,"message":{"role":"assistant","content":"The log remembers what was decided, why, and by whom; "#,
    r#"whoever asks later can read it there instead of guessing. That is all there is to say about it today.","#,
    r#""refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":214,"#,
    r#""completion_tokens":42,"total_tokens":256,"prompt_tokens_details":{"cached_tokens":128,"audio_tokens":0},"#,
    r#""completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0}},"service_tier":"default","#,
    r#""system_fingerprint":"fp_bench"}"#
);
const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nx-request-id: \
                           req_bench\r\nopenai-processing-ms: 3\r\ntransfer-encoding: chunked\r\n\r\n";
const CHUNK: &str = concat!(
    r#"data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1790812800,"model":"bench-chat","#,
    r#""service_tier":"default","system_fingerprint":"fp_bench","choices":[{"index":0,"delta":{"content":" words"},"#,
    r#""logprobs":null,"finish_reason":null}],"obfuscation":"a1b2c3"}"#,
    "\n\n"
);
const LAST: &str = concat!(
    r#"data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1790812800,"model":"bench-chat","#,
    r#""service_tier":"default","system_fingerprint":"fp_bench","choices":[{"index":0,"delta":{},"logprobs":null,"#,
    r#""finish_reason":"stop"}],"obfuscation":"a1"}"#,
    "\n\ndata: [DONE]\n\n"
);

/// A place for it: this port, or any (0).
///
/// # Errors
/// It is taken.
pub(crate) fn bind(port: u16) -> Result<(std::net::TcpListener, SocketAddr)> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", port)).context("the upstream's port")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Starts it, prints its address, and lets it run until this process is killed.
///
/// # Errors
/// No port, no thread.
pub(crate) async fn run() -> Result<()> {
    println!("{}", Peers::start(0)?.upstream);
    std::future::pending().await
}

/// Serves until accepting fails.
///
/// # Errors
/// What `accept` says.
pub(crate) async fn serve(listener: std::net::TcpListener) -> Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let connections = tokio_util::task::TaskTracker::new();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        connections.spawn(async move {
            // A peer that leaves is what ends most connections.
            let _ended = connection(stream).await;
        });
    }
}

enum Wanted {
    Whole,
    Stream,
    Held,
}

async fn connection(mut stream: TcpStream) -> Result<()> {
    let chunk = http_chunk(CHUNK);
    let last = http_chunk(LAST) + "0\r\n\r\n";
    let whole = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: req_bench\r\nopenai-processing-ms: \
         3\r\ncontent-length: {}\r\n\r\n{ANSWER}",
        ANSWER.len()
    );
    let mut buffer = BytesMut::with_capacity(128 * 1024);
    while let Some(wanted) = read(&mut stream, &mut buffer).await? {
        match wanted {
            Wanted::Whole => stream.write_all(whole.as_bytes()).await?,
            Wanted::Stream => {
                stream.write_all(STREAM_HEAD.as_bytes()).await?;
                let mut ticks = tokio::time::interval(PAUSE);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                for _ in 1..CHUNKS {
                    ticks.tick().await;
                    stream.write_all(chunk.as_bytes()).await?;
                }
                ticks.tick().await;
                stream.write_all(last.as_bytes()).await?;
            }
            Wanted::Held => {
                stream.write_all(format!("{STREAM_HEAD}{chunk}").as_bytes()).await?;
                // Nothing more is said; what comes is the client's end.
                let _gone = stream.read_buf(&mut buffer).await?;
                return Ok(());
            }
        }
    }
    Ok(())
}

fn http_chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// Reads one request and says what it wants; nothing at the connection's end.
async fn read(stream: &mut TcpStream, buffer: &mut BytesMut) -> Result<Option<Wanted>> {
    let head = loop {
        if let Some(end) = head_end(buffer) {
            break end;
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let length = content_length(buffer.get(..head).unwrap_or_default()).unwrap_or(0);
    while buffer.len() < head + length {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let body = buffer.get(head..head + length.min(LOOK)).unwrap_or_default();
    let has = |word: &str| memchr::memmem::find(body, word.as_bytes()).is_some();
    let wanted = match (has(HELD_MODEL), has(r#""stream":true"#)) {
        (true, _) => Wanted::Held,
        (false, true) => Wanted::Stream,
        (false, false) => Wanted::Whole,
    };
    buffer.advance(head + length);
    Ok(Some(wanted))
}

/// The value of `content-length` in a head.
pub(crate) fn content_length(head: &[u8]) -> Option<usize> {
    head.split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked("content-length:".len())?;
        let value = name.eq_ignore_ascii_case(b"content-length:").then_some(value)?;
        std::str::from_utf8(value.trim_ascii()).ok()?.parse().ok()
    })
}
