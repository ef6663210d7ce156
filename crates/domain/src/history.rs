//! The read models' rows, as a fold of the log.
//!
//! Two folds stand here, of two streams: [`TrafficRows`] of what happened, [`ConfigRows`] of configuration. Both are used
//! by the projector, on the rows that a batch touches, and by a fold from scratch, which must give the same rows.
//! Events of one request may come in any order: each fills its own fields, and what has been filled stays.

mod ability;
mod attempt;
mod config;
mod config_history;
mod day;
mod entity;
mod line;
mod outcome;
mod request;
mod story;
mod text;
mod traffic;
mod transition;

use waybill_event::{Event, LogTime, Position};

pub use ability::AbilityRow;
pub use attempt::AttemptRow;
pub use config::{ConfigRows, TouchedConfig};
pub use config_history::ConfigHistoryRow;
pub use day::Day;
pub use entity::{GroupRow, KeyRow, SourceRow};
pub use line::{Line, lines};
pub use outcome::OutcomeRow;
pub use request::{RequestRow, RequestState, UsageFrom};
pub use story::{CauseAttempt, StoryLine};
pub use text::without_nul;
pub use traffic::{Applied, Touched, TrafficRows};
pub use transition::{SelectionTableRow, TransitionRow};

/// Version of the traffic rows: what is folded under another one must be rebuilt.
pub const TRAFFIC_VERSION: u32 = 1;
/// Version of the configuration rows.
pub const CONFIG_VERSION: u32 = 1;

/// An event with its place in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// The event.
    pub event: Event,
    /// Where it stands.
    pub position: Position,
    /// When the store took it, by the store's clock.
    pub stored_at: LogTime,
}

impl Placed {
    /// The event's time as folds count it: never later than the store took it.
    #[must_use]
    pub fn time(&self) -> LogTime {
        self.event.draft.at.min(self.stored_at)
    }
}

#[cfg(test)]
mod tests;
