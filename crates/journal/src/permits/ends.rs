//! Until when numbers count as something, in the order in which they cease to.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

#[derive(Default)]
pub(super) struct Ends {
    at: BTreeMap<u32, Instant>,
    order: BTreeSet<(Instant, u32)>,
}

impl Ends {
    pub(super) fn has(&self, n: u32) -> bool {
        self.at.contains_key(&n)
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.at.keys().copied()
    }

    /// A number counts until then, whatever was said before.
    pub(super) fn set(&mut self, n: u32, until: Instant) {
        self.clear(n);
        self.at.insert(n, until);
        self.order.insert((until, n));
    }

    pub(super) fn clear(&mut self, n: u32) {
        if let Some(until) = self.at.remove(&n) {
            self.order.remove(&(until, n));
        }
    }

    /// Takes out one that counts no longer.
    pub(super) fn over(&mut self, now: Instant) -> Option<u32> {
        let (_, n) = *self.order.first().filter(|(until, _)| *until <= now)?;
        self.clear(n);
        Some(n)
    }
}
