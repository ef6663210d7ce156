//! How far a fold is behind the log.

use std::time::Duration;

use tokio::time::Instant;
use waybill_event::LogTime;

/// Since when a fold hasn't been at the log's end, as far as its process knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Behind {
    since: Option<Instant>,
    /// Where the log ended when its store was last asked.
    asked: Option<u64>,
    /// Whether this process saw the fold at an end that it had asked for: what waits now has come since.
    was_at_end: bool,
}

impl Behind {
    /// The store says that the log ends at `end`.
    pub(crate) const fn ends_at(&mut self, end: u64) {
        self.asked = Some(end);
    }

    /// The fold stands at `position`, and the log ends at `end` or later.
    pub(crate) fn update(&mut self, position: u64, end: u64) {
        if end > position {
            self.since.get_or_insert_with(Instant::now);
            return;
        }
        self.since = None;
        self.was_at_end |= self.asked.is_some_and(|asked| position >= asked);
    }

    /// Whether the fold is at the log's end.
    #[must_use]
    pub const fn is_at_end(&self) -> bool {
        self.since.is_none()
    }

    /// How long the oldest message that isn't folded has waited, at most; zero when all are folded. `stored_at` tells
    /// when the log took the last one folded.
    pub(crate) fn lag(&self, stored_at: Option<LogTime>, now: LogTime) -> Duration {
        let Some(since) = self.since else { return Duration::ZERO };
        match stored_at.map(|at| now.since(at)) {
            // There may have been silence between the two.
            Some(waited) if self.was_at_end => waited.min(since.elapsed()),
            Some(waited) => waited,
            None => since.elapsed(),
        }
    }
}

/// Events in so many messages, at as many a message as were met so far.
pub(crate) fn events_in(messages: u64, met_events: u64, met_messages: u64) -> u64 {
    let events = u128::from(messages) * u128::from(met_events.max(1)) / u128::from(met_messages.max(1));
    u64::try_from(events).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> LogTime {
        LogTime::from_micros(seconds * 1_000_000)
    }

    async fn check(was_at_end: bool, stored_at: Option<i64>, behind_for: u64, expected: u64) {
        let mut behind = Behind::default();
        if was_at_end {
            behind.ends_at(7);
        }
        behind.update(7, 7);
        behind.update(7, 9);
        tokio::time::advance(Duration::from_secs(behind_for)).await;
        behind.update(8, 9);
        let lag = behind.lag(stored_at.map(at), at(1_000));
        assert_eq!(lag.as_secs(), expected, "{was_at_end} {stored_at:?} {behind_for}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_is_younger_than_what_is_folded_and_than_the_last_time_that_nothing_waited() {
        check(true, Some(990), 60, 10).await;
        check(true, Some(100), 60, 60).await;
        check(true, None, 60, 60).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_began_behind_counts_what_waited_before_it() {
        check(false, Some(100), 3, 900).await;
        check(false, None, 3, 3).await;
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_waits_at_the_end() {
        let mut behind = Behind::default();
        behind.ends_at(9);
        behind.update(8, 9);
        behind.update(9, 9);
        assert!(behind.is_at_end());
        assert_eq!(behind.lag(Some(at(1)), at(1_000)), Duration::ZERO);
    }

    #[test]
    fn messages_hold_as_many_events_as_those_before() {
        assert_eq!(events_in(10, 640, 20), 320);
        assert_eq!(events_in(10, 0, 0), 10);
    }
}
