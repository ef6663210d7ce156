//! Numbers of slots that nobody has, as gaps between those that somebody has: what is asked of them costs the same however
//! large the limit is.

use std::collections::BTreeMap;

/// The free numbers below a limit.
#[derive(Default)]
pub(super) struct Free {
    limit: u32,
    /// Where each gap begins, and where it has ended.
    gaps: BTreeMap<u32, u32>,
    count: u32,
}

impl Free {
    /// How many there are.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    pub(super) const fn limit(&self) -> u32 {
        self.limit
    }

    /// Begins anew with another limit.
    pub(super) fn set_limit(&mut self, limit: u32, taken: impl Iterator<Item = u32>) {
        self.limit = limit;
        self.gaps.clear();
        if limit > 0 {
            self.gaps.insert(0, limit);
        }
        self.count = limit;
        taken.for_each(|n| self.take(n));
    }

    /// The gap that a number is in.
    fn gap(&self, n: u32) -> Option<(u32, u32)> {
        self.gaps.range(..=n).next_back().map(|(from, to)| (*from, *to)).filter(|(_, to)| n < *to)
    }

    /// Somebody has it.
    pub(super) fn take(&mut self, n: u32) {
        let Some((from, to)) = self.gap(n) else { return };
        self.gaps.remove(&from);
        if from < n {
            self.gaps.insert(from, n);
        }
        if n + 1 < to {
            self.gaps.insert(n + 1, to);
        }
        self.count -= 1;
    }

    /// Nobody has it.
    pub(super) fn give(&mut self, n: u32) {
        if n >= self.limit || self.gap(n).is_some() {
            return;
        }
        let before = self.gaps.range(..n).next_back().map(|(from, to)| (*from, *to)).filter(|(_, to)| *to == n);
        let (from, to) = (before.map_or(n, |(from, _)| from), self.gaps.remove(&(n + 1)).unwrap_or(n + 1));
        self.gaps.insert(from, to);
        self.count += 1;
    }

    /// The first one from a number on, going round.
    pub(super) fn first_from(&self, n: u32) -> Option<u32> {
        if self.gap(n).is_some() {
            return Some(n);
        }
        self.gaps.range(n..).next().or_else(|| self.gaps.first_key_value()).map(|(from, _)| *from)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn gaps_are_what_a_set_would_be(
            limits in proptest::collection::vec(0_u32..20, 1..4),
            steps in proptest::collection::vec((0_u32..24, any::<bool>()), 0..80),
        ) {
            let (mut free, mut taken) = (Free::default(), BTreeSet::new());
            for limit in limits {
                free.set_limit(limit, taken.iter().copied());
                for (n, takes) in &steps {
                    if *takes {
                        taken.insert(*n);
                        free.take(*n);
                    } else {
                        taken.remove(n);
                        free.give(*n);
                    }
                    let all: Vec<u32> = (0..limit).filter(|n| !taken.contains(n)).collect();
                    prop_assert_eq!(free.count() as usize, all.len());
                    for from in 0..24 {
                        let expected = all.iter().find(|n| **n >= from).or(all.first()).copied();
                        prop_assert_eq!(free.first_from(from), expected);
                    }
                }
            }
        }
    }
}
