//! What permits count.

use std::sync::atomic::{AtomicU64, Ordering};

/// What was counted since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Claims that the store granted.
    pub claims: u64,
    /// Claims that met somebody else's.
    pub conflicts: u64,
    /// Calls of the store that requests waited for.
    pub round_trips: u64,
    /// Permits given without any call: a slot that was held, or one of a chunk.
    pub reused: u64,
    /// Slots refreshed.
    pub refreshed: u64,
    /// Slots and unused rate permits given back to the store.
    pub returned: u64,
    /// Demand marks written.
    pub marks: u64,
    /// Permits given as a share, without the store.
    pub shared: u64,
    /// Permits given without the store because the limit is open then.
    pub opened: u64,
    /// Requests that ran on when their slot's lease had ended.
    pub over_lease: u64,
    /// Requests that do so now.
    pub over_lease_now: u64,
    /// Times the store couldn't be asked.
    pub outages: u64,
    /// Times the store came back empty.
    pub emptied: u64,
}

#[derive(Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) claims: Counter,
    pub(super) conflicts: Counter,
    pub(super) round_trips: Counter,
    pub(super) reused: Counter,
    pub(super) refreshed: Counter,
    pub(super) returned: Counter,
    pub(super) marks: Counter,
    pub(super) shared: Counter,
    pub(super) opened: Counter,
    pub(super) over_lease: Counter,
    pub(super) outages: Counter,
    pub(super) emptied: Counter,
}

impl Counters {
    pub(super) fn told(&self, over_lease_now: u64) -> Counts {
        Counts {
            claims: self.claims.get(),
            conflicts: self.conflicts.get(),
            round_trips: self.round_trips.get(),
            reused: self.reused.get(),
            refreshed: self.refreshed.get(),
            returned: self.returned.get(),
            marks: self.marks.get(),
            shared: self.shared.get(),
            opened: self.opened.get(),
            over_lease: self.over_lease.get(),
            over_lease_now,
            outages: self.outages.get(),
            emptied: self.emptied.get(),
        }
    }
}
