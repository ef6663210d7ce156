//! How the selector's fold is doing, for readiness, metrics and answers.

use std::collections::BTreeMap;
use std::time::Duration;

use waybill_event::{ConfigPosition, LogTime};

use crate::lag::{Behind, events_in};

/// How the selector's fold is doing, as seen from this process.
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
    /// Configuration that was read.
    pub config_fed: ConfigPosition,
    /// Configuration that is adopted.
    pub config_adopted: ConfigPosition,
    /// Sources it holds.
    pub sources: usize,
    /// Sources whose written value lacks something.
    pub unwritten: usize,
    /// Announcements that aren't in the log yet.
    pub unannounced: usize,
    /// What hinders it now, in words.
    pub trouble: Option<String>,
    /// The edit that this program can't read, and beyond which it adopts nothing.
    pub stopped_by: Option<String>,
    /// What was counted since this process began.
    pub counts: Counts,
    /// Announcements that the log has taken since then, by event type and by what they are of (`source`, `model`).
    pub transitions: BTreeMap<(&'static str, &'static str), u64>,
}

/// What the selector's runner counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Times that this process began to lead.
    pub terms: u64,
    /// Events folded.
    pub events: u64,
    /// Messages folded.
    pub messages: u64,
    /// Events dropped because they had been folded before.
    pub duplicates: u64,
    /// Events of types or versions that aren't known here.
    pub unknown: u64,
    /// Events and messages that can't be read.
    pub unreadable: u64,
    /// Events beyond the window in which repetitions are noticed: folded, and a reason for an alarm.
    pub too_far: u64,
    /// Messages that are gone from the log before they were folded: a reason for an alarm.
    pub missing_messages: u64,
    /// Events of drained outboxes that never came: a reason for an alarm.
    pub missing_events: u64,
    /// Values written.
    pub written: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Announcements that the log has taken.
    pub announced: u64,
}

impl Status {
    /// Messages in the log that aren't folded, as far as is known.
    #[must_use]
    pub const fn lag_messages(&self) -> u64 {
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
