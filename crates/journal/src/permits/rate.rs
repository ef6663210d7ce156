//! The rate permits of one subject, as this replica knows them.
//!
//! A limit of R a minute is cut into keys of `chunk` permits each. A key lives a minute, the use window and a second, and
//! its permits are used within the use window after the claim was sent: two claims of one key are used more than a minute
//! apart, so that no rolling minute holds more than R.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::OnOutage;
use super::slots::Claiming;
use super::waiting::{RatePermit, Spent};

/// Keys that a limit is cut into at most. With so many a fleet of some ten replicas uses each chunk up in time.
const KEYS: u32 = 600;
/// How long a key counts as taken after a claim of it was refused, if the watch says nothing.
const SUSPECT: Duration = Duration::from_millis(250);
/// Advice where nothing better is known.
const SOON: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Rate {
    per_minute: u32,
    living: BTreeMap<u32, Living>,
    chunks: Vec<Chunk>,
    pub(super) claiming: BTreeMap<u32, Claiming>,
    suspects: BTreeMap<u32, Instant>,
    /// Until when nothing is free, as was found before: a limit that is used up is asked for often.
    exhausted: Option<Instant>,
    pub(super) waiters: BTreeMap<u64, RateWaiter>,
    /// Until when permits that were given without the store count.
    outside: VecDeque<Instant>,
    /// How many of those the store is still to be told of.
    debt: u32,
}

/// A key that was claimed.
struct Living {
    serial: u64,
    units: u32,
    lapses: Instant,
    /// The store says that it is gone before its time: it was given back unused, or the store lost it.
    gone: bool,
}

/// Permits that this replica claimed.
struct Chunk {
    n: u32,
    serial: u64,
    revision: u64,
    left: u32,
    used: u32,
    use_by: Instant,
}

pub(super) struct RateWaiter {
    pub(super) on_outage: OnOutage,
    pub(super) send: oneshot::Sender<Result<RatePermit, Spent>>,
}

/// A claim that the store granted.
pub(super) struct Granted {
    pub(super) n: u32,
    pub(super) serial: u64,
    pub(super) revision: u64,
    pub(super) units: u32,
    pub(super) use_by: Instant,
    pub(super) lapses: Instant,
}

/// A key that is given back, as nothing of it was used.
pub(super) struct Unused {
    pub(super) n: u32,
    pub(super) revision: u64,
}

impl Rate {
    pub(super) fn limit(&mut self, per_minute: u32) {
        if self.per_minute != per_minute {
            self.per_minute = per_minute;
            self.exhausted = None;
        }
    }

    pub(super) const fn per_minute(&self) -> u32 {
        self.per_minute
    }

    /// Permits in a key.
    pub(super) fn chunk(&self) -> u32 {
        self.per_minute.div_ceil(KEYS).max(1)
    }

    /// Permits in the n-th key: the last one may hold fewer.
    pub(super) fn units(&self, n: u32) -> u32 {
        let chunk = self.chunk();
        self.per_minute.saturating_sub(n.saturating_mul(chunk)).min(chunk)
    }

    /// Takes a permit of a chunk that is held.
    pub(super) fn take(&mut self, now: Instant) -> Option<(u32, u64)> {
        let chunk = self.chunks.iter_mut().find(|chunk| chunk.left > 0 && now < chunk.use_by)?;
        chunk.left -= 1;
        chunk.used += 1;
        Some((chunk.n, chunk.serial))
    }

    /// A permit wasn't used after all. Whether somebody else may have it.
    pub(super) fn give_back(&mut self, n: u32, serial: u64) -> bool {
        let Some(chunk) = self.chunks.iter_mut().find(|chunk| chunk.n == n && chunk.serial == serial) else {
            return false;
        };
        chunk.left += 1;
        chunk.used = chunk.used.saturating_sub(1);
        true
    }

    /// A key to claim, looking from `offset` on.
    pub(super) fn candidate(&mut self, offset: u32, now: Instant) -> Option<u32> {
        if self.exhausted.is_some_and(|until| now < until) {
            return None;
        }
        let found = self.search(offset, now);
        // What is being claimed may be free any moment.
        if found.is_none() && self.claiming.is_empty() {
            let living = self.living.values().filter(|living| !living.gone).map(|living| living.lapses);
            self.exhausted = living.chain(self.suspects.values().copied()).filter(|until| *until > now).min();
        }
        found
    }

    fn search(&self, offset: u32, now: Instant) -> Option<u32> {
        let keys = self.per_minute.div_ceil(self.chunk());
        // Also keys of a limit that was another count while they live.
        let living = self.living.values().filter(|living| !living.gone && living.lapses > now).map(|l| l.units);
        let claiming = self.claiming.keys().map(|n| self.units(*n));
        let room = self.per_minute.saturating_sub(living.chain(claiming).sum());
        let free = |n: &u32| {
            self.units(*n) <= room
                && !self.claiming.contains_key(n)
                && self.living.get(n).is_none_or(|living| living.gone || living.lapses <= now)
                && self.suspects.get(n).is_none_or(|until| *until <= now)
        };
        let from = offset.checked_rem(keys)?;
        (from..keys).chain(0..from).find(free)
    }

    pub(super) fn suspect(&mut self, n: u32, now: Instant) {
        self.suspects.insert(n, now + SUSPECT);
    }

    /// Nobody waits for a claim any more.
    pub(super) fn doubt(&mut self, n: u32) {
        if let Some(claiming) = self.claiming.get_mut(&n) {
            claiming.doubtful = true;
        }
    }

    /// Permits that claims under way will bring, at most.
    pub(super) fn awaited(&self) -> u32 {
        let awaited = self.claiming.iter().filter(|(_, claiming)| !claiming.doubtful);
        awaited.map(|(n, _)| self.units(*n)).sum()
    }

    pub(super) fn is_awaiting(&self) -> bool {
        self.claiming.values().any(|claiming| !claiming.doubtful)
    }

    /// Permits that waiting requests need, and those that were given without the store.
    pub(super) fn wanted(&self) -> u32 {
        u32::try_from(self.waiters.len()).unwrap_or(u32::MAX).saturating_add(self.debt)
    }

    /// Adds what a claim brought; what was given without the store is paid first.
    pub(super) fn granted(&mut self, granted: Granted) {
        let Granted { n, serial, revision, units, use_by, lapses } = granted;
        let paid = self.debt.min(units);
        self.debt -= paid;
        self.suspects.remove(&n);
        self.living.insert(n, Living { serial, units, lapses, gone: false });
        self.chunks.push(Chunk { n, serial, revision, left: units - paid, used: paid, use_by });
    }

    /// The watch told of a claim.
    pub(super) fn took(&mut self, n: u32, serial: u64, units: u32, lapses: Instant) {
        self.suspects.remove(&n);
        self.living.insert(n, Living { serial, units, lapses, gone: false });
    }

    /// Whether a claim of this replica's is known.
    pub(super) fn knows(&self, n: u32, serial: u64) -> bool {
        self.claiming.get(&n).is_some_and(|claiming| claiming.serial == serial)
            || self.living.get(&n).is_some_and(|living| living.serial == serial)
    }

    pub(super) fn gone(&mut self, n: u32) {
        self.exhausted = None;
        self.suspects.remove(&n);
        if let Some(living) = self.living.get_mut(&n) {
            living.gone = true;
        }
    }

    /// Permits that count against the limit now, as far as is known.
    pub(super) fn used(&self, now: Instant) -> u32 {
        let claimed: u32 =
            self.living.values().filter(|living| !living.gone && living.lapses > now).map(|living| living.units).sum();
        claimed.saturating_add(self.outside(now))
    }

    /// Permits that may have been used through the store in the last minute, whatever it says of them just now.
    pub(super) fn maybe_used(&self, now: Instant) -> u32 {
        self.living.values().filter(|living| living.lapses > now).map(|living| living.units).sum()
    }

    /// Permits given without the store in the last minute.
    pub(super) fn outside(&self, now: Instant) -> u32 {
        let recent = self.outside.iter().rev().take_while(|until| **until > now).count();
        u32::try_from(recent).unwrap_or(u32::MAX)
    }

    /// A permit is given without the store.
    pub(super) fn give_outside(&mut self, counts_until: Instant) {
        self.outside.push_back(counts_until);
        self.debt = self.debt.saturating_add(1);
    }

    /// After how long it is worth asking again.
    pub(super) fn retry_after(&self, now: Instant) -> Duration {
        let claimed = self.living.values().filter(|living| !living.gone && living.lapses > now).map(|l| l.lapses);
        let given = self.outside.iter().copied().find(|until| *until > now);
        claimed.chain(given).min().map_or(SOON, |at| at.duration_since(now))
    }

    /// Forgets what has lapsed; returns the keys that are given back.
    pub(super) fn tidy(&mut self, now: Instant) -> Vec<Unused> {
        self.living.retain(|_, living| living.lapses > now);
        self.suspects.retain(|_, until| *until > now);
        while self.outside.pop_front_if(|until| *until <= now).is_some() {}
        self.debt = self.debt.min(u32::try_from(self.outside.len()).unwrap_or(u32::MAX));
        let unused = |chunk: &Chunk| Unused { n: chunk.n, revision: chunk.revision };
        let given_back = self.chunks.iter().filter(|chunk| chunk.use_by <= now && chunk.used == 0).map(unused);
        let given_back = given_back.collect();
        self.chunks.retain(|chunk| chunk.use_by > now);
        given_back
    }

    pub(super) fn is_empty(&self) -> bool {
        self.living.is_empty()
            && self.chunks.is_empty()
            && self.claiming.is_empty()
            && self.waiters.is_empty()
            && self.outside.is_empty()
    }
}
