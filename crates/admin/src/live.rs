//! The live state of sources, as the selector's fold publishes it: kept from a watch of the keyed state. And how far
//! that fold is, as whoever folds it says with each beat.

mod in_use;
mod spent;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_domain::probing::{Hold, disabled_source};
use waybill_domain::selector::state::SourceState;
use waybill_event::{LogTime, NanoUsd, Position, Source};
use waybill_journal::presence::Beat;
use waybill_journal::{Bucket, Keyed, Watched};

pub use self::in_use::InUse;
use self::in_use::Seen;
use self::spent::Spending;
pub use self::spent::Spent;
use crate::clock::Clock;

/// A source's state with when it was written.
#[derive(Debug, Clone)]
pub struct LiveSource {
    /// The state.
    pub state: Arc<SourceState>,
    /// When the store took it.
    pub stored_at: LogTime,
}

/// What is known of the watch itself.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// Whether everything that was there at the start has been told.
    pub current: bool,
    /// Why nothing comes, where that is so.
    pub fault: Option<String>,
    /// The greatest position that any value stands at.
    pub position: Option<Position>,
    /// Sequence in the traffic stream up to which it is folded; `None` while nobody says that it folds it.
    pub folded: Option<u64>,
}

#[derive(Default)]
struct Kept {
    sources: BTreeMap<Source, LiveSource>,
    /// Probes of disabled sources.
    probes: BTreeMap<Source, Hold>,
    watch: Watch,
    /// What each process says that folds the selector.
    folded: BTreeMap<String, u64>,
    /// What is in use.
    seen: Seen,
    /// What sessions spend.
    spending: Spending,
}

/// The live state of all sources. Cheap to clone.
#[derive(Clone, Default)]
pub struct Live {
    kept: Arc<RwLock<Kept>>,
}

impl Live {
    /// Starts watching in a task of `tasks` that ends with `stop`.
    #[must_use]
    pub fn start(keyed: Arc<dyn Keyed>, clock: Clock, tasks: &TaskTracker, stop: CancellationToken) -> Self {
        let live = Self::default();
        let watcher = live.clone();
        tasks.spawn(async move {
            let mut watching = keyed.watch(Bucket::Selector);
            let mut beats = keyed.watch(Bucket::Presence);
            let mut permits = keyed.watch(Bucket::Permits);
            let mut bindings = keyed.watch(Bucket::Sticky);
            loop {
                let told = tokio::select! {
                    () = stop.cancelled() => return,
                    told = watching.next() => told,
                    beat = beats.next() => match beat {
                        Some(beat) => {
                            watcher.hear(beat.ok(), clock());
                            continue;
                        }
                        None => return,
                    },
                    permit = permits.next() => match permit {
                        Some(permit) => {
                            watcher.permitted(permit.ok());
                            continue;
                        }
                        None => return,
                    },
                    binding = bindings.next() => match binding {
                        Some(Ok(binding)) => {
                            watcher.bound(&binding);
                            continue;
                        }
                        Some(Err(_)) => continue,
                        None => return,
                    },
                };
                match told {
                    Some(Ok(watched)) => watcher.take(watched),
                    Some(Err(error)) => watcher.kept.write().watch.fault = Some(error.to_string()),
                    None => return,
                }
            }
        });
        live
    }

    fn take(&self, watched: Watched) {
        let mut kept = self.kept.write();
        kept.watch.fault = None;
        match watched {
            Watched::Current => kept.watch.current = true,
            Watched::Gone { key, .. } => {
                if let Ok(source) = key.parse::<Source>() {
                    kept.sources.remove(&source);
                }
            }
            Watched::Put(entry) => {
                // The other keys of the bucket are the fold's own.
                let Ok(source) = entry.key.parse::<Source>() else { return };
                match serde_json::from_slice::<SourceState>(&entry.value) {
                    Ok(state) => {
                        kept.watch.position = kept.watch.position.max(Some(state.position));
                        let live = LiveSource { state: Arc::new(state), stored_at: entry.stored_at };
                        kept.sources.insert(source, live);
                    }
                    Err(error) => tracing::warn!(%error, %source, "a source's state can't be read"),
                }
            }
        }
    }

    /// A beat, or that a process beats no more.
    fn hear(&self, told: Option<Watched>, now: LogTime) {
        let mut kept = self.kept.write();
        match told {
            Some(Watched::Put(entry)) => {
                let beat = serde_json::from_slice::<Beat>(&entry.value).ok();
                match beat.as_ref().and_then(|beat| beat.report.selector_folded) {
                    Some(position) => kept.folded.insert(entry.key.clone(), position),
                    None => kept.folded.remove(&entry.key),
                };
                if let Some(beat) = beat {
                    kept.seen.beaten(&entry.key, beat, now);
                }
            }
            Some(Watched::Gone { key, .. }) => {
                kept.folded.remove(&key);
                kept.seen.left(&key);
            }
            Some(Watched::Current) | None => {}
        }
        // Of two that both say so one was followed by the other.
        kept.watch.folded = kept.folded.values().max().copied();
    }

    /// A binding, or what a session spends, was written, or is gone.
    fn bound(&self, told: &Watched) {
        let mut kept = self.kept.write();
        kept.seen.bound(told);
        kept.spending.take(told);
    }

    /// A permit was written, or is gone.
    fn permitted(&self, told: Option<Watched>) {
        if let Some(told) = &told {
            self.kept.write().seen.permitted(told);
        }
        match told {
            Some(Watched::Put(entry)) => {
                let Some(source) = disabled_source(&entry.key) else { return };
                if let Ok(hold) = serde_json::from_slice(&entry.value) {
                    self.kept.write().probes.insert(source, hold);
                }
            }
            Some(Watched::Gone { key, .. }) => {
                if let Some(source) = disabled_source(&key) {
                    self.kept.write().probes.remove(&source);
                }
            }
            Some(Watched::Current) | None => {}
        }
    }

    /// How the probes of a disabled source stand: those of this very disabling.
    #[must_use]
    pub fn probes(&self, source: Source, disabling: &str) -> Option<Hold> {
        self.kept.read().probes.get(&source).filter(|hold| *hold.disabling == *disabling).cloned()
    }

    /// The state of one source, where the fold has one.
    #[must_use]
    pub fn of(&self, source: Source) -> Option<LiveSource> {
        self.kept.read().sources.get(&source).cloned()
    }

    /// How much of each source is in use over the fleet; those of which nothing is aren't told.
    #[must_use]
    pub fn in_use(&self, now: LogTime) -> BTreeMap<Source, InUse> {
        self.kept.read().seen.in_use(now)
    }

    /// Whether what is in use is known at this moment; not while the log is away.
    #[must_use]
    pub fn in_use_known(&self, now: LogTime) -> bool {
        self.kept.read().seen.known(now)
    }

    /// What sessions have spent on a source within a window that ends now.
    #[must_use]
    pub fn spent(&self, source: Source, window: Duration, limit: NanoUsd, now: LogTime) -> Spent {
        self.kept.read().spending.of(source, window, limit, now)
    }

    /// How the watch stands.
    #[must_use]
    pub fn watch(&self) -> Watch {
        self.kept.read().watch.clone()
    }
}
