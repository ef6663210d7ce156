//! Which events of each producer's boots a fold has had already.
//!
//! Every fold keeps, per producer and boot, the ordinal up to which it has had everything, and the ordinals above it
//! that it met out of order, and stores both with its checkpoint: a message that is delivered or stored twice changes
//! nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use waybill_event::{Body, Boot, Event, Mark, ProducerId};

/// How far above its low-water mark a boot's ordinals are remembered.
pub const WINDOW: u64 = 65_536;

/// What is known of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It comes for the first time, and is remembered from now on.
    New,
    /// It came before, or its boot is retired.
    Duplicate,
    /// It lies more than [`WINDOW`] above the low-water mark: not remembered, and a reason for an alarm. The fold must
    /// not skip it.
    TooFar,
}

/// What a fold has had, per producer and boot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Dedup {
    producers: BTreeMap<ProducerId, Boots>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Boots {
    /// The newest boot that has ended: it and older ones that aren't live say nothing new any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retired: Option<Boot>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    live: BTreeMap<Boot, Had>,
}

/// The ordinals of one boot that were met.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Had {
    /// Every ordinal up to this one.
    low: u64,
    /// Those above, as first and last of each run, rising and never touching each other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    above: Vec<(u64, u64)>,
}

impl Had {
    fn seen(&mut self, n: u64) -> Seen {
        if n <= self.low {
            return Seen::Duplicate;
        }
        if n - self.low > WINDOW {
            return Seen::TooFar;
        }
        if n == self.low + 1 && self.above.is_empty() {
            self.low = n;
            return Seen::New;
        }
        self.remember(n)
    }

    fn remember(&mut self, n: u64) -> Seen {
        let place = self.above.partition_point(|&(first, _)| first <= n);
        let before = place.checked_sub(1).and_then(|i| self.above.get(i).copied());
        if before.is_some_and(|(_, last)| n <= last) {
            return Seen::Duplicate;
        }
        let joins_before = before.is_some_and(|(_, last)| last + 1 == n);
        let after = self.above.get(place).copied().filter(|&(first, _)| first == n + 1);
        match (joins_before, after) {
            (true, Some((_, last))) => {
                self.above.remove(place);
                self.extend_before(place, last);
            }
            (true, None) => self.extend_before(place, n),
            (false, Some((_, last))) => {
                if let Some(run) = self.above.get_mut(place) {
                    *run = (n, last);
                }
            }
            (false, None) => self.above.insert(place, (n, n)),
        }
        if let Some(&(first, last)) = self.above.first()
            && first == self.low + 1
        {
            self.low = last;
            self.above.remove(0);
        }
        Seen::New
    }

    fn extend_before(&mut self, place: usize, last: u64) {
        if let Some(run) = place.checked_sub(1).and_then(|i| self.above.get_mut(i)) {
            run.1 = last;
        }
    }
}

impl Dedup {
    /// Asks whether a mark is new, and remembers it.
    pub fn seen(&mut self, mark: &Mark) -> Seen {
        if !self.producers.contains_key(&mark.producer) {
            self.producers.insert(mark.producer.clone(), Boots::default());
        }
        let Some(boots) = self.producers.get_mut(&mark.producer) else { return Seen::New };
        match boots.live.get_mut(&mark.boot) {
            Some(had) => had.seen(mark.n),
            None if boots.retired.is_some_and(|retired| mark.boot <= retired) => Seen::Duplicate,
            None => boots.live.entry(mark.boot).or_default().seen(mark.n),
        }
    }

    /// Asks whether an event is new, remembers it, and retires the boot that it says has ended. Events with derived ids
    /// are always new here: their rows and states are told apart by those ids.
    pub fn admit(&mut self, event: &Event) -> Seen {
        let seen = event.identity.mark().map_or(Seen::New, |mark| self.seen(mark));
        if seen != Seen::Duplicate
            && let Body::OutboxDrained(drained) = &event.draft.body
        {
            self.retire(&drained.replica, drained.boot);
        }
        seen
    }

    /// Takes everything of a boot below `mark` as had, if nothing is known of that boot: for folds that begin where
    /// older events have aged out of the log.
    pub fn begin_at(&mut self, mark: &Mark) {
        let boots = self.producers.entry(mark.producer.clone()).or_default();
        if boots.retired.is_none_or(|retired| mark.boot > retired) {
            boots.live.entry(mark.boot).or_insert(Had { low: mark.n.saturating_sub(1), above: Vec::new() });
        }
    }

    /// Forgets a boot that has ended (`outbox_drained`): whatever still comes of it is a duplicate. Returns the
    /// low-water mark it had, so that the caller can tell whether something is missing.
    pub fn retire(&mut self, producer: &ProducerId, boot: Boot) -> Option<u64> {
        let boots = self.producers.entry(producer.clone()).or_default();
        boots.retired = boots.retired.max(Some(boot));
        boots.live.remove(&boot).map(|had| had.low)
    }

    /// The ordinal up to which every event of a live boot was met; `None` when nothing is known of it.
    #[must_use]
    pub fn low_water(&self, producer: &ProducerId, boot: Boot) -> Option<u64> {
        self.producers.get(producer)?.live.get(&boot).map(|had| had.low)
    }

    /// Whether a boot has ended.
    #[must_use]
    pub fn is_retired(&self, producer: &ProducerId, boot: Boot) -> bool {
        self.producers
            .get(producer)
            .is_some_and(|boots| boots.retired.is_some_and(|r| boot <= r) && !boots.live.contains_key(&boot))
    }

    /// The low-water marks of all live boots, by producer and boot.
    pub fn live(&self) -> impl Iterator<Item = Mark> + '_ {
        self.producers.iter().flat_map(|(producer, boots)| {
            boots.live.iter().map(|(&boot, had)| Mark { producer: producer.clone(), boot, n: had.low })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use waybill_event::LogTime;

    use super::*;

    fn mark(boot: i64, n: u64) -> Mark {
        Mark { producer: "proxy-1".parse().unwrap(), boot: Boot::new(LogTime::from_micros(boot * 1_000), 7), n }
    }

    #[test]
    fn strays_fill_the_gap_and_the_mark_moves_on() {
        let mut dedup = Dedup::default();
        for (n, expected) in [
            (1, Seen::New),
            (3, Seen::New),
            (4, Seen::New),
            (3, Seen::Duplicate),
            (2, Seen::New),
            (1, Seen::Duplicate),
            (4 + WINDOW, Seen::New),
            (5 + WINDOW, Seen::TooFar),
        ] {
            assert_eq!(dedup.seen(&mark(1, n)), expected, "{n}");
        }
        assert_eq!(dedup.low_water(&"proxy-1".parse().unwrap(), mark(1, 0).boot), Some(4));
    }

    #[test]
    fn a_retired_boot_says_nothing_new() {
        let mut dedup = Dedup::default();
        let producer = "proxy-1".parse().unwrap();
        assert_eq!(dedup.seen(&mark(1, 1)), Seen::New);
        assert_eq!(dedup.seen(&mark(2, 1)), Seen::New);
        assert_eq!(dedup.retire(&producer, mark(2, 0).boot), Some(1));
        assert_eq!(dedup.seen(&mark(2, 2)), Seen::Duplicate);
        assert_eq!(dedup.seen(&mark(1, 2)), Seen::New, "an older boot that is live still drains");
        assert_eq!(dedup.retire(&producer, mark(1, 0).boot), Some(2));
        assert_eq!(dedup.seen(&mark(1, 3)), Seen::Duplicate);
        assert_eq!(dedup.seen(&mark(3, 1)), Seen::New);
        assert!(dedup.is_retired(&producer, mark(2, 0).boot));
    }

    #[test]
    fn a_fold_may_begin_in_the_middle() {
        let mut dedup = Dedup::default();
        dedup.begin_at(&mark(1, 500_000));
        dedup.begin_at(&mark(1, 900_000));
        assert_eq!(dedup.seen(&mark(1, 500_000)), Seen::New);
        assert_eq!(dedup.seen(&mark(1, 499_999)), Seen::Duplicate);
    }

    proptest! {
        #[test]
        fn agrees_with_a_set_and_survives_storage(ns in prop::collection::vec(1u64..200, 0..400)) {
            let mut dedup = Dedup::default();
            let mut set = BTreeSet::new();
            for (i, n) in ns.into_iter().enumerate() {
                let expected = if set.insert(n) { Seen::New } else { Seen::Duplicate };
                prop_assert_eq!(dedup.seen(&mark(1, n)), expected);
                if i % 50 == 0 {
                    let stored = serde_json::to_string(&dedup).unwrap();
                    prop_assert_eq!(&serde_json::from_str::<Dedup>(&stored).unwrap(), &dedup);
                }
            }
            let low = (1..).take_while(|n| set.contains(n)).last().unwrap_or(0);
            prop_assert_eq!(dedup.live().next().map_or(0, |m| m.n), low);
        }
    }
}
