//! Slots that other replicas hold, as the watch told.

use std::collections::BTreeMap;

use tokio::time::Instant;
use waybill_event::ProducerId;

use super::ends::Ends;

struct Theirs {
    holder: ProducerId,
    /// The store said that it is gone, at a time when that isn't to be relied on.
    gone: bool,
}

#[derive(Default)]
pub(super) struct Others {
    slots: BTreeMap<u32, Theirs>,
    lapses: Ends,
    /// How many each of them holds.
    held: BTreeMap<ProducerId, u32>,
    living: u32,
}

impl Others {
    /// How many are held, as far as is known.
    pub(super) const fn living(&self) -> u32 {
        self.living
    }

    /// How many may be held, whatever the store says of them just now.
    pub(super) fn maybe(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn held_by(&self, replica: &ProducerId) -> u32 {
        self.held.get(replica).copied().unwrap_or_default()
    }

    /// Whether one of them holds it.
    pub(super) fn hold(&self, n: u32) -> bool {
        self.slots.get(&n).is_some_and(|theirs| !theirs.gone)
    }

    /// Which of them holds it.
    pub(super) fn holder(&self, n: u32) -> Option<&ProducerId> {
        self.slots.get(&n).filter(|theirs| !theirs.gone).map(|theirs| &theirs.holder)
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().filter(|(_, theirs)| !theirs.gone).map(|(n, _)| *n)
    }

    /// Somebody holds a slot until then. Whether that is news.
    pub(super) fn took(&mut self, n: u32, holder: ProducerId, lapses: Instant) -> bool {
        let known = self.slots.get(&n).is_some_and(|theirs| theirs.holder == holder && !theirs.gone);
        self.lapses.set(n, lapses);
        if !known {
            let before = self.slots.insert(n, Theirs { holder: holder.clone(), gone: false });
            self.ceases(before.as_ref());
            *self.held.entry(holder).or_default() += 1;
            self.living += 1;
        }
        !known
    }

    /// One is gone. Where that isn't to be relied on it may still be somebody's.
    pub(super) fn gone(&mut self, n: u32, relied: bool) {
        if relied {
            return self.remove(n);
        }
        if let Some(theirs) = self.slots.get_mut(&n) {
            let before = Theirs { holder: theirs.holder.clone(), gone: theirs.gone };
            theirs.gone = true;
            self.ceases(Some(&before));
        }
    }

    /// One is nobody's of them.
    pub(super) fn remove(&mut self, n: u32) {
        self.lapses.clear(n);
        let before = self.slots.remove(&n);
        self.ceases(before.as_ref());
    }

    /// Forgets one that has lapsed.
    pub(super) fn lapsed(&mut self, now: Instant) -> Option<u32> {
        let n = self.lapses.over(now)?;
        let before = self.slots.remove(&n);
        self.ceases(before.as_ref());
        Some(n)
    }

    /// What was held is held no longer.
    fn ceases(&mut self, before: Option<&Theirs>) {
        let Some(theirs) = before.filter(|theirs| !theirs.gone) else { return };
        self.living -= 1;
        if let Some(held) = self.held.get_mut(&theirs.holder) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&theirs.holder);
            }
        }
    }
}
