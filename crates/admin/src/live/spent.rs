//! What sessions have spent on accounts, summed up.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use waybill_event::{LogTime, NanoUsd, Source};
use waybill_journal::Watched;
use waybill_journal::spending::Entry;

/// Entries of one account that are summed up: one for each session and replica. What comes beyond that isn't.
const MOST: usize = 50_000;

/// What the sessions of an account have spent within its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// Sessions that have spent anything.
    pub sessions: u32,
    /// All of them together.
    pub total: NanoUsd,
    /// The one that has spent the most.
    pub most: NanoUsd,
    /// Sessions that have spent all they may.
    pub used_up: u32,
}

#[derive(Default)]
pub(super) struct Spending {
    entries: BTreeMap<Source, HashMap<String, Entry>>,
}

impl Spending {
    pub(super) fn take(&mut self, told: &Watched) {
        match told {
            Watched::Put(stored) => {
                let Some(entry) = Entry::read(&stored.key, &stored.value) else { return };
                let entries = self.entries.entry(entry.source).or_default();
                if entries.len() < MOST || entries.contains_key(&stored.key) {
                    entries.insert(stored.key.clone(), entry);
                }
            }
            Watched::Gone { key, .. } => {
                if let Some(source) = Entry::source(key)
                    && let Some(entries) = self.entries.get_mut(&source)
                {
                    entries.remove(key);
                }
            }
            Watched::Current => {}
        }
    }

    pub(super) fn of(&self, source: Source, window: Duration, limit: NanoUsd, now: LogTime) -> Spent {
        let mut sessions: HashMap<&str, i64> = HashMap::new();
        for entry in self.entries.get(&source).into_iter().flat_map(HashMap::values) {
            let spent = entry.within(window, now).0;
            if spent > 0 {
                let sum = sessions.entry(entry.session.as_str()).or_default();
                *sum = sum.saturating_add(spent);
            }
        }
        Spent {
            sessions: u32::try_from(sessions.len()).unwrap_or(u32::MAX),
            total: NanoUsd(sessions.values().fold(0, |sum, spent| sum.saturating_add(*spent))),
            most: NanoUsd(sessions.values().copied().max().unwrap_or(0)),
            used_up: u32::try_from(sessions.values().filter(|spent| **spent >= limit.0).count()).unwrap_or(u32::MAX),
        }
    }
}
