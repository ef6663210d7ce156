//! What requests get: a slot or a permit, given back when it is dropped, or a no.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Inner;
use super::subject::Subject;

/// There is no slot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{subject} is full: {in_flight} of {limit} in flight{}", if *.store_away { ", the store is away" } else { "" })]
pub struct Full {
    /// The subject.
    pub subject: Subject,
    /// Its limit.
    pub limit: u32,
    /// Requests in flight on it, as far as is known.
    pub in_flight: u32,
    /// The store couldn't be asked: the limit went by its policy.
    pub store_away: bool,
}

/// All permits of the last minute are used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{subject} has used its {per_minute} a minute{}", if *.store_away { ", the store is away" } else { "" })]
pub struct Spent {
    /// The subject.
    pub subject: Subject,
    /// Its limit.
    pub per_minute: u32,
    /// After how long it is worth asking again.
    pub retry_after: Duration,
    /// The store couldn't be asked: the limit went by its policy.
    pub store_away: bool,
}

/// What a slot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A slot of the store's.
    Leased { n: u32, serial: u64 },
    /// Given without the store.
    Outside,
    /// Given back already, or never given.
    Ended,
}

/// The right to have one request in flight. Dropping it gives it back, once.
pub struct Slot {
    inner: Arc<Inner>,
    subject: Subject,
    kind: Kind,
}

impl Slot {
    pub(super) const fn leased(inner: Arc<Inner>, subject: Subject, n: u32, serial: u64) -> Self {
        Self { inner, subject, kind: Kind::Leased { n, serial } }
    }

    pub(super) const fn outside(inner: Arc<Inner>, subject: Subject) -> Self {
        Self { inner, subject, kind: Kind::Outside }
    }

    /// What it is about.
    #[must_use]
    pub const fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Whether it was given without the store.
    #[must_use]
    pub fn is_outside(&self) -> bool {
        self.kind == Kind::Outside
    }

    /// Whether its lease has ended: the request runs on, beyond what the limit promises.
    #[must_use]
    pub fn is_over_lease(&self) -> bool {
        match self.kind {
            Kind::Leased { n, serial } => self.inner.is_over_lease(&self.subject, n, serial),
            Kind::Outside | Kind::Ended => false,
        }
    }

    /// Gives it back.
    pub fn release(self) {
        drop(self);
    }

    /// It was never given: nothing happens when it is dropped.
    pub(super) fn withdraw(mut self) {
        self.kind = Kind::Ended;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.kind, Kind::Ended) {
            Kind::Leased { n, serial } => self.inner.release(&self.subject, n, serial),
            Kind::Outside => self.inner.release_outside(&self.subject),
            Kind::Ended => {}
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("subject", &self.subject).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// The right to do something once within the limit of a minute. It counts as used unless [`RatePermit::unused`] says
/// otherwise.
pub struct RatePermit {
    inner: Arc<Inner>,
    subject: Subject,
    /// The chunk it is of; none where it was given without the store.
    of: Option<(u32, u64)>,
}

impl RatePermit {
    pub(super) const fn new(inner: Arc<Inner>, subject: Subject, of: Option<(u32, u64)>) -> Self {
        Self { inner, subject, of }
    }

    /// What it is about.
    #[must_use]
    pub const fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Whether it was given without the store.
    #[must_use]
    pub const fn is_outside(&self) -> bool {
        self.of.is_none()
    }

    /// Nothing was done with it: within its use window it goes to the next request, and back to the store after that if
    /// its whole claim is unused. Later it stays used.
    pub fn unused(self) {
        if let Some((n, serial)) = self.of {
            self.inner.unused(&self.subject, n, serial);
        }
    }
}

impl fmt::Debug for RatePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RatePermit").field("subject", &self.subject).field("of", &self.of).finish_non_exhaustive()
    }
}

/// A request that waits for a slot; it leaves the queue when it is dropped.
pub(super) struct WaitingForSlot {
    inner: Arc<Inner>,
    subject: Subject,
    id: u64,
    pub(super) receive: oneshot::Receiver<Slot>,
}

impl WaitingForSlot {
    pub(super) const fn new(inner: Arc<Inner>, subject: Subject, id: u64, receive: oneshot::Receiver<Slot>) -> Self {
        Self { inner, subject, id, receive }
    }

    /// Leaves the queue; the slot, if one came at the last moment.
    pub(super) fn leave(mut self) -> Option<Slot> {
        self.inner.leave(&self.subject, self.id);
        self.receive.try_recv().ok()
    }
}

impl Drop for WaitingForSlot {
    fn drop(&mut self) {
        // What is still in the channel gives itself back when the channel is dropped after this.
        self.inner.leave(&self.subject, self.id);
    }
}

/// A request that waits for a rate permit; it leaves the queue when it is dropped.
pub(super) struct WaitingForRate {
    inner: Arc<Inner>,
    subject: Subject,
    id: u64,
    pub(super) receive: oneshot::Receiver<Result<RatePermit, Spent>>,
}

impl WaitingForRate {
    pub(super) const fn new(
        inner: Arc<Inner>,
        subject: Subject,
        id: u64,
        receive: oneshot::Receiver<Result<RatePermit, Spent>>,
    ) -> Self {
        Self { inner, subject, id, receive }
    }
}

impl Drop for WaitingForRate {
    fn drop(&mut self) {
        self.inner.leave_rate(&self.subject, self.id);
        if let Ok(Ok(permit)) = self.receive.try_recv() {
            permit.unused();
        }
    }
}
