//! The budgets of a request.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Whether a request that was sent wholly and never answered may be sent again: the upstream may have worked on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryUnknown {
    /// Yes; it may be charged twice.
    #[default]
    Always,
    /// No.
    Never,
    /// Only where the provider recognises the repetition.
    IdempotentOnly,
}

/// The budgets of one request. Times are counted from its admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// For the whole request.
    pub deadline: Duration,
    /// Attempts that may have cost an upstream work; tries at the same source aren't counted again.
    pub max_attempts: u32,
    /// Sources asked in all, those included that refused before any work.
    pub max_walk: u32,
    /// Further sources asked after the first timeout.
    pub max_after_timeout: u32,
    /// With less left than this no attempt is begun.
    pub min_attempt: Duration,
    /// Connecting, TLS included.
    pub connect: Duration,
    /// Until the first content of a stream.
    pub first_content: Duration,
    /// Until the whole answer when it isn't streamed.
    pub whole: Duration,
    /// Between two chunks of a stream.
    pub idle: Duration,
    /// The longest wait that an upstream may ask for and that is waited out instead of giving up.
    pub patience: Duration,
    /// What becomes of a request whose fate at the upstream is unknown.
    pub retry_unknown: RetryUnknown,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(600),
            max_attempts: 3,
            max_walk: 32,
            max_after_timeout: 1,
            min_attempt: Duration::from_millis(250),
            connect: Duration::from_secs(5),
            first_content: Duration::from_secs(300),
            whole: Duration::from_secs(600),
            idle: Duration::from_secs(60),
            patience: Duration::from_secs(5),
            retry_unknown: RetryUnknown::Always,
        }
    }
}

impl Policy {
    /// This policy with a deadline that the client asked for: it may shorten ours, never lengthen it.
    #[must_use]
    pub fn within(mut self, clients: Option<Duration>) -> Self {
        self.deadline = clients.map_or(self.deadline, |asked| asked.min(self.deadline));
        self
    }
}

/// What one attempt may take: its own limits, or what is left of the request's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connecting, TLS included.
    pub connect: Duration,
    /// Until the first content; only of a stream.
    pub first_content: Option<Duration>,
    /// Between two chunks; only of a stream.
    pub idle: Option<Duration>,
    /// Until the whole answer; only when it isn't streamed.
    pub whole: Option<Duration>,
    /// All that is left of the request's time.
    pub total: Duration,
}

impl Policy {
    /// The limits of an attempt that begins with this much left.
    pub(super) fn limits(&self, left: Duration, streamed: bool) -> Limits {
        Limits {
            connect: self.connect.min(left),
            first_content: streamed.then(|| self.first_content.min(left)),
            idle: streamed.then(|| self.idle.min(left)),
            whole: (!streamed).then(|| self.whole.min(left)),
            total: left,
        }
    }

    /// What is left of the request's time, if it is enough for an attempt.
    pub(super) fn time_left(&self, now: Duration) -> Option<Duration> {
        Some(self.deadline.saturating_sub(now)).filter(|left| *left >= self.min_attempt)
    }
}
