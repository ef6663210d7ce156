//! The retry budget of one target model: how many of the recent requests may be further tries that strain what is ill
//! already. Each replica keeps its own; a share of each one's requests is the same share of the fleet's.

use std::time::Duration;

use waybill_event::config::RetryBudgetPolicy;

/// How long a request counts as recent, in slots of [`SLOT`].
const SLOTS: usize = 10;
const SLOT: Duration = Duration::from_secs(1);

/// Counts of the recent past. Times are durations since any fixed instant.
#[derive(Debug, Clone, Default)]
pub struct RetryBudget {
    slots: [Slot; SLOTS],
    /// Number of the newest slot since the beginning.
    newest: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    requests: u32,
    tries: u32,
}

impl RetryBudget {
    /// A request came.
    pub fn request(&mut self, now: Duration) {
        let here = self.advance(now);
        if let Some(slot) = self.slots.get_mut(here) {
            slot.requests = slot.requests.saturating_add(1);
        }
    }

    /// Whether a further try is within the budget; a yes is counted. `replicas` share the floor.
    pub fn spend(&mut self, now: Duration, policy: &RetryBudgetPolicy, replicas: u32) -> bool {
        let here = self.advance(now);
        let sum = |of: fn(&Slot) -> u32| self.slots.iter().map(|slot| u64::from(of(slot))).sum::<u64>();
        let (requests, tries) = (sum(|slot| slot.requests), sum(|slot| slot.tries));
        let share = requests * u64::from(policy.percent) / 100;
        let seconds = u64::try_from(SLOTS).unwrap_or(1);
        let floor = (u64::from(policy.floor_per_second) * seconds).div_ceil(u64::from(replicas.max(1)));
        let within = tries < share.max(floor);
        if within && let Some(slot) = self.slots.get_mut(here) {
            slot.tries = slot.tries.saturating_add(1);
        }
        within
    }

    /// Forgets what is no longer recent, and gives the number of the present slot.
    fn advance(&mut self, now: Duration) -> usize {
        let number = u64::try_from(now.as_millis() / SLOT.as_millis()).unwrap_or(u64::MAX);
        let at = |number: u64| usize::try_from(number % u64::try_from(SLOTS).unwrap_or(1)).unwrap_or(0);
        let passed = number.saturating_sub(self.newest).min(u64::try_from(SLOTS).unwrap_or(0));
        for ago in 0..passed {
            if let Some(slot) = self.slots.get_mut(at(number.saturating_sub(ago))) {
                *slot = Slot::default();
            }
        }
        self.newest = self.newest.max(number);
        at(self.newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn spent(budget: &mut RetryBudget, ms: u64, policy: &RetryBudgetPolicy, replicas: u32) -> usize {
        (0..1_000).take_while(|_| budget.spend(at(ms), policy, replicas)).count()
    }

    #[test]
    fn a_share_of_the_recent_requests_may_be_tries() {
        let policy = RetryBudgetPolicy { percent: 20, floor_per_second: 0 };
        let mut budget = RetryBudget::default();
        (0..1_000).for_each(|n| budget.request(at(n)));
        assert_eq!(spent(&mut budget, 1_000, &policy, 1), 200);
        assert!(!budget.spend(at(10_500), &policy, 1), "the tries count as long as the requests");
        (0..500).for_each(|_| budget.request(at(11_500)));
        assert_eq!(spent(&mut budget, 11_500, &policy, 1), 100);
    }

    #[test]
    fn the_floor_is_shared_by_the_replicas() {
        let policy = RetryBudgetPolicy { percent: 20, floor_per_second: 9 };
        let check = |replicas, expected| {
            assert_eq!(spent(&mut RetryBudget::default(), 50_000, &policy, replicas), expected, "{replicas}");
        };
        check(1, 90);
        check(3, 30);
        check(0, 90);
    }

    #[test]
    fn a_clock_that_stands_still_or_jumps_breaks_nothing() {
        let policy = RetryBudgetPolicy { percent: 100, floor_per_second: 0 };
        let mut budget = RetryBudget::default();
        budget.request(at(100_000));
        budget.request(at(5));
        assert_eq!(spent(&mut budget, 100_000, &policy, 1), 2);
        assert_eq!(spent(&mut budget, 10_000_000, &policy, 1), 0);
    }
}
