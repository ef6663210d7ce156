//! The whole fleet's selector state: every source, what was folded already, and the configuration that is adopted.
//!
//! Two streams have no common order. So edits are fed in as they come and wait; they count from the `config_applied`
//! marker on that names them, in this fold and in every repetition of it.

mod adopted;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use waybill_event::{Body, ConfigPosition, Event, LogTime, Mark, Position, Scope, Source};

use super::apply::{Transitions, apply_evidence};
use super::evidence::{Evidence, Place, Says};
use super::factors::{Load, factors};
use super::state::{ByHand, SourceState};
use super::transition::{Transition, Turn, Unannounced};
use crate::dedup::{Dedup, Seen};

use adopted::{Adopted, Edit, SourceEdit};

pub use adopted::UnknownEdit;

/// The fold has met a marker for configuration that it wasn't fed yet. Nothing was changed: feed it up to there and apply
/// the event again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("configuration up to {0} is needed first")]
pub struct NeedConfig(pub ConfigPosition);

/// A limit that is told again after this time is worth a write of its own; those who hear of it sooner were under way.
const TOLD_AGAIN: Duration = Duration::from_secs(1);

/// How soon a source's value must be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// It lacks an event that changes no decision yet.
    Lacks,
    /// A factor changed.
    Factor,
    /// A breaker, a block, a disabling or its configuration changed.
    Now,
}

/// Something that should not happen, for an alarm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Anomaly {
    /// An ordinal far above its boot's low-water mark: folded, but not remembered.
    TooFar(Mark),
    /// A boot was drained, and not all of its events were met.
    Missing {
        /// The last ordinal the boot wrote.
        last: Mark,
        /// The ordinal up to which all were met.
        low_water: u64,
    },
}

/// What an event did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Effects {
    /// Transitions, to be announced.
    pub transitions: Transitions,
    /// Sources whose written values lack something now.
    pub touched: SmallVec<[(Source, Urgency); 1]>,
    /// Sources that are no more.
    pub removed: SmallVec<[Source; 1]>,
    /// Whether the event was folded before.
    pub duplicate: bool,
    /// What should not happen.
    pub anomaly: Option<Anomaly>,
}

/// Up to where the written values are complete, and all that is needed to go on from there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Epoch of the leader that wrote it.
    pub epoch: u64,
    /// Position up to which every written value is complete.
    pub position: Position,
    /// Configuration adopted there.
    pub config: ConfigPosition,
    /// Events folded, per producer and boot.
    pub seen: Dedup,
    /// Transitions up to the position that the log had no room for: a new leader announces them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unannounced: Vec<Unannounced>,
}

/// The fleet's state.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FleetState {
    position: Position,
    seen: Dedup,
    adopted: Adopted,
    sources: BTreeMap<Source, SourceState>,
    /// The log began, or went on, in the middle: boots unknown so far may begin above 1.
    gap: bool,
}

impl FleetState {
    /// The state as written: a checkpoint and the values. Values may be ahead of the checkpoint; each skips what it
    /// covers. Feed the configuration from its beginning, then call [`FleetState::reconcile`].
    #[must_use]
    pub fn restore(checkpoint: Checkpoint, values: impl IntoIterator<Item = SourceState>) -> Self {
        let Checkpoint { epoch: _, position, config, seen, unannounced: _ } = checkpoint;
        let clean = |mut value: SourceState| {
            value.unannounced = Vec::new();
            (value.source, value)
        };
        let sources = values.into_iter().map(clean).collect();
        Self { position, seen, adopted: Adopted::restoring(config), sources, gap: false }
    }

    /// Feeds an edit. It waits for its marker.
    ///
    /// # Errors
    /// [`UnknownEdit`] for an edit that isn't known here: it is never passed over, so the fold stops at the next marker
    /// that asks for it.
    pub fn feed_config(&mut self, event: &Event, position: ConfigPosition) -> Result<(), UnknownEdit> {
        self.adopted.feed(event, position)
    }

    /// Configuration that was fed.
    #[must_use]
    pub const fn fed(&self) -> ConfigPosition {
        self.adopted.fed()
    }

    /// Configuration that is adopted.
    #[must_use]
    pub const fn adopted(&self) -> ConfigPosition {
        self.adopted.position()
    }

    /// The configuration that must be fed before anything is folded, if it wasn't yet.
    #[must_use]
    pub fn needs(&self) -> Option<NeedConfig> {
        (self.fed() < self.adopted()).then(|| NeedConfig(self.adopted()))
    }

    /// After a restore and its feeding: makes values that are missing, removes those of sources that are deleted.
    pub fn reconcile(&mut self) -> Effects {
        let mut effects = Effects::default();
        for (source, channel) in self.adopted.channels() {
            let held = self.sources.entry(source).or_insert_with(|| {
                effects.touched.push((source, Urgency::Now));
                self.adopted.fresh(source, channel.revisions)
            });
            held.rev = held.rev.max(channel.rev);
        }
        let gone: Vec<Source> = self.sources.keys().copied().filter(|s| self.adopted.is_deleted(*s)).collect();
        for source in gone {
            self.sources.remove(&source);
            effects.removed.push(source);
        }
        effects
    }

    /// The log has a hole here, or begins above its beginning: boots that are unknown may begin above 1.
    pub const fn begin_after_gap(&mut self) {
        self.gap = true;
    }

    /// Takes an event that can't be read as folded, so that the low-water mark doesn't stay behind it for ever.
    pub fn pass_over(&mut self, mark: Option<&Mark>, position: Position) {
        if position > self.position {
            self.position = position;
            if let Some(mark) = mark {
                self.seen.seen(mark);
            }
        }
    }

    /// Folds one event of the traffic stream. What stands at or below the present position was folded before.
    ///
    /// # Errors
    /// [`NeedConfig`] when configuration must be fed first; nothing is changed then.
    pub fn apply(&mut self, event: &Event, position: Position, stored_at: LogTime) -> Result<Effects, NeedConfig> {
        if position <= self.position {
            return Ok(Effects { duplicate: true, ..Effects::default() });
        }
        if let Some(need) = self.needs() {
            return Err(need);
        }
        if let Body::ConfigApplied(marker) = &event.draft.body
            && marker.position > self.fed()
        {
            return Err(NeedConfig(marker.position));
        }
        self.position = position;
        let mut effects = Effects::default();
        if let Some(mark) = event.identity.mark() {
            if self.gap {
                self.seen.begin_at(mark);
            }
            match self.seen.seen(mark) {
                Seen::New => {}
                Seen::Duplicate => return Ok(Effects { duplicate: true, ..Effects::default() }),
                Seen::TooFar => effects.anomaly = Some(Anomaly::TooFar(mark.clone())),
            }
        }
        let place = Place::stored(position, stored_at);
        match &event.draft.body {
            Body::ConfigApplied(marker) => {
                self.adopt(marker.position, place, event.draft.at.min(stored_at), &mut effects);
            }
            Body::OutboxDrained(drained) => {
                let low_water = self.seen.retire(&drained.replica, drained.boot).unwrap_or(drained.last);
                if low_water < drained.last {
                    let (producer, boot) = (drained.replica.clone(), drained.boot);
                    let last = Mark { producer, boot, n: drained.last };
                    effects.anomaly = Some(Anomaly::Missing { last, low_water });
                }
            }
            _ => {
                if let Some(evidence) = Evidence::of(event) {
                    self.evidence(&evidence, place, &mut effects);
                }
            }
        }
        Ok(effects)
    }

    /// Position of the last event folded.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.position
    }

    /// The sources and their states, as folded; positions and marks are those of their own last evidence.
    pub fn sources(&self) -> impl Iterator<Item = &SourceState> {
        self.sources.values()
    }

    /// The state of a source, as folded.
    #[must_use]
    pub fn source(&self, source: Source) -> Option<&SourceState> {
        self.sources.get(&source)
    }

    /// How many sources there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// The value of a source to be written by the leader of this epoch: complete up to the present position.
    #[must_use]
    pub fn value(&self, source: Source, epoch: u64) -> Option<SourceState> {
        let mut value = self.sources.get(&source)?.clone();
        // A restored value that is still ahead of the fold keeps what it states of itself.
        if value.position <= self.position {
            value.position = self.position;
            value.config = value.config.max(self.adopted.position());
            value.marks = self.seen.live().collect();
        }
        value.epoch = epoch;
        Some(value)
    }

    /// The checkpoint of the present position, to be written when all values are complete up to there.
    #[must_use]
    pub fn checkpoint(&self, epoch: u64) -> Checkpoint {
        Checkpoint {
            epoch,
            position: self.position,
            config: self.adopted.position(),
            seen: self.seen.clone(),
            unannounced: Vec::new(),
        }
    }

    fn evidence(&mut self, evidence: &Evidence, place: Place, effects: &mut Effects) {
        let source = evidence.source;
        if self.adopted.is_deleted(source) {
            return;
        }
        let fresh = || self.adopted.fresh(source, super::state::Revisions::default());
        let state = self.sources.entry(source).or_insert_with(fresh);
        // The value it was restored from holds this event already.
        if place.position.is_some_and(|position| position <= state.position) {
            return;
        }
        let model = match &evidence.says {
            Says::Outcome { upstream_model, .. } => Some(upstream_model.as_str()),
            Says::Probe { model, .. } => model.as_deref(),
            Says::Refreshed { .. } | Says::RefreshFailed { .. } => None,
        };
        let judged = |state: &SourceState| factors(state, model.unwrap_or_default(), Load::default(), state.clock);
        let told = |state: &SourceState| {
            let model = model.and_then(|model| state.models.get(model));
            [Some(&state.whole), model].into_iter().flatten().filter_map(|scope| scope.blocks.limit_told()).max()
        };
        let (before, told_before) = (judged(state), told(state));
        let transitions = apply_evidence(state, evidence, place);
        // Whoever may try a limit again goes by when it was last told.
        let told_again = told(state).zip(told_before).is_some_and(|(now, before)| now.since(before) >= TOLD_AGAIN);
        let urgency = match (transitions.is_empty() && !told_again, judged(state) == before) {
            (false, _) => Urgency::Now,
            (true, false) => Urgency::Factor,
            (true, true) => Urgency::Lacks,
        };
        effects.transitions.extend(transitions);
        effects.touched.push((source, urgency));
    }

    fn adopt(&mut self, to: ConfigPosition, place: Place, t: LogTime, effects: &mut Effects) {
        for edit in self.adopted.advance(to) {
            match edit {
                Edit::Source(edit) => self.adopt_channel(&edit, place, t, effects),
                Edit::PolicyOfMany => {
                    let all: Vec<Source> = self.sources.keys().copied().collect();
                    all.into_iter().for_each(|source| self.adopt_policy(source, place, effects));
                }
                Edit::PolicyOf(source) => self.adopt_policy(source, place, effects),
                Edit::ByHand(scope, done) => self.adopt_by_hand(&scope, done, place, t, effects),
            }
        }
    }

    fn adopt_channel(&mut self, edit: &SourceEdit, place: Place, t: LogTime, effects: &mut Effects) {
        let source = edit.source;
        if edit.deleted {
            if self.sources.remove(&source).is_some() {
                effects.removed.push(source);
            }
            return;
        }
        let (policy, config) = (self.adopted.policy_of(source), self.adopted.position());
        let mut changed = false;
        let state = self.sources.entry(source).or_insert_with(|| {
            changed = true;
            self.adopted.fresh(source, edit.revisions)
        });
        if place.position.is_some_and(|position| position <= state.position) {
            return;
        }
        let before = state.disabled.as_ref().map(|disabled| std::sync::Arc::clone(&disabled.id));
        changed |= state.adopt_revisions(edit.revisions);
        // Another provider may have other numbers.
        changed |= state.adopt_policy(policy);
        if edit.put_back {
            state.disabled = None;
        }
        changed |= state.rev == 0;
        state.rev = edit.rev;
        state.config = config;
        if let Some(disabling) = before.filter(|_| state.disabled.is_none()) {
            let (scope, position) = (state.scope(), place.position);
            let turn = Turn::Enabled { disabling };
            effects.transitions.push(Transition { scope, cause: None, position, t, turn });
            changed = true;
        }
        if changed {
            effects.touched.push((source, Urgency::Now));
        }
    }

    fn adopt_by_hand(&mut self, scope: &Scope, done: ByHand, place: Place, t: LogTime, effects: &mut Effects) {
        let config = self.adopted.position();
        let Some(state) = self.sources.get_mut(&scope.source) else { return };
        if place.position.is_some_and(|position| position <= state.position) {
            return;
        }
        let ended = state.adopt_by_hand(scope.model.as_deref(), done, t);
        state.config = config;
        let position = place.position;
        let told = ended.into_iter().map(|(scope, turn)| Transition { scope, cause: None, position, t, turn });
        effects.transitions.extend(told);
        effects.touched.push((scope.source, Urgency::Now));
    }

    fn adopt_policy(&mut self, source: Source, place: Place, effects: &mut Effects) {
        let (policy, config) = (self.adopted.policy_of(source), self.adopted.position());
        let Some(state) = self.sources.get_mut(&source) else { return };
        if place.position.is_some_and(|position| position <= state.position) {
            return;
        }
        if state.adopt_policy(policy) {
            state.config = config;
            effects.touched.push((source, Urgency::Now));
        }
    }
}
