//! The last response times, as a ring of integers.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// How many are kept.
const KEPT: usize = 100;

/// The last 100 response times, in milliseconds, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Latencies(VecDeque<u32>);

impl Latencies {
    /// Keeps one more; the oldest goes when there are 100.
    pub fn push(&mut self, ms: u32) {
        while self.0.len() >= KEPT {
            self.0.pop_front();
        }
        self.0.push_back(ms);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The 95th percentile (nearest rank), in milliseconds.
    #[must_use]
    pub fn p95(&self) -> Option<u32> {
        let mut sorted = [0_u32; KEPT];
        let n = self.0.len().min(KEPT);
        let samples = sorted.get_mut(..n)?;
        for (place, ms) in samples.iter_mut().zip(&self.0) {
            *place = *ms;
        }
        let rank = (n * 95).div_ceil(100).checked_sub(1)?;
        Some(*samples.select_nth_unstable(rank).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentile_is_of_the_newest_hundred() {
        let check = |pushed: std::ops::Range<u32>, expected| {
            let mut latencies = Latencies::default();
            pushed.for_each(|ms| latencies.push(ms));
            assert_eq!(latencies.p95(), expected);
        };
        check(0..0, None);
        check(7..8, Some(7));
        check(1..21, Some(19));
        check(1..101, Some(95));
        check(1..201, Some(195));
    }
}
