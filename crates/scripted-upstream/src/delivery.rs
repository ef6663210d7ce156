//! Turns a reply into what is written, piece by piece, and where it goes wrong.

use std::fmt::Write as _;
use std::io::Write as _;

use bytes::{Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::answer::Payload;
use crate::script::{After, Chunking, Framing, Reply, Then};

/// One thing to do after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Wait this many milliseconds.
    Wait(u64),
    /// Write these bytes; `body` of them are the body's.
    Write {
        /// As they go over the wire.
        bytes: Bytes,
        /// Bytes of the body among them.
        body: usize,
        /// Whether this is the head of the reply.
        head: bool,
    },
    /// Close in good order.
    Cut,
    /// Reset the connection.
    Reset,
    /// Wait until the client goes away.
    Hang,
}

/// Everything to do for one reply, in order.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    /// Whether the connection can be used again when all steps were done.
    pub(crate) reusable: bool,
}

/// Plans `reply` with its rendered body. `call` is the id that the reply's own headers name.
pub(crate) fn plan(reply: &Reply, payload: Payload, call: &str, keep_alive: bool) -> Plan {
    let framing = reply.framing.unwrap_or(payload.framing);
    let close = reply.close || framing == Framing::Close || !keep_alive;
    let mut steps = Vec::new();
    if reply.delay_head_ms > 0 {
        steps.push(Step::Wait(reply.delay_head_ms));
    }
    if let Some(fault) = reply.fault.filter(|fault| fault.after == After::Request) {
        steps.push(fault_step(fault.then));
    }
    let frames = if reply.gzip { compressed(&payload.frames) } else { payload.frames };
    let pieces = drip(reply, chunked(reply.chunking, &frames));
    let length = pieces.iter().map(Bytes::len).sum();
    if !payload.wire {
        if reply.early_hints {
            let hints = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n";
            steps.push(Step::Write { bytes: hints.into(), body: 0, head: false });
        }
        let head = head(reply, payload.content_type.as_deref(), framing, length, call, close);
        steps.push(Step::Write { bytes: head.into(), body: 0, head: true });
    }
    let body_allowed = !matches!(reply.status, 100..=199 | 204 | 304);
    if body_allowed || payload.wire {
        body(reply, &pieces, if payload.wire { Framing::Close } else { framing }, &mut steps);
    }
    Plan { steps, reusable: !close && !payload.wire }
}

fn head(reply: &Reply, content_type: Option<&str>, framing: Framing, length: usize, call: &str, close: bool) -> String {
    let mut head = format!("HTTP/1.1 {} {}\r\n", reply.status, reason(reply.status));
    let mut line = |name: &str, value: &str| {
        // Writing to a String can't fail. A header of the script replaces ours.
        if !reply.headers.iter().any(|(found, _)| found.eq_ignore_ascii_case(name)) {
            let _infallible = write!(head, "{name}: {value}\r\n");
        }
    };
    if let Some(content_type) = content_type {
        line("content-type", content_type);
    }
    line("x-request-id", &format!("req-{call}"));
    line("openai-processing-ms", "1");
    if reply.gzip {
        line("content-encoding", "gzip");
    }
    match framing {
        Framing::Length if !matches!(reply.status, 100..=199 | 204) => line("content-length", &length.to_string()),
        Framing::Chunked => line("transfer-encoding", "chunked"),
        Framing::Length | Framing::Close => {}
    }
    if close {
        line("connection", "close");
    }
    for (name, value) in &reply.headers {
        let _infallible = write!(head, "{name}: {value}\r\n");
    }
    head.push_str("\r\n");
    head
}

fn body(reply: &Reply, pieces: &[Bytes], framing: Framing, steps: &mut Vec<Step>) {
    let mut sent = 0;
    let mut fault = reply.fault;
    for (index, piece) in pieces.iter().enumerate() {
        let pause = reply.drip.map_or(reply.delay_per_chunk_ms, |drip| drip.every_ms);
        // A piece of no bytes would be the end of a chunked body.
        if piece.is_empty() {
            continue;
        }
        if index > 0 && pause > 0 {
            steps.push(Step::Wait(pause));
        }
        let wire = framed(piece, framing);
        let body = piece.len();
        match fault.and_then(|fault| Some((fault, cut_at(fault.after, index, sent, body)?))) {
            None => steps.push(Step::Write { bytes: wire, body, head: false }),
            Some((now, at)) => {
                fault = None;
                // The chunk's size line, if any, promises the whole piece.
                let before = if at == 0 { 0 } else { wire_prefix(piece, framing) + at };
                if at > 0 {
                    steps.push(Step::Write { bytes: wire.slice(..before), body: at, head: false });
                }
                steps.push(fault_step(now.then));
                steps.push(Step::Write { bytes: wire.slice(before..), body: body - at, head: false });
            }
        }
        sent += body;
    }
    // A place past the end is the end.
    if let Some(fault) = fault.filter(|fault| fault.after != After::Request) {
        steps.push(fault_step(fault.then));
    }
    if framing == Framing::Chunked {
        steps.push(Step::Write { bytes: Bytes::from_static(b"0\r\n\r\n"), body: 0, head: false });
    }
}

/// At which byte of the piece the fault is; `None` when it isn't in it.
fn cut_at(after: After, index: usize, sent: usize, length: usize) -> Option<usize> {
    match after {
        After::Request => None,
        After::Frames(frames) => (index == frames).then_some(0),
        After::Bytes(bytes) => bytes.checked_sub(sent).filter(|at| *at < length),
    }
}

fn fault_step(then: Then) -> Step {
    match then {
        Then::Cut => Step::Cut,
        Then::Reset => Step::Reset,
        Then::Stall { ms } => Step::Wait(ms),
        Then::Hang => Step::Hang,
    }
}

fn framed(piece: &Bytes, framing: Framing) -> Bytes {
    match framing {
        Framing::Chunked => {
            let mut chunk = BytesMut::with_capacity(piece.len() + 16);
            chunk.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            chunk.extend_from_slice(piece);
            chunk.extend_from_slice(b"\r\n");
            chunk.freeze()
        }
        Framing::Length | Framing::Close => piece.clone(),
    }
}

/// Bytes of the framing before the piece's own.
fn wire_prefix(piece: &Bytes, framing: Framing) -> usize {
    match framing {
        Framing::Chunked => format!("{:x}\r\n", piece.len()).len(),
        Framing::Length | Framing::Close => 0,
    }
}

fn chunked(chunking: Chunking, frames: &[Bytes]) -> Vec<Bytes> {
    let whole = || Bytes::from(frames.concat());
    match chunking {
        Chunking::Frames => frames.to_vec(),
        Chunking::Whole => vec![whole()],
        Chunking::Bytes(size) => in_pieces(&whole(), size),
        Chunking::SplitUtf8 => {
            let whole = whole();
            // The second byte of a character that takes several follows a byte of the form 11xxxxxx.
            let cuts = whole.iter().enumerate().filter(|(_, byte)| **byte >= 0xC0).map(|(at, _)| at + 1);
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts.chain([whole.len()]) {
                pieces.push(whole.slice(from.min(whole.len())..cut.min(whole.len())));
                from = cut;
            }
            pieces
        }
    }
}

fn drip(reply: &Reply, pieces: Vec<Bytes>) -> Vec<Bytes> {
    match reply.drip {
        Some(drip) => pieces.iter().flat_map(|piece| in_pieces(piece, drip.bytes)).collect(),
        None => pieces,
    }
}

fn in_pieces(bytes: &Bytes, size: usize) -> Vec<Bytes> {
    bytes.chunks(size.max(1)).map(|chunk| bytes.slice_ref(chunk)).collect()
}

/// One gzip member over all frames, flushed after each, so that a stream stays a stream.
fn compressed(frames: &[Bytes]) -> Vec<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let mut out: Vec<Bytes> = Vec::with_capacity(frames.len() + 1);
    for frame in frames {
        // Writing to a Vec can't fail.
        let _infallible = encoder.write_all(frame).and_then(|()| encoder.flush());
        out.push(std::mem::take(encoder.get_mut()).into());
    }
    out.push(encoder.finish().unwrap_or_default().into());
    out
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        408 => "Request Timeout",
        413 => "Payload Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Scripted",
    }
}

#[cfg(test)]
mod tests;
