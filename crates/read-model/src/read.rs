//! What the admin API asks.

pub mod catalog;
pub mod history;
pub mod open;
pub mod pool;
pub mod projection;
pub mod request;
pub mod shadow;
pub mod story;
pub mod transition;

pub use catalog::ConfigHistoryQuery;
pub use history::History;
pub use pool::{Ended, Move};
pub use projection::ProjectionPosition;
pub use request::RequestQuery;
pub use shadow::{ShadowDifference, ShadowReport};

/// Most rows that one answer holds; a query that asks for more gets this many.
pub const MAX_LIMIT: u32 = 1_000;

fn limit(wanted: u32) -> i64 {
    i64::from(wanted.clamp(1, MAX_LIMIT))
}
