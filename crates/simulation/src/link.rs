//! A process's connection to the journal: it can be cut and mended, and it ends with the process. What goes wrong on it
//! by itself is the faulty journal's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use waybill_journal::faulty::{Faults, Faulty};
use waybill_journal::keyed::Watching;
use waybill_journal::log::Following;
use waybill_journal::{
    AppendError, Appended, Bounds, Bucket, Entry, Expect, Held, Journal, Keyed, Log, Message, ReadError, Record, Start,
    Stream,
};

use crate::freeze::Freeze;
use crate::ground::Ground;
use crate::tap::Tap;

/// How long a call waits for a store that is out of reach.
const DEADLINE: Duration = Duration::from_secs(2);
/// A call that took longer isn't one that met a store within reach.
const SLOW: Duration = Duration::from_millis(90);

/// One process's connection, for one of its lives.
#[derive(Clone)]
pub struct Link {
    inner: Journal,
    faulty: Faulty,
    state: Arc<State>,
}

struct State {
    ground: Arc<Ground>,
    who: Arc<str>,
    held: Mutex<Condition>,
    changed: Notify,
    /// What stops the process. What isn't polled by itself stands still at its next call.
    freeze: Freeze,
    /// Whether it is stopped in the middle of its next write.
    trapped: AtomicBool,
}

#[derive(Default)]
struct Condition {
    cut: bool,
    dead: bool,
}

impl Link {
    /// A connection with these faults, whose chances are those of the process's life.
    #[must_use]
    pub fn new(ground: &Arc<Ground>, who: &str, life: u32, faults: Faults, freeze: Freeze) -> Self {
        let seed = crate::trace::fold(ground.seed, format!("{who}.{life}").as_bytes());
        let faulty = Faulty::over(Tap::journal(ground, who), faults, seed);
        let state = State {
            ground: Arc::clone(ground),
            who: who.into(),
            held: Mutex::default(),
            changed: Notify::new(),
            freeze,
            trapped: AtomicBool::new(false),
        };
        Self { inner: faulty.journal(), faulty, state: Arc::new(state) }
    }

    /// Both halves of the port.
    #[must_use]
    pub fn journal(&self) -> Journal {
        Journal { log: Arc::new(self.clone()), keyed: Arc::new(self.clone()) }
    }

    /// Cuts the process off from the store.
    pub fn cut(&self) {
        self.state.held.lock().cut = true;
        self.state.faulted();
        self.state.changed.notify_waiters();
    }

    /// The store is within reach again.
    pub fn mend(&self) {
        self.state.held.lock().cut = false;
        self.state.faulted();
        self.state.changed.notify_waiters();
    }

    /// From now on other things go wrong.
    pub fn set(&self, faults: Faults) {
        self.faulty.set(faults);
    }

    /// The process is stopped in the middle of the next state that it writes, when its write is on its way.
    pub fn trap(&self) {
        self.state.trapped.store(true, Ordering::Relaxed);
    }

    /// It isn't.
    pub fn untrap(&self) {
        self.state.trapped.store(false, Ordering::Relaxed);
    }

    /// The process is dead: whatever it still waits for never comes.
    pub fn end(&self) {
        self.state.held.lock().dead = true;
        self.state.faulted();
    }
}

impl State {
    /// Between the process and the store something went wrong now.
    fn faulted(&self) {
        self.ground.faulted(&self.who);
    }

    fn is_dead(&self) -> bool {
        self.held.lock().dead
    }

    fn is_cut(&self) -> bool {
        self.held.lock().cut
    }

    /// Waits until the store is within reach.
    async fn reachable(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.is_dead() {
                std::future::pending::<()>().await;
            }
            if !self.is_cut() {
                return;
            }
            changed.await;
        }
    }

    /// One call: it finds no store, or its answer is lost when the link is cut meanwhile.
    async fn call<T, E>(
        &self,
        call: impl Future<Output = Result<T, E>> + Send,
        silent: impl Fn() -> E + Send,
        is_fault: impl Fn(&E) -> bool + Send,
    ) -> Result<T, E>
    where
        T: Send,
        E: Send,
    {
        if self.is_dead() {
            return std::future::pending().await;
        }
        if self.is_cut() {
            self.faulted();
            sleep(DEADLINE).await;
            self.faulted();
            return Err(silent());
        }
        let begun = Instant::now();
        let answer = call.await;
        self.freeze.thawed().await;
        if self.is_dead() {
            return std::future::pending().await;
        }
        if self.is_cut() {
            sleep(DEADLINE.saturating_sub(begun.elapsed())).await;
            self.faulted();
            return Err(silent());
        }
        if begun.elapsed() > SLOW || answer.as_ref().is_err_and(is_fault) {
            self.faulted();
        }
        answer
    }

    async fn write<T: Send>(
        &self,
        call: impl Future<Output = Result<T, AppendError>> + Send,
    ) -> Result<T, AppendError> {
        self.freeze.thawed().await;
        self.send(call).await
    }

    /// A write that has left the process, stopped or not.
    async fn send<T: Send>(&self, call: impl Future<Output = Result<T, AppendError>> + Send) -> Result<T, AppendError> {
        let silent = || AppendError::Unknown { reason: "the link is cut".to_owned() };
        self.call(call, silent, |error| matches!(error, AppendError::Unknown { .. })).await
    }

    async fn read<T: Send>(&self, call: impl Future<Output = Result<T, ReadError>> + Send) -> Result<T, ReadError> {
        self.freeze.thawed().await;
        let silent = || ReadError::Unavailable { reason: "the link is cut".to_owned() };
        self.call(call, silent, |error| matches!(error, ReadError::Unavailable { .. })).await
    }

    /// What is told arrives when the store is within reach.
    fn told<T: Send + 'static>(
        self: &Arc<Self>,
        inner: BoxStream<'static, Result<T, ReadError>>,
    ) -> BoxStream<'static, Result<T, ReadError>> {
        let state = Arc::clone(self);
        stream::unfold((state, inner), |(state, mut inner)| async move {
            let told = inner.next().await?;
            state.reachable().await;
            state.freeze.thawed().await;
            Some((told, (state, inner)))
        })
        .boxed()
    }
}

#[async_trait]
impl Log for Link {
    async fn append(&self, stream: Stream, record: Record, expect: Expect) -> Result<Appended, AppendError> {
        self.state.write(self.inner.log.append(stream, record, expect)).await
    }

    async fn append_all(
        &self,
        stream: Stream,
        records: Vec<Record>,
        expected_last: u64,
    ) -> Result<Appended, AppendError> {
        self.state.write(self.inner.log.append_all(stream, records, expected_last)).await
    }

    async fn bounds(&self, stream: Stream) -> Result<Bounds, ReadError> {
        self.state.read(self.inner.log.bounds(stream)).await
    }

    async fn read(&self, stream: Stream, from: u64, limit: usize) -> Result<Vec<Message>, ReadError> {
        self.state.read(self.inner.log.read(stream, from, limit)).await
    }

    async fn last_of_subject(&self, stream: Stream, subject: &str) -> Result<Option<Message>, ReadError> {
        self.state.read(self.inner.log.last_of_subject(stream, subject)).await
    }

    async fn purge_before(&self, stream: Stream, first: u64) -> Result<u64, AppendError> {
        self.state.write(self.inner.log.purge_before(stream, first)).await
    }

    fn follow(&self, stream: Stream, start: Start) -> Following {
        let (state, inner) = (Arc::clone(&self.state), self.inner.clone());
        // Following begins when the store can be asked.
        let following = async move {
            state.reachable().await;
            inner.log.follow(stream, start)
        };
        self.state.told(following.flatten_stream().boxed())
    }
}

#[async_trait]
impl Keyed for Link {
    async fn get(&self, bucket: Bucket, key: &str) -> Result<Option<Entry>, ReadError> {
        self.state.read(self.inner.keyed.get(bucket, key)).await
    }

    async fn write(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        held: Held,
        ttl: Option<Duration>,
    ) -> Result<u64, AppendError> {
        self.state.freeze.thawed().await;
        if bucket == Bucket::Selector && self.state.trapped.swap(false, Ordering::Relaxed) {
            self.state.ground.trace.note(format_args!("{} is frozen within a write", self.state.who));
            self.state.faulted();
            self.state.freeze.freeze();
        }
        self.state.send(self.inner.keyed.write(bucket, key, value, held, ttl)).await
    }

    async fn delete(&self, bucket: Bucket, key: &str, held: Held) -> Result<(), AppendError> {
        self.state.write(self.inner.keyed.delete(bucket, key, held)).await
    }

    fn watch(&self, bucket: Bucket) -> Watching {
        let (state, inner) = (Arc::clone(&self.state), self.inner.clone());
        let watching = async move {
            state.reachable().await;
            inner.keyed.watch(bucket)
        };
        self.state.told(watching.flatten_stream().boxed())
    }
}
