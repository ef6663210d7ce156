//! What was appended and not yet taken by the publisher, kept in memory up to a bound.

use std::collections::VecDeque;

use bytes::Bytes;
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

/// Consecutive chunks. Past its bound it takes nothing more until the publisher has caught up from the file.
#[derive(Debug)]
pub(super) struct Queue {
    chunks: VecDeque<Chunk>,
    events: usize,
    bytes: usize,
    max_bytes: usize,
    passed: bool,
}

impl Queue {
    pub(super) const fn new(max_bytes: usize) -> Self {
        Self { chunks: VecDeque::new(), events: 0, bytes: 0, max_bytes, passed: false }
    }

    /// Keeps `events` records beginning with ordinal `first`. Tells whether a waiting publisher has a reason to wake.
    pub(super) fn push(
        &mut self,
        first: u64,
        events: usize,
        bytes: Bytes,
        since: Instant,
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
        was_waiting != self.waiting(limits)
    }

    /// 0: nothing waits; 1: something does; 2: a whole batch does.
    fn waiting(&self, limits: BatchLimits) -> u8 {
        let full = self.events >= limits.events || self.bytes >= limits.bytes;
        u8::from(self.events > 0) + u8::from(full)
    }

    /// Since when the oldest chunk waits, if a batch could begin with ordinal `next` and is not yet full.
    pub(super) fn lingering(&self, next: u64, limits: BatchLimits) -> Option<Instant> {
        let front = self.chunks.front().filter(|chunk| chunk.first == next)?;
        (self.waiting(limits) == 1).then_some(front.since)
    }

    /// Takes the next batch out, if it is here.
    pub(super) fn cut(&mut self, next: u64, limits: BatchLimits) -> Option<Batch> {
        if self.chunks.front()?.first != next {
            return None;
        }
        let mut cut = Cut::with_room(limits, self.bytes);
        while let Some(chunk) = self.chunks.pop_front_if(|chunk| cut.fits(chunk.events, chunk.bytes.len())) {
            self.events -= chunk.events;
            self.bytes -= chunk.bytes.len();
            cut.add_own(&chunk.bytes);
        }
        cut.finish()
    }

    /// The publisher has sent all there is: from here on chunks are consecutive again.
    pub(super) fn caught_up(&mut self) {
        self.passed = false;
        self.chunks.clear();
        self.events = 0;
        self.bytes = 0;
    }
}
