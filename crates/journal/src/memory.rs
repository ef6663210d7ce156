//! The log and the keyed state in memory, for simulations and tests: same promises, no other process.
//!
//! Everything it does is determined by the calls and by the clock it was given.

mod buckets;
mod streams;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use parking_lot::Mutex;
use tokio::sync::Notify;
use waybill_event::LogTime;

use crate::Journal;
use crate::keyed::{Bucket, Entry, Held, Keyed, Watching};
use crate::log::{
    AppendError, Appended, Bounds, Expect, Following, Log, Message, ReadError, Record, Start, Stream, kept_for_ever,
};
use crate::outbox::Clock;
use buckets::BucketState;
use streams::StreamState;

/// The most messages that [`Log::append_all`] takes.
const MAX_BATCH: usize = 500;

/// A journal in memory; clones share what it holds.
#[derive(Clone)]
pub struct Memory {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    held: Mutex<Contents>,
    /// Followers and watches wait for it, and are woken in the order in which they began to.
    changed: Notify,
}

#[derive(Default)]
struct Contents {
    streams: BTreeMap<Stream, StreamState>,
    buckets: BTreeMap<Bucket, BucketState>,
}

impl Contents {
    fn stream(&mut self, stream: Stream) -> &mut StreamState {
        self.streams.entry(stream).or_insert_with(|| StreamState::new(stream))
    }

    fn bucket(&mut self, bucket: Bucket) -> &mut BucketState {
        self.buckets.entry(bucket).or_default()
    }
}

impl Memory {
    /// An empty journal whose store's clock is `clock`.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let shared = Shared { clock, held: Mutex::default(), changed: Notify::new() };
        Self { shared: Arc::new(shared) }
    }

    /// An empty journal whose clock stands at `start` now and goes with the runtime's time, also when that is paused.
    #[must_use]
    pub fn started_at(start: LogTime) -> Self {
        let origin = tokio::time::Instant::now();
        Self::new(Arc::new(move || start + origin.elapsed()))
    }

    /// Both halves of the port.
    #[must_use]
    pub fn journal(&self) -> Journal {
        Journal { log: Arc::new(self.clone()), keyed: Arc::new(self.clone()) }
    }

    /// The store's time.
    #[must_use]
    pub fn now(&self) -> LogTime {
        (self.shared.clock)()
    }

    /// Looks at the clock again: what has expired goes. Only needed with a clock that is set by hand.
    pub fn tick(&self) {
        self.notify();
    }

    /// How long a stream remembers message ids; 2 minutes if nothing else is said.
    pub fn set_duplicate_window(&self, stream: Stream, window: Duration) {
        self.shared.held.lock().stream(stream).set_duplicate_window(window);
    }

    /// Limits a stream to so many bytes; what doesn't fit is refused.
    pub fn set_max_bytes(&self, stream: Stream, max_bytes: u64) {
        self.shared.held.lock().stream(stream).set_max_bytes(max_bytes);
    }

    /// Removes the messages before `first`, as retention does.
    pub fn remove_before(&self, stream: Stream, first: u64) {
        self.shared.held.lock().stream(stream).remove_before(first);
        self.notify();
    }

    fn notify(&self) {
        self.shared.changed.notify_waiters();
    }
}

#[async_trait]
impl Log for Memory {
    async fn append(&self, stream: Stream, record: Record, expect: Expect) -> Result<Appended, AppendError> {
        let now = self.now();
        let appended = self.shared.held.lock().stream(stream).append(vec![record], expect, now)?;
        self.notify();
        Ok(appended)
    }

    async fn append_all(
        &self,
        stream: Stream,
        records: Vec<Record>,
        expected_last: u64,
    ) -> Result<Appended, AppendError> {
        if records.is_empty() || records.len() > MAX_BATCH {
            return Err(AppendError::Refused { reason: format!("{} messages at once", records.len()) });
        }
        let now = self.now();
        let expect = Expect::LastInStream(expected_last);
        let appended = self.shared.held.lock().stream(stream).append(records, expect, now)?;
        self.notify();
        Ok(appended)
    }

    async fn bounds(&self, stream: Stream) -> Result<Bounds, ReadError> {
        Ok(self.shared.held.lock().stream(stream).bounds())
    }

    async fn read(&self, stream: Stream, from: u64, limit: usize) -> Result<Vec<Message>, ReadError> {
        Ok(self.shared.held.lock().stream(stream).after(from.saturating_sub(1)).take(limit).cloned().collect())
    }

    async fn last_of_subject(&self, stream: Stream, subject: &str) -> Result<Option<Message>, ReadError> {
        Ok(self.shared.held.lock().stream(stream).last_of(subject).cloned())
    }

    async fn purge_before(&self, stream: Stream, first: u64) -> Result<u64, AppendError> {
        if stream != Stream::Traffic {
            return Err(kept_for_ever(stream));
        }
        let removed = self.shared.held.lock().stream(stream).remove_before(first);
        self.notify();
        Ok(removed)
    }

    fn follow(&self, stream: Stream, start: Start) -> Following {
        let follower = self.shared.held.lock().stream(stream).follower(start);
        stream::unfold((self.clone(), follower), move |(memory, mut follower)| async move {
            loop {
                // Waiting begins before the look, so that no change is missed.
                let mut changed = pin!(memory.shared.changed.notified());
                changed.as_mut().enable();
                let next = memory.shared.held.lock().stream(stream).next(&mut follower);
                if let Some(next) = next {
                    return Some((next, (memory.clone(), follower)));
                }
                changed.await;
            }
        })
        .boxed()
    }
}

#[async_trait]
impl Keyed for Memory {
    async fn get(&self, bucket: Bucket, key: &str) -> Result<Option<Entry>, ReadError> {
        let now = self.now();
        let mut held = self.shared.held.lock();
        let state = held.bucket(bucket);
        state.expire(now);
        Ok(state.living(key))
    }

    async fn write(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        held: Held,
        ttl: Option<Duration>,
    ) -> Result<u64, AppendError> {
        let revision = self.shared.held.lock().bucket(bucket).write(key, value, held, ttl, self.now())?;
        self.notify();
        Ok(revision)
    }

    async fn delete(&self, bucket: Bucket, key: &str, held: Held) -> Result<(), AppendError> {
        self.shared.held.lock().bucket(bucket).delete(key, held, self.now())?;
        self.notify();
        Ok(())
    }

    fn watch(&self, bucket: Bucket) -> Watching {
        stream::unfold((self.clone(), None), move |(memory, mut watcher)| async move {
            loop {
                let mut changed = pin!(memory.shared.changed.notified());
                changed.as_mut().enable();
                let now = memory.now();
                let (next, expiry) = {
                    let mut held = memory.shared.held.lock();
                    let state = held.bucket(bucket);
                    state.expire(now);
                    (state.next(&mut watcher), state.next_expiry())
                };
                if let Some(next) = next {
                    return Some((Ok(next), (memory.clone(), watcher)));
                }
                match expiry {
                    None => changed.await,
                    Some(at) => {
                        let wait = at.since(now).max(Duration::from_millis(1));
                        // Either a change or an expiry: both mean to look again.
                        let _ = tokio::time::timeout(wait, changed).await;
                    }
                }
            }
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests;
