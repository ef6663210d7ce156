//! A splitter of event streams by bytes: frames come out verbatim as they arrived, read beside the forwarding.
//! Knows LF, CRLF and CR, `data:` with and without a space, comments, several data lines and a byte-order mark.

mod frame;
#[cfg(test)]
mod tests;

use bytes::{Bytes, BytesMut};
use memchr::memchr2;

pub use frame::{Frame, Kind};

/// A frame grew beyond the splitter's limit; the stream can't be followed any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than {limit} bytes")]
pub struct FrameTooLarge {
    /// The limit, in bytes.
    pub limit: usize,
}

/// Splits chunks of a response body into frames. A frame that lies within one chunk isn't copied.
#[derive(Debug)]
pub struct Splitter {
    limit: usize,
    /// The start of an unfinished frame, from earlier chunks.
    tail: BytesMut,
    /// What of the newest chunk isn't looked at yet.
    chunk: Bytes,
    /// Whether the current line has a byte already.
    in_line: bool,
    /// Whether the byte before was a CR, so that an LF belongs to it.
    after_cr: bool,
    /// Whether no frame was given out yet: only then is a byte-order mark one.
    first: bool,
    overflown: bool,
}

impl Splitter {
    /// A splitter that refuses frames over `max_frame_bytes`.
    #[must_use]
    pub fn new(max_frame_bytes: usize) -> Self {
        Self {
            limit: max_frame_bytes,
            tail: BytesMut::new(),
            chunk: Bytes::new(),
            in_line: false,
            after_cr: false,
            first: true,
            overflown: false,
        }
    }

    /// Takes the next chunk. Frames of the chunk before should have been taken out; if not, both are joined.
    pub fn push(&mut self, chunk: &Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk.clone();
        } else {
            let mut joined = BytesMut::with_capacity(self.chunk.len() + chunk.len());
            joined.extend_from_slice(&self.chunk);
            joined.extend_from_slice(chunk);
            self.chunk = joined.freeze();
        }
    }

    /// The next complete frame, or none until more chunks come.
    ///
    /// A frame that ends with CR is given out at once; should the LF of a CRLF follow in the next chunk, it comes as a
    /// [`Kind::Blank`] frame of its own, so that nothing waits and no byte is lost.
    ///
    /// # Errors
    /// [`FrameTooLarge`] once a frame exceeds the limit, and on every call after that.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameTooLarge> {
        if self.overflown {
            return Err(FrameTooLarge { limit: self.limit });
        }
        let end = self.frame_end();
        let taken = end.unwrap_or(self.chunk.len());
        if self.tail.len() + taken > self.limit {
            self.overflown = true;
            return Err(FrameTooLarge { limit: self.limit });
        }
        if end.is_none() {
            self.tail.extend_from_slice(&std::mem::take(&mut self.chunk));
            return Ok(None);
        }
        let raw = if self.tail.is_empty() {
            self.take_from_chunk(taken)
        } else {
            let rest = self.take_from_chunk(taken);
            self.tail.extend_from_slice(&rest);
            self.tail.split().freeze()
        };
        Ok(Some(self.read(raw, true)))
    }

    /// A chunk that is used up is let go, or its empty rest would hold on to the connection's whole buffer.
    fn take_from_chunk(&mut self, length: usize) -> Bytes {
        if length == self.chunk.len() { std::mem::take(&mut self.chunk) } else { self.chunk.split_to(length) }
    }

    /// Bytes that belong to no complete frame so far.
    #[must_use]
    pub fn rest(&self) -> Bytes {
        if self.tail.is_empty() {
            return self.chunk.clone();
        }
        let mut rest = self.tail.clone();
        rest.extend_from_slice(&self.chunk);
        rest.freeze()
    }

    /// The unfinished frame at the end of the stream, read as far as it goes; none if the stream ended between frames.
    /// A server that ends without the last blank line is common: `data: [DONE]` counts even so.
    pub fn finish(&mut self) -> Option<Frame> {
        let raw = self.rest();
        self.tail.clear();
        self.chunk = Bytes::new();
        if raw.is_empty() { None } else { Some(self.read(raw, false)) }
    }

    fn read(&mut self, raw: Bytes, complete: bool) -> Frame {
        let first = std::mem::replace(&mut self.first, false);
        frame::read(raw, first, complete)
    }

    /// Looks for the end of the current frame in the chunk and keeps the line state for the next chunk.
    fn frame_end(&mut self) -> Option<usize> {
        let mut at = 0;
        loop {
            let rest = self.chunk.get(at..).unwrap_or_default();
            let Some(run) = memchr2(b'\n', b'\r', rest) else {
                if !rest.is_empty() {
                    self.in_line = true;
                    self.after_cr = false;
                }
                return None;
            };
            let carriage_return = rest.get(run) == Some(&b'\r');
            at += run + 1;
            if run == 0 && !carriage_return && self.after_cr {
                self.after_cr = false;
                if at == 1 && self.tail.is_empty() {
                    return Some(at);
                }
                continue;
            }
            let blank = run == 0 && !self.in_line;
            self.in_line = false;
            self.after_cr = carriage_return;
            if blank {
                if carriage_return && self.chunk.get(at) == Some(&b'\n') {
                    at += 1;
                    self.after_cr = false;
                }
                return Some(at);
            }
        }
    }
}
