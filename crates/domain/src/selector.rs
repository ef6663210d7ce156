//! The selector's state: windows, breakers, blocks and disabling per source, folded from the log by one function; and the
//! decisions made from it: eligibility, factors, selection tables, the plan of a request.
//!
//! [`apply::apply`] is the only implementation of the state. The projector folds the log with it ([`fleet`]), a replica
//! its own view ([`view`]), a replay any past.

pub mod apply;
pub mod blocks;
pub mod breaker;
pub mod eligibility;
pub mod evidence;
pub mod factors;
pub mod fleet;
pub mod latencies;
pub mod plan;
pub mod state;
mod sticky;
pub mod table;
pub mod transition;
pub mod view;
pub mod wheel;
pub mod window;

pub use apply::{Transitions, apply};
pub use eligibility::{CatalogFacts, Eligibility, eligibility};
pub use evidence::Place;
pub use factors::Load;
pub use fleet::{Checkpoint, Effects, FleetState, NeedConfig};
pub use plan::Plan;
pub use state::{ByHand, FOLD_KEY, Numbers, Revisions, SourceState, value_key};
pub use table::{Table, Unavailable};
pub use transition::{Transition, Turn, Unannounced};
pub use view::View;
pub use wheel::Wheel;

#[cfg(test)]
mod tests;
