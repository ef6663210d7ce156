//! Upkeep brings sources back that a verdict disabled: it probes them with a tiny call, at growing intervals, one prober
//! per source over the whole fleet, and records what came of it. It checks sources that serve where that is wanted. It
//! decides nothing about breakers, and it never probes what only an operator may bring back. It also keeps the traffic
//! stream within its size.

pub mod permit;
pub mod refresh;
pub mod retention;
pub mod schedule;
pub mod status;

mod asking;
mod known;
mod probe;
mod runner;
mod suitable;

pub use refresh::pace::Pace;
pub use refresh::{RefreshParts, RefreshStatus, Refresher};
pub use retention::{Level, Retention, RetentionConfig, RetentionStatus};
pub use runner::{Parts, Upkeep};
pub use schedule::Rhythm;
pub use status::Status;
