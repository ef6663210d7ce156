//! The read models' runner on a real Postgres and the log in memory.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod aging;
mod folding;
mod ground;
mod losses;
mod plan;
