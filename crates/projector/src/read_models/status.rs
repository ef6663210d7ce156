//! How a projection is doing, for readiness, metrics and answers.

use std::time::Duration;

use waybill_domain::catalog::UnknownEdit;
use waybill_event::LogTime;

use crate::lag::{Behind, events_in};

/// How a projection is doing, as seen from this process.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Whether this process folds it.
    pub leading: bool,
    /// The epoch it folds under.
    pub epoch: u64,
    /// Sequence of the last message folded.
    pub position: u64,
    /// When the log took that message.
    pub stored_at: Option<LogTime>,
    /// Sequence of the log's last message, as last asked.
    pub end: u64,
    /// Whether it is at the log's end, as far as is known, and since when not.
    pub behind: Behind,
    /// What hinders it now, in words.
    pub trouble: Option<String>,
    /// The edit that this program can't read, and at which the projection stands still.
    pub stopped_by: Option<UnknownEdit>,
    /// What was counted since this process began.
    pub counts: Counts,
}

/// What a projection's runner counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Batches committed.
    pub batches: u64,
    /// Messages folded.
    pub messages: u64,
    /// Events folded.
    pub events: u64,
    /// Events dropped because they had been folded before.
    pub duplicates: u64,
    /// Events beyond the window in which repetitions are noticed: folded, and a reason for an alarm.
    pub too_far: u64,
    /// Events put aside.
    pub unprojectable: u64,
    /// Messages that are gone from the log before they were folded: a reason for an alarm.
    pub missing_messages: u64,
    /// Events of drained outboxes that never came: a reason for an alarm.
    pub missing_events: u64,
    /// Requests that were declared lost.
    pub declared_lost: u64,
    /// Days of traffic that were dropped for their age.
    pub dropped_days: u64,
}

impl Status {
    /// Messages in the log that aren't folded, as far as is known.
    #[must_use]
    pub fn lag_messages(&self) -> u64 {
        self.end.saturating_sub(self.position)
    }

    /// About how many events these hold: as many a message as were met so far.
    #[must_use]
    pub fn lag_events(&self) -> u64 {
        events_in(self.lag_messages(), self.counts.events, self.counts.messages)
    }

    /// How long the oldest message that isn't folded has waited, at most; zero when all are folded.
    #[must_use]
    pub fn lag(&self, now: LogTime) -> Duration {
        self.behind.lag(self.stored_at, now)
    }
}
