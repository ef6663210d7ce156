//! Policies: the numbers that folds and decisions go by. Event-sourced, never constants in code.

use serde::{Deserialize, Serialize};

use super::Entity;
use crate::Source;

/// What a policy applies to; the narrowest wins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PolicyScope {
    /// Everything.
    Global,
    /// One source.
    Source {
        /// The source.
        source: Source,
    },
}

/// When a breaker trips and how it comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerPolicy {
    /// Length of the window, in milliseconds.
    pub window_ms: u64,
    /// Outcomes (ok + fail) the window needs before its ratio counts; 0 switches the ratio off.
    pub min_outcomes: u32,
    /// Failed share above which it trips, in thousandths.
    pub max_fail_milli: u32,
    /// Failures in a row that trip it; 0 switches this off.
    pub consecutive_fails: u32,
    /// Time it stays open, in milliseconds.
    pub open_ms: u64,
    /// Factor on the open time for each further opening in a row, in thousandths (1000 = constant).
    pub open_growth_milli: u32,
    /// Longest open time, in milliseconds.
    pub open_max_ms: u64,
    /// Time over which a closed breaker's source gets its weight back, in milliseconds.
    pub slow_start_ms: u64,
}

/// What the selector fold goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectorPolicy {
    /// Breaker of a whole source.
    pub source_breaker: BreakerPolicy,
    /// Breaker of one model at a source.
    pub model_breaker: BreakerPolicy,
    /// An event this much later in the log than it happened is no evidence, in milliseconds.
    pub late_after_ms: u64,
}

impl Default for SelectorPolicy {
    fn default() -> Self {
        let source_breaker = BreakerPolicy {
            window_ms: 60_000,
            min_outcomes: 10,
            max_fail_milli: 500,
            consecutive_fails: 0,
            open_ms: 30_000,
            open_growth_milli: 1_000,
            open_max_ms: 300_000,
            slow_start_ms: 30_000,
        };
        let model_breaker = BreakerPolicy { min_outcomes: 0, consecutive_fails: 3, ..source_breaker };
        Self { source_breaker, model_breaker, late_after_ms: 15_000 }
    }
}

/// A policy's whole state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// What it applies to.
    pub scope: PolicyScope,
    /// The numbers of the selector fold.
    pub selector: SelectorPolicy,
    /// How many edits it has seen, its creation included.
    pub version: u64,
}

impl Entity for Policy {
    const ENTITY: &'static str = "policy";
    const VERSION: u16 = 1;
    fn subject_id(&self) -> String {
        match &self.scope {
            PolicyScope::Global => "global".to_owned(),
            PolicyScope::Source { source } => source.to_string().replace(':', "-"),
        }
    }
    fn version(&self) -> u64 {
        self.version
    }
}
