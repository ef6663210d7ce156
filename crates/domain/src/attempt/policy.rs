//! The budgets of a request.

use std::time::Duration;

use waybill_event::config::{FailOverKinds, MidStream, RequestPolicy, RetryUnknown};

/// Room at a full source is always waited for so long: a slot is given back at any moment, and what waits for one has it
/// passed on by replicas that hold more than their share.
const ROOM_WAIT: Duration = Duration::from_millis(50);

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
    /// Whether a later target of the route may serve when the first ones can't.
    pub degrade: bool,
    /// Whether a stream that breaks off may be asked for again elsewhere, to go on where the new answer is the same.
    pub resume: bool,
    /// How long room is waited for where every source is full.
    pub queue: Duration,
    /// Whether only sources of the kind that was first in the plan are asked.
    pub same_kind: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self::from(&RequestPolicy::default())
    }
}

impl From<&RequestPolicy> for Policy {
    fn from(numbers: &RequestPolicy) -> Self {
        Self {
            deadline: Duration::from_millis(numbers.deadline_ms),
            max_attempts: numbers.max_attempts,
            max_walk: numbers.max_walk,
            max_after_timeout: numbers.max_after_timeout,
            min_attempt: Duration::from_millis(numbers.min_attempt_ms),
            connect: Duration::from_millis(numbers.connect_ms),
            first_content: Duration::from_millis(numbers.first_content_ms),
            whole: Duration::from_millis(numbers.whole_ms),
            idle: Duration::from_millis(numbers.idle_ms),
            patience: Duration::from_millis(numbers.patience_ms),
            retry_unknown: numbers.retry_unknown,
            degrade: numbers.degrade,
            resume: numbers.mid_stream == MidStream::VerifiedResume,
            queue: Duration::from_millis(numbers.queue_timeout_ms).max(ROOM_WAIT),
            same_kind: numbers.failover_kinds == FailOverKinds::SameKind,
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
