//! One frame of an event stream: its bytes as they came, and what they say.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use memchr::memchr2;
use smallvec::SmallVec;

use crate::json::BOM;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only line ends.
    Blank,
    /// Comments, or fields without any data: nothing that a reader would dispatch.
    KeepAlive,
    /// An event with data.
    Event,
}

/// One frame, verbatim and read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The bytes as they arrived, the blank line at the end included.
    pub raw: Bytes,
    /// What it is.
    pub kind: Kind,
    /// Whether the blank line at its end was there.
    pub complete: bool,
    event: Option<Range<usize>>,
    data: Data,
}

/// Where the data of a frame is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Data {
    /// One line, within the frame's bytes.
    Within(Range<usize>),
    /// Several lines, joined.
    Joined(Bytes),
}

impl Frame {
    /// The event's name, if one was given and it is UTF-8.
    #[must_use]
    pub fn event(&self) -> Option<&str> {
        std::str::from_utf8(self.raw.get(self.event.clone()?)?).ok()
    }

    /// The event's data, several lines joined with LF; empty if there is none. Not checked to be UTF-8.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        match &self.data {
            Data::Within(line) => self.raw.get(line.clone()).unwrap_or_default(),
            Data::Joined(lines) => lines,
        }
    }

    /// The frame's bytes with the blank line that an incomplete one lacks.
    #[must_use]
    pub fn terminated(&self) -> Bytes {
        if self.complete {
            return self.raw.clone();
        }
        let missing: &[u8] = match self.raw.last() {
            Some(b'\n' | b'\r') => b"\n",
            Some(_) | None => b"\n\n",
        };
        let mut out = BytesMut::with_capacity(self.raw.len() + missing.len());
        out.put_slice(&self.raw);
        out.put_slice(missing);
        out.freeze()
    }
}

/// Reads the lines of a frame. `first` says whether a byte-order mark may stand before them.
pub(super) fn read(raw: Bytes, first: bool, complete: bool) -> Frame {
    let mut at = if first && raw.starts_with(BOM) { BOM.len() } else { 0 };
    let mut kind = Kind::Blank;
    let mut event = None;
    let mut data: SmallVec<[Range<usize>; 4]> = SmallVec::new();
    while let Some(rest) = raw.get(at..).filter(|rest| !rest.is_empty()) {
        let length = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        let line = rest.get(..length).unwrap_or_default();
        if !line.is_empty() && kind == Kind::Blank {
            kind = Kind::KeepAlive;
        }
        if let Some(value) = field(line, b"data") {
            kind = Kind::Event;
            data.push(at + length - value..at + length);
        } else if let Some(value) = field(line, b"event") {
            event = Some(at + length - value..at + length);
        }
        at += length + 1;
    }
    let data = join(&raw, &data);
    Frame { raw, kind, complete, event, data }
}

/// Length of the value of the field `name` in `line`; none if the line is another field or a comment.
fn field(line: &[u8], name: &[u8]) -> Option<usize> {
    match line.strip_prefix(name)? {
        [] => Some(0),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value.len()),
        _ => None,
    }
}

fn join(raw: &Bytes, lines: &[Range<usize>]) -> Data {
    match lines {
        [] => Data::Within(0..0),
        [line] => Data::Within(line.clone()),
        [first, others @ ..] => {
            let mut joined = BytesMut::with_capacity(raw.len());
            joined.put_slice(raw.get(first.clone()).unwrap_or_default());
            for line in others {
                joined.put_u8(b'\n');
                joined.put_slice(raw.get(line.clone()).unwrap_or_default());
            }
            Data::Joined(joined.freeze())
        }
    }
}
