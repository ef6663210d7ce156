//! Reads records back from a segment's file: at boot, and when more waits than is kept in memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use bytes::{Buf as _, Bytes, BytesMut};

use super::directory::SegmentFile;
use super::record::{HEADER_BYTES, Parsed, parse};

const READ_BYTES: usize = 512 * 1024;

/// Reads one segment from its beginning.
#[derive(Debug)]
pub(super) struct SegmentReader {
    file: File,
    /// Where `buffer` begins in the file, and the ordinal of the record that belongs there. What a file held before it was
    /// written over bears earlier ones.
    place: Place,
    buffer: BytesMut,
    /// Whether `buffer` was read at `position`, so that reading again can't show more.
    fresh: bool,
}

/// Where a record stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    position: u64,
    ordinal: u64,
}

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A record, as it stands in the file.
    Record {
        ordinal: u64,
        /// Header and event.
        bytes: Bytes,
    },
    /// No further whole record is there now.
    End {
        /// Whether something else than blank space stands there.
        torn: bool,
    },
}

impl SegmentReader {
    pub(super) fn open(segment: &SegmentFile) -> io::Result<Self> {
        let place = Place { position: 0, ordinal: segment.first };
        Ok(Self { file: File::open(&segment.path)?, place, buffer: BytesMut::new(), fresh: false })
    }

    /// Where the next record would begin.
    pub(super) const fn place(&self) -> Place {
        self.place
    }

    /// Bytes of the records that were read.
    pub(super) const fn position(&self) -> u64 {
        self.place.position
    }

    /// Goes back to where a record began.
    pub(super) fn rewind(&mut self, place: Place) {
        self.place = place;
        self.buffer.clear();
        self.fresh = false;
    }

    /// The next record, if one is there.
    pub(super) fn step(&mut self) -> io::Result<Step> {
        loop {
            let (needed, end) = match parse(&self.buffer) {
                Parsed::Whole(record) if record.ordinal != self.place.ordinal => {
                    (HEADER_BYTES, Step::End { torn: record.ordinal > self.place.ordinal })
                }
                Parsed::Whole(record) => {
                    let (ordinal, size) = (record.ordinal, record.size());
                    self.place.position += u64::try_from(size).unwrap_or(u64::MAX);
                    self.place.ordinal += 1;
                    self.fresh = false;
                    return Ok(Step::Record { ordinal, bytes: self.buffer.split_to(size).freeze() });
                }
                Parsed::Part(needed) => (needed, Step::End { torn: self.buffer.has_remaining() }),
                Parsed::Blank => (HEADER_BYTES, Step::End { torn: false }),
                Parsed::Torn => (HEADER_BYTES, Step::End { torn: true }),
            };
            // What was blank or half when it was read may have been written meanwhile.
            let known = self.fresh && self.buffer.len() >= needed;
            if known || !self.fill(needed.max(READ_BYTES))? {
                self.fresh = false;
                return Ok(end);
            }
        }
    }

    /// Reads anew at the position; false if that brought nothing more than was known.
    fn fill(&mut self, bytes: usize) -> io::Result<bool> {
        let known = if self.fresh { self.buffer.len() } else { 0 };
        self.buffer.clear();
        self.buffer.resize(bytes, 0);
        let mut filled = 0;
        while let Some(rest) = self.buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let offset = self.place.position + u64::try_from(filled).unwrap_or(u64::MAX);
            match self.file.read_at(rest, offset) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.buffer.truncate(filled);
        self.fresh = true;
        Ok(filled > known)
    }
}
