//! How much of sources is in use over the fleet: what permits, bindings and beats tell of it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use waybill_event::{LogTime, Source, UsageWindow};
use waybill_journal::permits::{Settings, Taken};
use waybill_journal::presence::Beat;
use waybill_journal::{Entry, Watched};

/// Bindings that are counted; what comes beyond that isn't.
const MOST_BINDINGS: usize = 200_000;

/// After so long without any beat, what is in use isn't known.
const SILENCE: Duration = Duration::from_secs(5);

/// How much of one source is in use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InUse {
    /// Requests in flight: what replicas told with their last beats, and the slots of those that beat no more.
    pub in_flight: u32,
    /// Slots that replicas hold. One that became free is held for a second more, for the next request.
    pub slots: u32,
    /// Replicas with requests that wait for a slot.
    pub waiting: u32,
    /// Rate permits of the last minute.
    pub rate_used: u32,
    /// When the first of those is free again.
    pub rate_frees_at: Option<LogTime>,
    /// Conversations that are bound here.
    pub sessions: u32,
    /// What the upstream told of usage windows.
    pub headroom: Vec<UsageWindow>,
}

/// What was watched.
#[derive(Default)]
pub(super) struct Seen {
    taken: BTreeMap<String, (Taken, LogTime)>,
    bindings: HashMap<String, Source>,
    /// Attempts under way at each process that beats.
    busy: BTreeMap<String, BTreeMap<Source, u32>>,
    headroom: BTreeMap<Source, BTreeMap<String, UsageWindow>>,
    /// When anybody last told of itself.
    heard: Option<LogTime>,
}

impl Seen {
    pub(super) fn permitted(&mut self, told: &Watched) {
        match told {
            Watched::Put(Entry { key, value, stored_at, .. }) => {
                if let Some(taken) = Taken::read(key, value) {
                    self.taken.insert(key.clone(), (taken, *stored_at));
                }
            }
            Watched::Gone { key, .. } => drop(self.taken.remove(key)),
            Watched::Current => {}
        }
    }

    pub(super) fn bound(&mut self, told: &Watched) {
        match told {
            Watched::Put(entry) => {
                let source = std::str::from_utf8(&entry.value).ok().and_then(|text| text.parse().ok());
                let room = self.bindings.len() < MOST_BINDINGS || self.bindings.contains_key(&entry.key);
                if let Some(source) = source.filter(|_| room) {
                    self.bindings.insert(entry.key.clone(), source);
                }
            }
            Watched::Gone { key, .. } => drop(self.bindings.remove(key)),
            Watched::Current => {}
        }
    }

    /// A process tells of itself. What it was told of usage windows outlives it: the newest word counts until the window
    /// begins anew.
    pub(super) fn beaten(&mut self, name: &str, beat: Beat, now: LogTime) {
        for (source, windows) in beat.report.headroom {
            let known = self.headroom.entry(source).or_default();
            known.retain(|_, window| window.holds(now));
            for window in windows {
                if known.get(&window.name).is_none_or(|known| known.seen_at <= window.seen_at) {
                    known.insert(window.name.clone(), window);
                }
            }
        }
        self.busy.insert(name.to_owned(), beat.report.busy);
        self.heard = Some(now);
    }

    /// Whether what is in use is known: somebody has told of itself lately. Beats come once a second and by way of the log,
    /// so that silence means that the log is away, or that nothing runs.
    pub(super) fn known(&self, now: LogTime) -> bool {
        self.heard.is_some_and(|heard| now.since(heard) <= SILENCE)
    }

    pub(super) fn left(&mut self, name: &str) {
        self.busy.remove(name);
    }

    /// How much of each source is in use.
    pub(super) fn in_use(&self, now: LogTime) -> BTreeMap<Source, InUse> {
        let mut all: BTreeMap<Source, InUse> = BTreeMap::new();
        for (taken, stored_at) in self.taken.values() {
            match taken {
                Taken::Slot(source, holder) => {
                    let used = all.entry(*source).or_default();
                    add(&mut used.slots, 1);
                    // Nobody has it until it lapses.
                    if !self.busy.contains_key(holder.as_str()) {
                        add(&mut used.in_flight, 1);
                    }
                }
                Taken::Waits(source) => add(&mut all.entry(*source).or_default().waiting, 1),
                Taken::Rate(source, units) => {
                    let used = all.entry(*source).or_default();
                    add(&mut used.rate_used, *units);
                    let frees = *stored_at + Settings::default().rate_life();
                    used.rate_frees_at = Some(used.rate_frees_at.map_or(frees, |first| first.min(frees)));
                }
            }
        }
        for (source, busy) in self.busy.values().flatten() {
            add(&mut all.entry(*source).or_default().in_flight, *busy);
        }
        for source in self.bindings.values() {
            add(&mut all.entry(*source).or_default().sessions, 1);
        }
        for (source, windows) in &self.headroom {
            let holding = windows.values().filter(|window| window.holds(now)).cloned();
            all.entry(*source).or_default().headroom = holding.collect();
        }
        all
    }
}

fn add(sum: &mut u32, more: u32) {
    *sum = sum.saturating_add(more);
}
