//! What was appended and not yet taken by the publisher, kept in memory up to a bound.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use super::batch::{Batch, BatchLimits, Cut};

/// Records that were appended together.
#[derive(Debug)]
struct Chunk {
    first: u64,
    events: usize,
    bytes: Bytes,
    since: Instant,
}

/// Somebody waits for what stands up to an ordinal.
#[derive(Debug, Clone, Copy)]
struct Urgent {
    last: u64,
    due: Instant,
}

/// How long what is pushed may wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// When it was written.
    pub(super) since: Instant,
    /// Whether others act on it.
    pub(super) urgent: bool,
}

/// Consecutive chunks. Past its bound it takes nothing more until the publisher has caught up from the file.
#[derive(Debug)]
pub(super) struct Queue {
    chunks: VecDeque<Chunk>,
    events: usize,
    bytes: usize,
    max_bytes: usize,
    passed: bool,
    urgent: Option<Urgent>,
}

impl Queue {
    pub(super) const fn new(max_bytes: usize) -> Self {
        Self { chunks: VecDeque::new(), events: 0, bytes: 0, max_bytes, passed: false, urgent: None }
    }

    /// Keeps `events` records beginning with ordinal `first`. Tells whether a waiting publisher has a reason to wake.
    pub(super) fn push(
        &mut self,
        first: u64,
        events: usize,
        bytes: Bytes,
        Patience { since, urgent }: Patience,
        limits: BatchLimits,
    ) -> bool {
        if self.passed || self.bytes + bytes.len() > self.max_bytes {
            self.passed = true;
            return self.chunks.is_empty();
        }
        let was_waiting = self.waiting(limits);
        self.events += events;
        self.bytes += bytes.len();
        self.chunks.push_back(Chunk { first, events, bytes, since });
        let last = first + u64::try_from(events).unwrap_or(u64::MAX).saturating_sub(1);
        let sooner = urgent && self.hurry(last, since + limits.urgent_linger);
        sooner || was_waiting != self.waiting(limits)
    }

    /// What stands up to `last` is to go out by `due`. Tells whether that is sooner than it would.
    pub(super) fn hurry(&mut self, last: u64, due: Instant) -> bool {
        let before = self.urgent;
        let urgent = before
            .map_or(Urgent { last, due }, |before| Urgent { last: before.last.max(last), due: before.due.min(due) });
        self.urgent = Some(urgent);
        before.is_none_or(|before| urgent.due < before.due)
    }

    /// 0: nothing waits; 1: something does; 2: a whole batch does.
    fn waiting(&self, limits: BatchLimits) -> u8 {
        let full = self.events >= limits.events || self.bytes >= limits.bytes;
        u8::from(self.events > 0) + u8::from(full)
    }

    /// How long a batch that begins with ordinal `next` may wait for more, if it could and is not yet full.
    pub(super) fn lingering(&self, next: u64, limits: BatchLimits) -> Option<Instant> {
        let front = self.chunks.front().filter(|chunk| chunk.first == next)?;
        let due = front.since + limits.linger;
        (self.waiting(limits) == 1).then(|| self.urgent.map_or(due, |urgent| due.min(urgent.due)))
    }

    /// Takes the next batch out, if it is here, written over `room`.
    pub(super) fn cut(&mut self, next: u64, limits: BatchLimits, room: Option<BytesMut>) -> Option<Batch> {
        if self.chunks.front()?.first != next {
            return None;
        }
        let mut cut = Cut::over(limits, room);
        while let Some(chunk) = self.chunks.pop_front_if(|chunk| cut.fits(chunk.events, chunk.bytes.len())) {
            self.events -= chunk.events;
            self.bytes -= chunk.bytes.len();
            cut.add_own(&chunk.bytes);
        }
        let batch = cut.finish()?;
        self.urgent.take_if(|urgent| urgent.last <= batch.last);
        Some(batch)
    }

    /// The publisher has sent all there is: from here on chunks are consecutive again.
    pub(super) fn caught_up(&mut self) {
        self.passed = false;
        self.chunks.clear();
        self.events = 0;
        self.bytes = 0;
        self.urgent = None;
    }
}
