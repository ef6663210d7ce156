//! Whole fleets of real processes under load, while parts of them are killed, frozen, cut off or restarted; and what must
//! be true afterwards: every request that the upstream saw has one history, whose end is what the client and the upstream
//! saw; nothing is applied twice; folding anew changes nothing. The suite `chaos` runs it small, `cargo xtask chaos` in
//! full size.

mod away;
mod cases;
mod ground;
mod kills;
mod logged;
mod mix;
mod refold;
mod report;
mod rolling;
mod rows;
mod truth;

use std::time::Duration;

pub use away::away;
pub use cases::{Blow, CLUSTER, CLUSTER_FEW, Plan, SINGLE, SINGLE_FEW};
pub use ground::Ground;
pub use kills::kills;
pub use report::Scorecard;
pub use rolling::{Through, rolling};

/// How large the runs are.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Requests a second.
    pub rate: u32,
    /// Load before the first blow of a case, and after everything has recovered from it.
    pub calm: Duration,
    /// How long the log is away.
    pub away: Duration,
    /// How long sources fail in that time.
    pub bad: Duration,
    /// Age at which evidence is too late, where it isn't the default.
    pub late_after: Option<Duration>,
    /// Requests of a rolling restart.
    pub rolling: usize,
    /// Whether everything is folded anew after every case, or after the last one only.
    pub refold_each: bool,
}

impl Scale {
    /// What the goals say.
    #[must_use]
    pub const fn full() -> Self {
        Self {
            rate: 300,
            calm: Duration::from_secs(3),
            away: Duration::from_secs(60),
            bad: Duration::from_secs(40),
            late_after: None,
            rolling: 20_000,
            refold_each: true,
        }
    }

    /// What a test suite has time for.
    #[must_use]
    pub const fn small() -> Self {
        Self {
            rate: 60,
            calm: Duration::from_millis(1_000),
            away: Duration::from_secs(8),
            bad: Duration::from_secs(3),
            late_after: Some(Duration::from_secs(2)),
            rolling: 1_000,
            refold_each: false,
        }
    }
}

/// What one case came to.
#[derive(Debug, Clone, Default)]
pub struct Case {
    /// What was done.
    pub name: String,
    /// How long it took from the first request until everything was checked.
    pub took: Duration,
    /// Requests that clients sent.
    pub requests: usize,
    /// Calls that the upstream saw.
    pub calls: usize,
    /// Answers that clients got whole.
    pub whole: usize,
    /// Errors, interrupted streams and departures that the script meant.
    pub meant: usize,
    /// Connections that were refused and tried at another replica: nothing was sent.
    pub redispatched: usize,
    /// Histories that say `owner_lost`.
    pub lost: usize,
    /// Errors that clients saw and that nobody meant, by what they were, with why they may be.
    pub errors: Vec<String>,
    /// What else there is to tell.
    pub notes: Vec<String>,
    /// What must not be and was.
    pub violations: Vec<String>,
}

impl Case {
    fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }
}
