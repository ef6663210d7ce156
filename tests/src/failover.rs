//! The sixteen fail-over scenarios of `docs/failover.md`: what the primary does, what the caller must get, and the mark
//! that a run earns. Nothing of the product is here.

mod primary;
mod run;
mod verdict;

use std::fmt;
use std::time::Duration;

pub use run::run;

/// How much shorter than in the scenarios everything takes.
#[derive(Debug, Clone, Copy)]
pub struct Pace(pub f64);

impl Pace {
    /// A duration of a scenario as it is in this run.
    #[must_use]
    pub fn of(self, seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds * self.0)
    }

    /// The same in milliseconds, at least one.
    #[must_use]
    pub fn ms(self, seconds: f64) -> u64 {
        u64::try_from(self.of(seconds).as_millis()).unwrap_or(u64::MAX).max(1)
    }
}

/// What a run earned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// It hung, showed a truncated answer as a success, or failed a required check.
    Fail,
    /// A bounded, clean error.
    Safe,
    /// Rescued, but an advisory check failed.
    Partial,
    /// The complete answer (or the right error), and every check holds.
    Pass,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fail => "fail",
            Self::Safe => "safe",
            Self::Partial => "partial",
            Self::Pass => "pass",
        })
    }
}

/// How a scenario is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// Number of the scenario, from 1.
    pub scenario: u8,
    /// Whether the answer is streamed.
    pub streamed: bool,
    /// Whether broken streams are resumed where that can be verified.
    pub resume: bool,
}

impl Variant {
    /// All variants: each scenario streamed and not, with resuming and without.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let scenarios = 1..=16;
        let modes = [(true, true), (true, false), (false, true), (false, false)];
        scenarios.flat_map(|scenario| modes.map(|(streamed, resume)| Self { scenario, streamed, resume })).collect()
    }

    /// What clients ask for.
    #[must_use]
    pub fn name(&self) -> String {
        let (streamed, resume) = (if self.streamed { "s" } else { "w" }, if self.resume { "r" } else { "e" });
        format!("s{:02}{streamed}{resume}", self.scenario)
    }
}

/// The outcome of one variant.
#[derive(Debug)]
pub struct Result {
    /// Which.
    pub variant: Variant,
    /// What it earned.
    pub mark: Mark,
    /// What was not as it should be.
    pub why: Vec<String>,
    /// How long the call took, at the pace of the run.
    pub took: Duration,
}

/// A table of marks, one row for each scenario.
#[must_use]
pub fn scorecard(results: &[Result]) -> String {
    let mut lines = vec![
        "| scenario | streamed, `verified_resume` | streamed | not streamed |".to_owned(),
        "|---|---|---|---|".to_owned(),
    ];
    for scenario in 1..=16 {
        let mark = |streamed, resume| {
            let wanted = Variant { scenario, streamed, resume };
            let found = results.iter().find(|result| result.variant == wanted);
            found.map_or_else(
                || "–".to_owned(),
                |result| format!("{} ({:.1} s)", result.mark, result.took.as_secs_f64()),
            )
        };
        let columns = [mark(true, true), mark(true, false), mark(false, false)];
        lines.push(format!("| S{scenario:02} | {} |", columns.join(" | ")));
    }
    lines.join("\n")
}
