//! What the outbox's one lock guards: the next ordinal, the files, the space, what waits in memory.

use std::collections::VecDeque;
use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use waybill_event::envelope::{Encoded, Head};
use waybill_event::{Boot, LogTime};

use super::batch::BatchLimits;
use super::queue::{Patience, Queue};
use super::record::{HEADER_BYTES, MAX_EVENT_BYTES, push, records};
use super::segment::{Place, Segments};
use super::{OutboxConfig, OutboxError};

/// A write that takes longer than this is counted as a stall.
const STALL: Duration = Duration::from_millis(1);
/// Times of appends that are remembered, one a second at most, to tell the age of the oldest unacknowledged event.
const MAX_TIMES: usize = 4096;

/// Where the room for an append comes from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Room<'a> {
    /// From what nobody was promised.
    Free,
    /// From the bytes that a reservation still holds, then from what is free.
    Reserved(&'a AtomicU64),
    /// As before, but half of what was promised stays.
    Further(&'a AtomicU64),
    /// The outbox's own notices are never refused for want of room.
    Notice,
}

/// An append that was taken.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) ordinals: RangeInclusive<u64>,
    /// Whether the publisher should be woken.
    pub(super) wake: bool,
}

#[derive(Debug)]
pub(super) struct State {
    /// What all events of this boot begin with.
    head: Head,
    limits: BatchLimits,
    max_bytes: u64,
    segment_bytes: u64,
    finish_reserve_bytes: u64,
    pub(super) segments: Segments,
    pub(super) queue: Queue,
    /// The last ordinal that was given.
    pub(super) appended: u64,
    pub(super) acknowledged: u64,
    /// Bytes of unacknowledged records, of earlier boots too.
    pub(super) used: u64,
    pub(super) reserved: u64,
    pub(super) closing: bool,
    pub(super) stalls: u64,
    pub(super) refusals: u64,
    times: VecDeque<(u64, LogTime)>,
}

impl State {
    pub(super) fn new(config: &OutboxConfig, boot: Boot, segments: Segments, used: u64) -> Self {
        Self {
            head: Head::new(&config.producer, boot),
            limits: config.batch,
            max_bytes: config.max_bytes,
            segment_bytes: config.segment_bytes.max(1),
            finish_reserve_bytes: config.finish_reserve_bytes,
            segments,
            queue: Queue::new(config.memory_bytes),
            appended: 0,
            acknowledged: 0,
            used,
            reserved: 0,
            closing: false,
            stalls: 0,
            refusals: 0,
            times: VecDeque::new(),
        }
    }

    /// Gives the events their ordinals and writes them: all or none.
    pub(super) fn append(&mut self, events: &[Encoded], room: Room<'_>) -> Result<Taken, OutboxError> {
        if self.closing && !matches!(room, Room::Notice) {
            return Err(OutboxError::Closed);
        }
        let first = self.appended + 1;
        // Events are appended as they happen, so that their times are that of the append.
        let Some(at) = events.iter().map(Encoded::at).max() else {
            return Ok(Taken { ordinals: first..=self.appended, wake: false });
        };
        let (records, count) = self.render(events, first, at)?;
        let length = u64::try_from(records.len()).unwrap_or(u64::MAX);
        let from_reservation = match room {
            Room::Free | Room::Notice => 0,
            Room::Reserved(held) => held.load(Ordering::Relaxed).min(length),
            Room::Further(held) => {
                held.load(Ordering::Relaxed).saturating_sub(self.finish_reserve_bytes / 2).min(length)
            }
        };
        let free = self.max_bytes.saturating_sub(self.used + self.reserved);
        if !matches!(room, Room::Notice) && length - from_reservation > free {
            self.refusals += 1;
            return Err(OutboxError::Full);
        }
        let keep = match room {
            Room::Free => self.spares_for(self.reserved),
            Room::Reserved(_) | Room::Further(_) | Room::Notice => 0,
        };
        let began = Instant::now();
        if let Err(error) = self.segments.write(first, &records, keep) {
            self.refusals += 1;
            return Err(full_or(error));
        }
        let since = Instant::now();
        if since.duration_since(began) > STALL {
            self.stalls += 1;
        }
        let last = self.appended + count;
        self.appended = last;
        self.used += length;
        self.reserved -= from_reservation;
        if let Room::Reserved(held) | Room::Further(held) = room {
            held.fetch_sub(from_reservation, Ordering::Relaxed);
        }
        self.remember(first, at);
        let urgent = events.iter().any(Encoded::is_urgent);
        let wake = self.keep(first, records.into(), Patience { since, urgent });
        Ok(Taken { ordinals: first..=last, wake })
    }

    /// Promises room for one request's finishing events, and returns its bytes.
    pub(super) fn reserve(&mut self) -> Result<u64, OutboxError> {
        if self.closing {
            return Err(OutboxError::Closed);
        }
        let bytes = self.finish_reserve_bytes;
        if self.used + self.reserved + bytes > self.max_bytes {
            self.refusals += 1;
            return Err(OutboxError::Full);
        }
        if let Err(error) = self.segments.ensure_spares(self.spares_for(self.reserved + bytes)) {
            self.refusals += 1;
            return Err(full_or(error));
        }
        self.reserved += bytes;
        Ok(bytes)
    }

    /// Notes that everything up to `last` is in the log, and returns the files that are done with.
    pub(super) fn acknowledge(&mut self, last: u64, record_bytes: u64) -> Vec<PathBuf> {
        self.acknowledged = last;
        self.used = self.used.saturating_sub(record_bytes);
        while self.times.get(1).is_some_and(|(first, _)| *first <= last + 1) {
            self.times.pop_front();
        }
        self.segments.release(last)
    }

    /// Where a file that is done with may stand ready, if one is wanted.
    pub(super) fn place_for_spare(&mut self) -> Option<Place> {
        if self.closing {
            return None;
        }
        self.segments.place_for_spare()
    }

    /// When the oldest unacknowledged event was appended, to a second.
    pub(super) fn oldest_at(&self) -> Option<LogTime> {
        self.times.front().map(|(_, at)| *at).filter(|_| self.acknowledged < self.appended)
    }

    fn render(&self, events: &[Encoded], first: u64, at: LogTime) -> Result<(Vec<u8>, u64), OutboxError> {
        let bound = events.iter().map(|event| event.size_bound() + HEADER_BYTES).sum();
        let mut out = Vec::with_capacity(bound);
        let mut n = first;
        for event in events {
            if event.size_bound() > MAX_EVENT_BYTES {
                return Err(OutboxError::TooLarge { bytes: event.size_bound() });
            }
            push(&mut out, n, at, |out| event.write_sequenced(&self.head, n, out));
            n += 1;
        }
        Ok((out, n - first))
    }

    /// Keeps the records for the publisher, cut where a batch must be.
    fn keep(&mut self, first: u64, bytes: Bytes, patience: Patience) -> bool {
        let count = usize::try_from(self.appended + 1 - first).unwrap_or(usize::MAX);
        if count <= self.limits.events && (count == 1 || bytes.len() <= self.limits.bytes) {
            return self.queue.push(first, count, bytes, patience, self.limits);
        }
        let sizes: Vec<usize> = records(&bytes).map(|record| record.size()).collect();
        let (mut wake, mut first, mut begin) = (false, first, 0);
        let (mut events, mut length) = (0, 0);
        for size in sizes {
            if events > 0 && (events >= self.limits.events || length + size > self.limits.bytes) {
                wake |= self.queue.push(first, events, bytes.slice(begin..begin + length), patience, self.limits);
                first += u64::try_from(events).unwrap_or(0);
                begin += length;
                (events, length) = (0, 0);
            }
            events += 1;
            length += size;
        }
        wake | self.queue.push(first, events, bytes.slice(begin..begin + length), patience, self.limits)
    }

    fn remember(&mut self, first: u64, at: LogTime) {
        if self.acknowledged + 1 == first {
            self.times.clear();
        }
        let due = self.times.back().is_none_or(|(_, last)| at.since(*last) >= Duration::from_secs(1));
        if !due {
            return;
        }
        if self.times.len() >= MAX_TIMES {
            let mut odd = false;
            self.times.retain(|_| {
                odd = !odd;
                odd
            });
        }
        self.times.push_back((first, at));
    }

    /// Spare segments that so many promised bytes need, each counted half full: an append that doesn't fit into the
    /// rest of a segment begins the next one.
    fn spares_for(&self, promised: u64) -> usize {
        usize::try_from(promised.div_ceil((self.segment_bytes / 2).max(1))).unwrap_or(usize::MAX)
    }
}

/// A disk that is full is the same to the caller as an outbox that is.
fn full_or(error: io::Error) -> OutboxError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => OutboxError::Full,
        _ => OutboxError::Io(error),
    }
}
