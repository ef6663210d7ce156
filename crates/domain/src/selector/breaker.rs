//! The breaker of one scope: closed, or open since an outcome that satisfied the policy. Half-open is no state of its own
//! but what an opening is from its `open_until` on.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use waybill_event::LogTime;
use waybill_event::config::BreakerPolicy;
use waybill_event::failure::Health;

use super::state::Revisions;
use super::window::Counts;

/// A breaker's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Breaker {
    /// Requests pass.
    Closed {
        /// Failures in a row.
        #[serde(default, skip_serializing_if = "is_zero")]
        fails: u32,
        /// When it closed after an opening; the weight recovers from then on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<LogTime>,
    },
    /// Requests don't pass, but for probes from `open_until` on.
    Open(Opening),
}

/// One opening of a breaker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// `<scope>@<mark of the event that opened it>`.
    pub id: Arc<str>,
    /// Since when.
    pub since: LogTime,
    /// From when on it is half-open.
    pub open_until: LogTime,
    /// How many times in a row it has opened without closing, from 1.
    pub times: u32,
    /// What the evidence that opened it was made with.
    pub revisions: Revisions,
    /// Probes that have succeeded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub successes: u32,
}

/// What a breaker is at a given time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase<'a> {
    /// Requests pass.
    Closed,
    /// No request passes.
    Open(&'a Opening),
    /// Only a request that holds the probe permit of this opening passes.
    HalfOpen(&'a Opening),
}

impl Default for Breaker {
    fn default() -> Self {
        Self::Closed { fails: 0, since: None }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Breaker {
    /// What it is as of `as_of`.
    #[must_use]
    pub fn phase(&self, as_of: LogTime) -> Phase<'_> {
        match self {
            Self::Closed { .. } => Phase::Closed,
            Self::Open(opening) if as_of >= opening.open_until => Phase::HalfOpen(opening),
            Self::Open(opening) => Phase::Open(opening),
        }
    }

    /// The opening that lasts, if it isn't closed.
    #[must_use]
    pub const fn opening(&self) -> Option<&Opening> {
        match self {
            Self::Open(opening) => Some(opening),
            Self::Closed { .. } => None,
        }
    }

    /// When it closed, if an opening came before.
    #[must_use]
    pub const fn closed_since(&self) -> Option<LogTime> {
        match self {
            Self::Closed { since, .. } => *since,
            Self::Open(_) => None,
        }
    }

    /// Takes in an outcome that `window` already counts; says whether it trips the breaker. An open one never does.
    pub fn observe(&mut self, health: Health, window: Counts, policy: &BreakerPolicy) -> bool {
        let Self::Closed { fails, .. } = self else { return false };
        match health {
            Health::Ok => *fails = 0,
            Health::Fail => *fails = fails.saturating_add(1),
            Health::Busy | Health::None => return false,
        }
        // A success never opens anything, also where it is the outcome that makes a ratio of failures count.
        let in_a_row = policy.consecutive_fails > 0 && *fails >= policy.consecutive_fails;
        health == Health::Fail && (in_a_row || ratio_trips(window, policy))
    }

    /// Opens at `t`, or opens again after a failed probe.
    pub fn open(&mut self, id: Arc<str>, t: LogTime, revisions: Revisions, policy: &BreakerPolicy) -> Opening {
        let times = self.opening().map_or(1, |before| before.times.saturating_add(1));
        let opening =
            Opening { id, since: t, open_until: t + open_time(times, policy), times, revisions, successes: 0 };
        *self = Self::Open(opening.clone());
        opening
    }

    /// A probe of the opening has succeeded at `t`: it closes after as many as the policy asks for. Says whether it did.
    pub fn probed(&mut self, t: LogTime, policy: &BreakerPolicy) -> bool {
        let Self::Open(opening) = self else { return false };
        opening.successes = opening.successes.saturating_add(1);
        let enough = opening.successes >= policy.successes_to_close;
        if enough {
            self.close(t);
        }
        enough
    }

    /// Closes at `t` by hand, and forgets failures in a row; gives the id of the opening that ended.
    pub fn reset(&mut self, t: LogTime) -> Option<Arc<str>> {
        let opening = self.opening().map(|opening| Arc::clone(&opening.id));
        let since = if opening.is_some() { Some(t) } else { self.closed_since() };
        *self = Self::Closed { fails: 0, since };
        opening
    }

    /// Closes at `t`; the weight recovers from then on.
    pub fn close(&mut self, t: LogTime) {
        *self = Self::Closed { fails: 0, since: Some(t) };
    }
}

fn ratio_trips(window: Counts, policy: &BreakerPolicy) -> bool {
    let outcomes = u64::from(window.ok) + u64::from(window.fail);
    policy.min_outcomes > 0
        && outcomes >= u64::from(policy.min_outcomes)
        && u64::from(window.fail) * 1_000 > outcomes * u64::from(policy.max_fail_milli)
}

fn open_time(times: u32, policy: &BreakerPolicy) -> Duration {
    let mut open_ms = policy.open_ms.min(policy.open_max_ms);
    for _ in 1..times.min(64) {
        open_ms = open_ms.saturating_mul(u64::from(policy.open_growth_milli.max(1_000))) / 1_000;
        if open_ms >= policy.open_max_ms {
            open_ms = policy.open_max_ms;
            break;
        }
    }
    Duration::from_millis(open_ms)
}

#[cfg(test)]
mod tests {
    use waybill_event::config::SelectorPolicy;

    use super::*;

    fn at(seconds: i64) -> LogTime {
        LogTime::from_micros(seconds * 1_000_000)
    }

    fn opened(times: u32, policy: &BreakerPolicy) -> Breaker {
        let mut breaker = Breaker::default();
        for n in 1..=times {
            breaker.open(format!("x@{n}").into(), at(0), Revisions::default(), policy);
        }
        breaker
    }

    #[test]
    fn the_ratio_needs_enough_outcomes_and_counts_no_busy_ones() {
        let policy = SelectorPolicy::default().source_breaker;
        let check = |ok, fail, busy, trips| {
            let tripped = Breaker::default().observe(Health::Fail, Counts { ok, fail, busy }, &policy);
            assert_eq!(tripped, trips, "{ok}/{fail}/{busy}");
        };
        check(0, 9, 0, false);
        check(0, 9, 50, false);
        check(5, 5, 0, false);
        check(4, 6, 0, true);
        check(4, 6, 100, true);
    }

    #[test]
    fn a_success_never_opens_also_where_it_completes_a_bad_ratio() {
        let policy = SelectorPolicy::default().source_breaker;
        let window = Counts { ok: 1, fail: 9, busy: 0 };
        assert!(!Breaker::default().observe(Health::Ok, window, &policy));
        assert!(Breaker::default().observe(Health::Fail, window, &policy));
    }

    #[test]
    fn failures_in_a_row_are_ended_by_a_success_only() {
        let policy = SelectorPolicy::default().model_breaker;
        let check = |outcomes: &[Health], trips| {
            let mut breaker = Breaker::default();
            let tripped = outcomes.iter().fold(false, |_, health| breaker.observe(*health, Counts::default(), &policy));
            assert_eq!(tripped, trips, "{outcomes:?}");
        };
        check(&[Health::Fail, Health::Fail], false);
        check(&[Health::Fail, Health::Fail, Health::Fail], true);
        check(&[Health::Fail, Health::Busy, Health::Fail, Health::None, Health::Fail], true);
        check(&[Health::Fail, Health::Fail, Health::Ok, Health::Fail], false);
    }

    #[test]
    fn openings_in_a_row_grow_up_to_the_cap() {
        let policy = BreakerPolicy { open_growth_milli: 2_000, ..SelectorPolicy::default().source_breaker };
        let check = |times, seconds| {
            assert_eq!(opened(times, &policy).opening().unwrap().open_until, at(seconds), "{times}");
        };
        check(1, 30);
        check(2, 60);
        check(3, 120);
        check(5, 300);
        check(5_000, 300);
        let constant = SelectorPolicy::default().source_breaker;
        assert_eq!(opened(7, &constant).opening().unwrap().open_until, at(30));
    }

    #[test]
    fn half_open_is_a_matter_of_time_alone() {
        let breaker = opened(1, &SelectorPolicy::default().source_breaker);
        assert!(matches!(breaker.phase(at(29)), Phase::Open(_)));
        assert!(matches!(breaker.phase(at(30)), Phase::HalfOpen(_)));
    }
}
