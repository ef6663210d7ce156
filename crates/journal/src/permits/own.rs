//! Slots that this replica holds, or whose requests still run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Settings;

/// One of them.
pub(super) struct Own {
    pub(super) serial: u64,
    pub(super) revision: u64,
    /// When the last write that the store confirmed was sent.
    pub(super) confirmed: Instant,
    pub(super) since: Instant,
    /// It is changed by [`Owned::set`] alone, which counts.
    phase: Phase,
    /// To be refreshed at once: something is wrong with it.
    pub(super) check: bool,
    pub(super) wake: Arc<Notify>,
    /// Its keeper looks at it soon, whether or not it is woken.
    pub(super) armed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Idle {
        since: Instant,
    },
    Used,
    /// Its lease ended while its request runs. Lost: somebody else has it.
    Over {
        lost: bool,
    },
    /// It is being deleted.
    Going,
}

impl Own {
    /// One that was claimed just now, by a write that was sent then.
    pub(super) fn claimed(serial: u64, revision: u64, sent: Instant, now: Instant, phase: Phase) -> Self {
        Self { serial, revision, confirmed: sent, since: now, phase, check: false, wake: Arc::default(), armed: true }
    }

    pub(super) const fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn leased(&self, now: Instant, settings: &Settings) -> bool {
        now < self.confirmed + settings.lease()
    }
}

/// All of a subject, counted by what they are.
#[derive(Default)]
pub(super) struct Owned {
    slots: BTreeMap<u32, Own>,
    /// Idle ones by since when, and by number.
    idle: BTreeSet<(Instant, u32)>,
    idle_numbers: BTreeSet<u32>,
    used: u32,
    over: u32,
    lost: u32,
}

impl Owned {
    pub(super) fn get(&self, n: u32) -> Option<&Own> {
        self.slots.get(&n)
    }

    pub(super) fn get_mut(&mut self, n: u32) -> Option<&mut Own> {
        self.slots.get_mut(&n)
    }

    /// The one of this claim.
    pub(super) fn of(&mut self, n: u32, serial: u64) -> Option<&mut Own> {
        self.slots.get_mut(&n).filter(|own| own.serial == serial)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Own> {
        self.slots.values_mut()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Own> {
        self.slots.values()
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.slots.keys().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Slots that are held: idle ones and those in use.
    pub(super) fn held(&self) -> u32 {
        self.used + u32::try_from(self.idle.len()).unwrap_or(u32::MAX)
    }

    /// Those whose keys are this replica's as far as is known.
    pub(super) fn living(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX) - self.lost
    }

    /// Requests that run on them.
    pub(super) const fn running(&self) -> u32 {
        self.used + self.over
    }

    /// Requests that run on though the lease has ended.
    pub(super) const fn over_lease(&self) -> u32 {
        self.over
    }

    /// Idle ones, those used last first.
    pub(super) fn idle(&self) -> impl Iterator<Item = u32> {
        self.idle.iter().rev().map(|(_, n)| *n)
    }

    /// The greatest number of an idle one.
    pub(super) fn last_idle(&self) -> Option<u32> {
        self.idle_numbers.last().copied()
    }

    pub(super) fn put(&mut self, n: u32, own: Own) {
        self.remove(n);
        self.count(n, own.phase, true);
        self.slots.insert(n, own);
    }

    pub(super) fn remove(&mut self, n: u32) {
        if let Some(own) = self.slots.remove(&n) {
            self.count(n, own.phase, false);
        }
    }

    pub(super) fn set(&mut self, n: u32, phase: Phase) {
        let Some(own) = self.slots.get_mut(&n) else { return };
        let before = std::mem::replace(&mut own.phase, phase);
        self.count(n, before, false);
        self.count(n, phase, true);
    }

    fn count(&mut self, n: u32, phase: Phase, more: bool) {
        let step = |counter: &mut u32| *counter = if more { *counter + 1 } else { counter.saturating_sub(1) };
        match phase {
            Phase::Idle { since } if more => {
                self.idle.insert((since, n));
                self.idle_numbers.insert(n);
            }
            Phase::Idle { since } => {
                self.idle.remove(&(since, n));
                self.idle_numbers.remove(&n);
            }
            Phase::Used => step(&mut self.used),
            Phase::Over { lost } => {
                step(&mut self.over);
                if lost {
                    step(&mut self.lost);
                }
            }
            Phase::Going => {}
        }
    }
}
