//! When an account's tokens are refreshed: pure, without a clock of its own.

use std::time::Duration;

use waybill_domain::refreshing::Wish;
use waybill_event::LogTime;
use waybill_event::control::RefreshReason;
use waybill_secret::Shown;

/// How soon what is refreshed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Tokens are refreshed a fifth of their life before its end, and at most so long.
    pub ahead: Duration,
    /// Pause after a first failure; doubled after each further one.
    pub first_pause: Duration,
    /// Longest pause between tries.
    pub longest_pause: Duration,
    /// Longest pause that an OAuth server may ask for.
    pub longest_told: Duration,
    /// Tokens of one account aren't refreshed more often, however soon they end.
    pub least: Duration,
    /// How soon tokens that upstreams refuse before their time are refreshed again.
    pub refused_again: Duration,
    /// Time the OAuth server has to answer.
    pub answer: Duration,
    /// How long others wait for somebody who had begun to refresh, and may come back with the next tokens.
    pub return_of_others: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            ahead: Duration::from_secs(600),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(60),
            longest_told: Duration::from_secs(3_600),
            least: Duration::from_secs(5),
            refused_again: Duration::from_secs(60),
            answer: Duration::from_secs(20),
            return_of_others: Duration::from_secs(120),
        }
    }
}

impl Pace {
    /// When these tokens are refreshed of one's own accord: ahead of their end, spread so that accounts which were
    /// imported together aren't refreshed together. Tokens without an end are refreshed only when they are refused.
    #[must_use]
    pub fn due(&self, account: u64, revision: u64, shown: &Shown) -> Option<LogTime> {
        let end = LogTime::from_micros(shown.expires_ms?.saturating_mul(1_000));
        let begin = LogTime::from_micros(shown.issued_ms.saturating_mul(1_000));
        let ahead = (end.since(begin) / 5).min(self.ahead);
        let mixed = (account.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ revision).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let part = u32::try_from(mixed >> 54).unwrap_or(0);
        Some(end - (ahead + ahead / 2 * part / 1_024))
    }

    /// How long to wait after so many failures in a row; `spread` of 0 to 1,023 takes up to a half off.
    #[must_use]
    pub fn pause(&self, failures: u32, spread: u64) -> Duration {
        let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let whole = self.first_pause.saturating_mul(doubled).min(self.longest_pause);
        whole / 2 + whole / 2 * u32::try_from(spread % 1_024).unwrap_or(0) / 1_024
    }
}

/// Where the refreshing of one account's tokens stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stand {
    /// A replica's wish that isn't fulfilled yet.
    pub wish: Option<Wish>,
    /// Failures in a row.
    pub failures: u32,
    /// Nothing is tried before.
    pub not_before: LogTime,
    /// When tokens were last refreshed.
    pub refreshed_at: Option<LogTime>,
    /// When tokens were last refreshed because they were refused.
    pub refused_at: Option<LogTime>,
}

impl Stand {
    /// When the next try is due, and why.
    #[must_use]
    pub fn due(&self, pace: &Pace, account: u64, revision: u64, shown: &Shown) -> Option<(LogTime, RefreshReason)> {
        let own = pace.due(account, revision, shown).map(|at| (at, RefreshReason::Ahead));
        let wished = self.wish.map(|wish| match wish {
            Wish::Expired => (LogTime::default(), RefreshReason::Expired),
            Wish::Refused => {
                let again = self.refused_at.map_or(LogTime::default(), |at| at + pace.refused_again);
                (again, RefreshReason::Refused)
            }
        });
        let (at, why) = [wished, own].into_iter().flatten().min_by_key(|(at, _)| *at)?;
        let least = self.refreshed_at.map_or(LogTime::default(), |at| at + pace.least);
        Some((at.max(self.not_before).max(least), why))
    }
}

#[cfg(test)]
mod tests {
    use waybill_secret::{KeyRing, SecretString};

    use super::*;

    fn at(seconds: i64) -> LogTime {
        LogTime::from_micros(seconds * 1_000_000)
    }

    fn shown(life: Option<i64>) -> Shown {
        let fingerprint = KeyRing::generate().unwrap().fingerprint(&SecretString::from("x"));
        let expires_ms = life.map(|life| (1_000 + life) * 1_000);
        Shown { issued_ms: 1_000_000, expires_ms, scopes: Vec::new(), refreshable: true, login: None, fingerprint }
    }

    #[test]
    fn tokens_are_refreshed_ahead_of_their_end_and_not_all_at_once() {
        let pace = Pace::default();
        let check = |life: i64, earliest: i64, latest: i64| {
            let dues: Vec<LogTime> = (0..200).filter_map(|account| pace.due(account, 5, &shown(Some(life)))).collect();
            let (first, last) = (dues.iter().min().unwrap(), dues.iter().max().unwrap());
            assert!(*first >= at(1_000 + life - earliest) && *last <= at(1_000 + life - latest), "{first} {last}");
            assert!(last.since(*first) > Duration::from_secs(u64::try_from(latest).unwrap() / 4), "they are spread");
        };
        check(3_600, 900, 600);
        check(28_800, 900, 600);
        check(100, 30, 20);
        assert_eq!(pace.due(1, 1, &shown(None)), None);
    }

    #[test]
    fn pauses_double_up_to_a_minute_and_are_spread() {
        let pace = Pace::default();
        let whole: Vec<u64> = (1..=8).map(|failures| pace.pause(failures, 1_023).as_millis() as u64 / 990).collect();
        assert_eq!(whole, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pace.pause(3, 0), Duration::from_secs(2));
        assert!(pace.pause(u32::MAX, 0) <= Duration::from_secs(60));
    }

    #[test]
    fn a_wish_makes_it_due_at_once_unless_the_last_try_failed_just_now() {
        let (pace, shown) = (Pace::default(), shown(Some(3_600)));
        let due = |stand: Stand| stand.due(&pace, 1, 5, &shown);
        let own = pace.due(1, 5, &shown).unwrap();
        assert_eq!(due(Stand::default()), Some((own, RefreshReason::Ahead)));
        let wished = Stand { wish: Some(Wish::Expired), ..Stand::default() };
        assert_eq!(due(wished), Some((LogTime::default(), RefreshReason::Expired)));
        assert_eq!(due(Stand { not_before: at(2_000), ..wished }), Some((at(2_000), RefreshReason::Expired)));
        let just_now = Stand { refreshed_at: Some(at(2_000)), ..wished };
        assert_eq!(
            due(just_now),
            Some((at(2_005), RefreshReason::Expired)),
            "tokens that end at once are no reason to hurry"
        );
        let refused = Stand { wish: Some(Wish::Refused), refused_at: Some(at(1_500)), ..Stand::default() };
        assert_eq!(
            due(refused),
            Some((at(1_560), RefreshReason::Refused)),
            "an upstream that refuses all is not obeyed"
        );
    }
}
