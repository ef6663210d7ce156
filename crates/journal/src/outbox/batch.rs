//! A batch: the events that go to the log as one message.

use bytes::{BufMut as _, Bytes, BytesMut};
use waybill_event::{Boot, ProducerId};

use super::record::{Record, own_records, records};

/// How large a batch may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Events in it.
    pub events: usize,
    /// Bytes of its events; a single larger event goes alone.
    pub bytes: usize,
    /// How long its first event waits for others.
    pub linger: std::time::Duration,
    /// The same for an event that other processes act on, such as a failure.
    pub urgent_linger: std::time::Duration,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self {
            events: 128,
            bytes: 256 * 1024,
            linger: std::time::Duration::from_millis(20),
            urgent_linger: std::time::Duration::from_millis(5),
        }
    }
}

/// Consecutive records of one boot as a message: a JSON list of their events.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    pub(super) first: u64,
    pub(super) last: u64,
    /// Bytes that its records take in the file.
    pub(super) record_bytes: u64,
    pub(super) payload: Bytes,
}

impl Batch {
    pub(super) fn message_id(&self, producer: &ProducerId, boot: Boot) -> String {
        format!("{producer}:{boot}:{}-{}", self.first, self.last)
    }
}

/// Collects records until a batch is full.
#[derive(Debug)]
pub(super) struct Cut {
    limits: BatchLimits,
    events: usize,
    first: u64,
    last: u64,
    record_bytes: usize,
    payload: BytesMut,
}

impl Cut {
    pub(super) fn new(limits: BatchLimits) -> Self {
        Self { limits, events: 0, first: 0, last: 0, record_bytes: 0, payload: BytesMut::new() }
    }

    /// Written over the room of an earlier payload, if the log has given it back: what is allocated for every batch anew
    /// comes from the kernel page by page, which costs more than the copy into it.
    pub(super) fn over(limits: BatchLimits, room: Option<BytesMut>) -> Self {
        let mut payload = room.unwrap_or_default();
        payload.clear();
        Self { payload, ..Self::new(limits) }
    }

    /// Whether so much more still fits; the first always does.
    pub(super) fn fits(&self, events: usize, bytes: usize) -> bool {
        self.events == 0
            || (self.events + events <= self.limits.events && self.payload.len() + bytes <= self.limits.bytes)
    }

    pub(super) fn is_full(&self) -> bool {
        !self.fits(1, 2)
    }

    /// Adds whole records as they were read from a file.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.payload.reserve(bytes.len() + 2);
        records(bytes).for_each(|record| self.add_record(&record));
    }

    /// Adds records that never left memory.
    pub(super) fn add_own(&mut self, bytes: &[u8]) {
        own_records(bytes).for_each(|record| self.add_record(&record));
    }

    fn add_record(&mut self, record: &Record<'_>) {
        if self.events == 0 {
            self.first = record.ordinal;
        }
        self.payload.put_u8(if self.events == 0 { b'[' } else { b',' });
        self.payload.extend_from_slice(record.event);
        self.events += 1;
        self.last = record.ordinal;
        self.record_bytes += record.size();
    }

    /// The batch, unless nothing was added.
    pub(super) fn finish(mut self) -> Option<Batch> {
        if self.events == 0 {
            return None;
        }
        self.payload.put_u8(b']');
        Some(Batch {
            first: self.first,
            last: self.last,
            record_bytes: u64::try_from(self.record_bytes).unwrap_or(u64::MAX),
            payload: self.payload.freeze(),
        })
    }
}
