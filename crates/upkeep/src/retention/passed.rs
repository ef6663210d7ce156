//! Up to where every fold has the traffic stream: the selector's checkpoint says so of itself, and whoever folds the read
//! models says so with each beat.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use waybill_domain::selector::{Checkpoint, FOLD_KEY};
use waybill_journal::presence::Beat;
use waybill_journal::{Bucket, Journal, Watched};

/// Before a watch that ended is begun again.
const AGAIN: Duration = Duration::from_secs(1);

/// How far a fold is isn't known, so that nothing may be purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unknown {
    #[error("how far the selector's fold is isn't known")]
    Selector,
    #[error("how far the read models are isn't known: nobody says that it folds them")]
    ReadModels,
}

#[derive(Debug, Default)]
struct Known {
    selector: Option<u64>,
    /// What each process says that folds the read models.
    read_models: BTreeMap<String, u64>,
}

/// What the folds say.
#[derive(Debug, Default)]
pub(super) struct Passed {
    known: Mutex<Known>,
}

impl Passed {
    /// The sequence up to which every fold has everything.
    pub(super) fn position(&self) -> Result<u64, Unknown> {
        let known = self.known.lock();
        let selector = known.selector.ok_or(Unknown::Selector)?;
        // Of two that both say so one is mistaken: the careful answer is right.
        let read_models = known.read_models.values().min().copied().ok_or(Unknown::ReadModels)?;
        Ok(selector.min(read_models))
    }

    /// Listens for as long as it is polled.
    pub(super) async fn watch(&self, journal: &Journal) -> Infallible {
        loop {
            let mut states = journal.keyed.watch(Bucket::Selector);
            let mut beats = journal.keyed.watch(Bucket::Presence);
            loop {
                let told = tokio::select! {
                    biased;
                    told = states.next() => told.map(|told| told.map(|told| self.hear_state(told))),
                    told = beats.next() => told.map(|told| told.map(|told| self.hear_beat(told))),
                };
                match told {
                    Some(Ok(())) => {}
                    // It goes on by itself.
                    Some(Err(error)) => tracing::debug!(%error, "the folds' positions can't be watched just now"),
                    None => break,
                }
            }
            *self.known.lock() = Known::default();
            tokio::time::sleep(AGAIN).await;
        }
    }

    fn hear_state(&self, told: Watched) {
        let selector = match told {
            Watched::Put(entry) if entry.key == FOLD_KEY => {
                serde_json::from_slice::<Checkpoint>(&entry.value).ok().map(|fold| fold.position.sequence)
            }
            Watched::Gone { key, .. } if key == FOLD_KEY => None,
            Watched::Put(_) | Watched::Gone { .. } | Watched::Current => return,
        };
        self.known.lock().selector = selector;
    }

    fn hear_beat(&self, told: Watched) {
        match told {
            Watched::Put(entry) => {
                let beat = serde_json::from_slice::<Beat>(&entry.value).ok();
                let mut known = self.known.lock();
                match beat.and_then(|beat| beat.report.traffic_folded) {
                    Some(position) => known.read_models.insert(entry.key, position),
                    None => known.read_models.remove(&entry.key),
                };
            }
            Watched::Gone { key, .. } => {
                self.known.lock().read_models.remove(&key);
            }
            Watched::Current => {}
        }
    }
}
