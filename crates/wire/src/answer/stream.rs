//! Follows a whole recorded stream of any protocol.

use bytes::Bytes;
use serde_json::Value;

use super::event::{GEMINI_FAILED, Says, read};
use crate::chat::{StreamEnd, StreamWatch};
use crate::error::ErrorFacts;
use crate::sse::{FrameTooLarge, Kind, Splitter};

/// Largest event of a recorded stream, in bytes.
const MAX_FRAME: usize = 1 << 20;
/// Protocols whose streams aren't chat chunks, by a part of their names.
const OTHERS: [&str; 9] = [
    "anthropic",
    "responses",
    "gemini-generate",
    "vertex-generate",
    "bedrock",
    "ollama-native",
    "cohere",
    "dashscope-native",
    "qianfan-v1",
];

/// What a stream amounts to.
#[derive(Debug, PartialEq, Eq)]
pub struct AnyStream {
    /// How it ended.
    pub end: StreamEnd,
    /// Whether the model had said something.
    pub committed: bool,
    /// Why a complete answer ended.
    pub finish: Option<String>,
    /// The error that it carried.
    pub error: Option<ErrorFacts>,
}

/// Reads a recorded stream: chat as the data plane follows it, other protocols by their own events.
///
/// # Errors
/// [`FrameTooLarge`].
pub fn read_stream(protocol: &str, body: &[u8]) -> Result<AnyStream, FrameTooLarge> {
    if OTHERS.iter().any(|other| protocol.contains(other)) { others(body) } else { chat(body) }
}

fn chat(body: &[u8]) -> Result<AnyStream, FrameTooLarge> {
    let mut splitter = Splitter::new(MAX_FRAME);
    splitter.push(&Bytes::copy_from_slice(body));
    let mut watch = StreamWatch::new();
    while let Some(frame) = splitter.next_frame()? {
        watch.take(&frame);
    }
    if let Some(last) = splitter.finish() {
        watch.take(&last);
    }
    Ok(AnyStream {
        end: watch.end(),
        committed: watch.committed(),
        finish: watch.finish_reason().map(str::to_owned),
        error: watch.error().cloned(),
    })
}

fn others(body: &[u8]) -> Result<AnyStream, FrameTooLarge> {
    let mut seen = Seen::default();
    // Frames of a binary stream are recorded decoded, as a list; Ollama sends a line of JSON for each piece.
    if let Ok(Value::Array(frames)) = serde_json::from_slice::<Value>(body) {
        frames.into_iter().for_each(|frame| seen.take(read(None, frame)));
        return Ok(seen.amount());
    }
    let lines = || body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    if lines().all(|line| line.starts_with(b"{")) {
        lines().for_each(|line| seen.event(None, line));
        return Ok(seen.amount());
    }
    let mut splitter = Splitter::new(MAX_FRAME);
    splitter.push(&Bytes::copy_from_slice(body));
    while let Some(frame) = splitter.next_frame()? {
        if frame.kind == Kind::Event {
            seen.event(frame.event(), frame.data());
        }
    }
    if let Some(last) = splitter.finish().filter(|last| last.kind == Kind::Event) {
        seen.event(last.event(), last.data());
    }
    Ok(seen.amount())
}

#[derive(Default)]
struct Seen {
    committed: bool,
    ended: bool,
    broken: bool,
    finish: Option<String>,
    error: Option<ErrorFacts>,
}

impl Seen {
    fn event(&mut self, name: Option<&str>, data: &[u8]) {
        let data = data.trim_ascii();
        if data.is_empty() {
            return;
        }
        if data == b"[DONE]" {
            self.ended = true;
            return;
        }
        match serde_json::from_slice(data) {
            Ok(tree) => self.take(read(name, tree)),
            Err(_) => self.broken = true,
        }
    }

    fn take(&mut self, says: Says) {
        match says {
            Says::Silent => {}
            Says::Content => self.committed = true,
            Says::End(why) => self.over(why),
            Says::Last(why) => {
                self.committed = true;
                self.over(why);
            }
            // What follows an error is none of its business.
            Says::Error(facts) => {
                self.error.get_or_insert(*facts);
            }
        }
    }

    fn over(&mut self, why: Option<String>) {
        self.ended = true;
        self.finish = self.finish.take().or(why);
    }

    fn amount(self) -> AnyStream {
        let reason = self.finish.as_deref();
        let silent = reason.is_some_and(|why| {
            !["stop", "end_turn", "complete", "completed"].iter().any(|usual| usual.eq_ignore_ascii_case(why))
                && !GEMINI_FAILED.contains(&why)
        });
        let end = match () {
            () if self.error.is_some() => StreamEnd::Failed,
            () if self.ended && (self.committed || silent) => StreamEnd::Complete,
            () if self.ended => StreamEnd::Empty,
            () if self.broken => StreamEnd::Failed,
            () => StreamEnd::Cut,
        };
        AnyStream { end, committed: self.committed, finish: self.finish, error: self.error }
    }
}
