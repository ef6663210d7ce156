//! Folds (catalog, selector, history) and decisions (commands, plan, attempt loop, verdict): pure functions of what the
//! log holds. No clock, no I/O and no randomness is here but what is passed in.

pub mod attempt;
pub mod candidate;
pub mod catalog;
pub mod dedup;
pub mod headroom;
pub mod history;
pub mod loss;
pub mod needs;
pub mod observation;
pub mod probing;
pub mod refreshing;
pub mod retry_budget;
pub mod selector;
pub mod verdict;
