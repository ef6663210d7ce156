//! This replica's view of every source: shared state plus own events, and what the fleet has in flight there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use foldhash::HashMap;
use parking_lot::{Mutex, RwLock};
use waybill_domain::catalog::{Ability, Catalog};
use waybill_domain::selector::table::Row;
use waybill_domain::selector::{Load, Revisions, SourceState, View};
use waybill_event::{Boot, Event, LogTime, ProducerId, Source};

use crate::gates::Gates;

/// One source as this replica sees it.
pub struct SourceView {
    /// Its view. Held while the replica's own events about it are appended, so that they are folded in their order.
    pub view: Mutex<View>,
    in_flight: AtomicU32,
    elsewhere: AtomicU32,
}

impl SourceView {
    /// Attempts under way from this replica.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Attempts under way from the other replicas, as far as their beats tell.
    #[must_use]
    pub fn elsewhere(&self) -> u32 {
        self.elsewhere.load(Ordering::Relaxed)
    }

    /// Attempts under way from the whole fleet.
    #[must_use]
    pub fn fleet_wide(&self) -> u32 {
        self.in_flight().saturating_add(self.elsewhere())
    }
}

/// An attempt that is counted as under way until this is dropped.
pub struct InFlight(Arc<SourceView>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All views.
pub struct Views {
    producer: ProducerId,
    boot: Boot,
    /// What knows how much of a limit is in use at this moment.
    gates: Option<Gates>,
    sources: RwLock<HashMap<Source, Arc<SourceView>>>,
    /// Rises whenever the eligibility of a source may have changed: tables made before are void.
    generation: AtomicU64,
}

impl Views {
    /// No source is known yet.
    #[must_use]
    pub fn new(producer: ProducerId, boot: Boot, gates: Option<Gates>) -> Self {
        Self { producer, boot, gates, sources: RwLock::default(), generation: AtomicU64::new(1) }
    }

    /// The view of a source; an empty one when nothing is known of it.
    #[must_use]
    pub fn of(&self, source: Source) -> Arc<SourceView> {
        if let Some(found) = self.sources.read().get(&source) {
            return found.clone();
        }
        let new = || {
            let view = View::new(source, self.producer.clone(), self.boot);
            let (in_flight, elsewhere) = (AtomicU32::new(0), AtomicU32::new(0));
            Arc::new(SourceView { view: Mutex::new(view), in_flight, elsewhere })
        };
        self.sources.write().entry(source).or_insert_with(new).clone()
    }

    /// Counts an attempt as under way.
    #[must_use]
    pub fn enter(&self, source: Source) -> InFlight {
        let view = self.of(source);
        view.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(view)
    }

    /// Judges a candidate as of now.
    #[must_use]
    pub fn judge(&self, catalog: &Catalog, ability: &Ability, now: LogTime) -> Row {
        let entry = self.of(ability.source);
        let max_concurrent = ability.entity.limits().max_concurrent;
        let slots = max_concurrent.and(self.gates.as_ref()).map(|gates| gates.seen(ability.source).in_flight);
        let load = Load { in_flight: slots.unwrap_or_else(|| entry.fleet_wide()), max_concurrent };
        let view = entry.view.lock();
        let by_hand = catalog.by_hand(ability.source, &ability.upstream_model);
        Row::judge(ability, Some(&view), load, by_hand, now)
    }

    /// Sources that this replica has attempts under way at, with their number.
    #[must_use]
    pub fn busy(&self) -> BTreeMap<Source, u32> {
        let sources = self.sources.read();
        let busy = sources.iter().map(|(source, entry)| (*source, entry.in_flight()));
        busy.filter(|(_, in_flight)| *in_flight > 0).collect()
    }

    /// What the other replicas have under way. Tables take it up in their own rhythm: load makes nobody ineligible.
    pub fn hear(&self, others: &BTreeMap<Source, u32>) {
        for (source, entry) in self.sources.read().iter() {
            entry.elsewhere.store(others.get(source).copied().unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// Folds an own event into a view whose lock is held.
    pub fn fold_own(&self, view: &mut View, event: &Event) {
        if !view.own(event).is_empty() {
            self.touch();
        }
    }

    /// Takes over a value that the fold has published.
    pub fn replace(&self, state: SourceState) {
        let entry = self.of(state.source);
        let mut view = entry.view.lock();
        let before = fingerprint(view.state());
        view.replace(state);
        if fingerprint(view.state()) != before {
            self.touch();
        }
    }

    /// The catalogue names a credential and a base URL.
    pub fn adopt(&self, source: Source, revisions: Revisions) {
        if self.of(source).view.lock().adopt(revisions) {
            self.touch();
        }
    }

    /// This replica has newer tokens of an account, given at `since`.
    pub fn refreshed(&self, source: Source, credential: u64, since: LogTime) {
        if self.of(source).view.lock().refreshed(credential, since) {
            self.touch();
        }
    }

    /// A source that no longer exists.
    pub fn forget(&self, source: Source) {
        self.sources.write().remove(&source);
        self.touch();
    }

    /// Every table made so far is void.
    pub fn touch(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// The generation that tables made now belong to.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// All views, in the order of their sources.
    #[must_use]
    pub fn all(&self) -> Vec<(Source, Arc<SourceView>)> {
        let mut all: Vec<_> = self.sources.read().iter().map(|(s, v)| (*s, v.clone())).collect();
        all.sort_by_key(|(source, _)| *source);
        all
    }
}

/// What of a state decides about eligibility; factors are left to the tables' own rhythm.
fn fingerprint(state: &SourceState) -> impl PartialEq + use<> {
    let scopes = std::iter::once(&state.whole).chain(state.models.values());
    let scopes: Vec<_> = scopes.map(|scope| (scope.breaker.clone(), scope.blocks.clone())).collect();
    (scopes, state.disabled.clone(), state.revisions)
}
