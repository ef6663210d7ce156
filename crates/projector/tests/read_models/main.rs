//! The read models' runner on a real Postgres and the log in memory.

mod folding;
mod ground;
mod plan;
