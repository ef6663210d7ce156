//! The selector's fold begun anew over the log, each event once, with all configuration at hand: what everybody's state
//! is measured by.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use waybill_domain::selector::fleet::FleetState;
use waybill_domain::selector::{Place, SourceState, Transition, evidence::Evidence};
use waybill_event::{ConfigPosition, Position, Source};

use super::log::Log;
use crate::ground::Ground;

/// The states of sources that somebody judged by, by position.
pub type Wanted = BTreeMap<Position, BTreeSet<Source>>;

/// What the fold gives.
pub struct Reference {
    /// The states that were wanted.
    pub states: BTreeMap<(Position, Source), SourceState>,
    /// The states when the fleet rested.
    pub rested: BTreeMap<Source, SourceState>,
    /// The states at the end.
    pub fleet: FleetState,
    /// Every transition, by its announcement's id.
    pub transitions: BTreeMap<String, Transition>,
    /// Events that came too late to be evidence.
    pub late: u64,
}

impl Reference {
    /// Folds the log; keeps what is wanted, and the states as of message `rest`.
    pub fn fold(ground: &Ground, log: &Log, wanted: &Wanted, rest: u64) -> Self {
        let mut fleet = FleetState::default();
        for (position, edit) in (1..).zip(&log.edits) {
            fleet.feed_config(edit, ConfigPosition(position)).expect("every edit is known");
        }
        let mut folded = Self {
            states: BTreeMap::new(),
            rested: BTreeMap::new(),
            fleet: FleetState::default(),
            transitions: BTreeMap::new(),
            late: 0,
        };
        let mut wanted = wanted.iter().peekable();
        let keep = |fleet: &FleetState| fleet.sources().map(|state| (state.source, state.clone())).collect();
        for placed in &log.events {
            // A state at a position holds everything up to there: it is kept before the next event is folded.
            while let Some((position, sources)) = wanted.next_if(|(position, _)| **position < placed.position) {
                folded.keep(&fleet, *position, sources);
            }
            if placed.position.sequence > rest && folded.rested.is_empty() {
                folded.rested = keep(&fleet);
            }
            let effects = fleet.apply(&placed.event, placed.position, placed.stored_at).expect("all edits are fed");
            if effects.duplicate || effects.anomaly.is_some() {
                ground.violated("the log isn't what it should be", &format!("{}: {effects:?}", placed.position));
            }
            let place = Place::stored(placed.position, placed.stored_at);
            let late = Evidence::of(&placed.event).is_some_and(|evidence| {
                let state = fleet.source(evidence.source);
                let after = state.map_or(u64::MAX, |state| state.policy.late_after_ms);
                evidence.is_late(place, Duration::from_millis(after))
            });
            folded.late += u64::from(late);
            if late && !effects.transitions.is_empty() {
                ground.violated("late evidence has consequences", &format!("{:?}", effects.transitions));
            }
            for transition in effects.transitions {
                folded.transitions.insert(transition.event_id(), transition);
            }
        }
        for (position, sources) in wanted {
            folded.keep(&fleet, *position, sources);
        }
        if folded.rested.is_empty() {
            folded.rested = keep(&fleet);
        }
        folded.fleet = fleet;
        folded
    }

    fn keep(&mut self, fleet: &FleetState, position: Position, sources: &BTreeSet<Source>) {
        for source in sources {
            if let Some(mut state) = fleet.value(*source, 0) {
                state.position = position;
                self.states.insert((position, *source), state);
            }
        }
    }
}
