//! A replica's view of a source: the shared value and, on top, the replica's own events that the value doesn't hold yet,
//! folded under the value's policy. Never both, never neither.

use std::collections::VecDeque;

use waybill_event::config::SelectorPolicy;
use waybill_event::{Boot, ConfigPosition, Event, LogTime, Mark, Position, ProducerId, Source};

use super::apply::{Transitions, apply_evidence};
use super::evidence::{Evidence, Place};
use super::state::{Revisions, SourceState};

/// Own events of one source that are kept on top of the shared value. A replica whose events don't reach the log for
/// long keeps what they did, but can't fold the oldest ones again on top of a newer value.
pub const OWN_MAX: usize = 4_096;

/// What became of a shared value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// It is the base now.
    Taken,
    /// It is older than the base, and was left.
    Older,
}

/// A replica's view of one source.
#[derive(Debug, Clone)]
pub struct View {
    own_mark: Mark,
    /// What the fold has published, or an empty state before it did.
    shared: Option<SourceState>,
    /// Newest credential and base URL that the catalogue has told of.
    catalog: Revisions,
    /// Newest tokens of an account that this replica has, and since when.
    token: (u64, LogTime),
    own: VecDeque<Evidence>,
    state: SourceState,
    forgotten: u64,
}

impl View {
    /// A view of a source of which nothing is published yet.
    #[must_use]
    pub fn new(source: Source, producer: ProducerId, boot: Boot) -> Self {
        let state =
            SourceState::new(source, Revisions::default(), SelectorPolicy::default(), ConfigPosition::default());
        let own_mark = Mark { producer, boot, n: 0 };
        Self {
            own_mark,
            shared: None,
            catalog: Revisions::default(),
            token: Default::default(),
            own: VecDeque::new(),
            state,
            forgotten: 0,
        }
    }

    /// Folds one of the replica's own events in, at once. Events of others and of other sources change nothing.
    pub fn own(&mut self, event: &Event) -> Transitions {
        let Some(evidence) = Evidence::of(event).filter(|e| e.source == self.state.source && self.is_own(&e.mark))
        else {
            return Transitions::new();
        };
        let known = self.shared.as_ref().map_or(0, |shared| shared.low_water(&self.own_mark));
        if evidence.mark.n <= known || self.own.back().is_some_and(|last| evidence.mark.n <= last.mark.n) {
            return Transitions::new();
        }
        let transitions = apply_evidence(&mut self.state, &evidence, Place::OWN);
        if self.own.len() >= OWN_MAX {
            self.own.pop_front();
            self.forgotten = self.forgotten.saturating_add(1);
        }
        self.own.push_back(evidence);
        transitions
    }

    /// Takes over a newer shared value: own events that it holds are dropped, the rest is folded on top of it. It never
    /// goes backwards.
    pub fn replace(&mut self, value: SourceState) -> Replaced {
        let older = self.shared.as_ref().is_some_and(|shared| {
            value.epoch < shared.epoch || value.position < shared.position || value.config < shared.config
        });
        if older || value.source != self.state.source {
            return Replaced::Older;
        }
        let low_water = value.low_water(&self.own_mark);
        self.own.retain(|evidence| evidence.mark.n > low_water);
        self.shared = Some(value);
        self.fold_again();
        Replaced::Taken
    }

    /// The catalogue tells of a credential or base URL: evidence made with older ones is void at once, so that an edit
    /// heals also while nobody folds the log. Says whether anything changed.
    pub fn adopt(&mut self, revisions: Revisions) -> bool {
        let newest = self.catalog.newest(revisions);
        if newest == self.catalog {
            return false;
        }
        self.catalog = newest;
        let changed = self.state.revisions.older_than(newest);
        if changed {
            self.fold_again();
        }
        changed
    }

    /// The replica has newer tokens of an account than before: what says that older ones were refused is void at once,
    /// also while nobody folds the log. Says whether anything changed.
    pub fn refreshed(&mut self, credential: u64, now: LogTime) -> bool {
        if credential <= self.token.0 {
            return false;
        }
        self.token = (credential, now);
        !self.state.adopt_token(credential, now).is_empty()
    }

    /// The state as this replica sees it.
    #[must_use]
    pub const fn state(&self) -> &SourceState {
        &self.state
    }

    /// Whether the fold has published a value of this source.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Position up to which the shared value is folded; `None` before there is one.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.shared.as_ref().map(|shared| shared.position)
    }

    /// First and last ordinal of the own events on top of the shared value.
    #[must_use]
    pub fn own_range(&self) -> Option<(u64, u64)> {
        Some((self.own.front()?.mark.n, self.own.back()?.mark.n))
    }

    /// How many own events were too many to be kept on top of the shared value.
    #[must_use]
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn is_own(&self, mark: &Mark) -> bool {
        mark.boot == self.own_mark.boot && mark.producer == self.own_mark.producer
    }

    fn fold_again(&mut self) {
        let base = self.shared.clone().unwrap_or_else(|| {
            let source = self.state.source;
            SourceState::new(source, Revisions::default(), SelectorPolicy::default(), ConfigPosition::default())
        });
        self.state = base;
        self.state.adopt_revisions(self.catalog);
        let (token, since) = self.token;
        self.state.adopt_token(token, since);
        for evidence in &self.own {
            apply_evidence(&mut self.state, evidence, Place::OWN);
        }
    }
}
