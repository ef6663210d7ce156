//! Which source's value is written next, and when: at once on a transition, at most once a second when a factor changed,
//! else within ten seconds; and never more than so many a second.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;
use waybill_domain::selector::fleet::Urgency;
use waybill_event::Source;

/// How often values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Between two writes of a value of which only factors changed.
    pub factor_every: Duration,
    /// Until a value is written that lacks an event without consequences.
    pub stale_after: Duration,
    /// Writes a second, over all values.
    pub writes_per_second: u32,
    /// Between two checkpoints.
    pub checkpoint_every: Duration,
    /// How long a leader that is asked to stop goes on writing what isn't written.
    pub flush_within: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            factor_every: Duration::from_secs(1),
            stale_after: Duration::from_secs(10),
            writes_per_second: 100,
            checkpoint_every: Duration::from_secs(1),
            flush_within: Duration::from_secs(2),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Dirty {
    urgency: Urgency,
    /// When the first thing happened that the written value lacks.
    first: Instant,
    /// Not before this time, after a failed write.
    not_before: Option<Instant>,
}

/// The values that must be written.
#[derive(Debug)]
pub(super) struct Schedule {
    pace: Pace,
    dirty: BTreeMap<Source, Dirty>,
    in_flight: BTreeSet<Source>,
    written_at: BTreeMap<Source, Instant>,
    /// When the next write may begin; runs ahead of now by what was spent.
    allowed_at: Option<Instant>,
}

impl Schedule {
    pub(super) const fn new(pace: Pace) -> Self {
        Self { pace, dirty: BTreeMap::new(), in_flight: BTreeSet::new(), written_at: BTreeMap::new(), allowed_at: None }
    }

    /// The written value of a source lacks something from now on.
    pub(super) fn touch(&mut self, source: Source, urgency: Urgency, now: Instant) {
        let dirty = self.dirty.entry(source).or_insert(Dirty { urgency, first: now, not_before: None });
        dirty.urgency = dirty.urgency.max(urgency);
    }

    /// Begins the next write that is due: the most urgent, then the most stale.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Source> {
        if self.allowed_at.is_some_and(|at| at > now) {
            return None;
        }
        let due = self.waiting().filter(|(_, _, at)| *at <= now);
        let (source, _, _) =
            due.min_by_key(|(source, dirty, _)| (std::cmp::Reverse(dirty.urgency), dirty.first, *source))?;
        self.dirty.remove(&source);
        self.in_flight.insert(source);
        let each = Duration::from_secs(1) / self.pace.writes_per_second.max(1);
        // What wasn't spent for a while may be spent at once, up to a tenth of a second's worth.
        let burst = now.checked_sub(Duration::from_millis(100)).unwrap_or(now);
        self.allowed_at = Some(self.allowed_at.unwrap_or(burst).max(burst) + each);
        Some(source)
    }

    /// When to ask again.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let due = self.waiting().map(|(_, _, at)| at).min()?;
        Some(self.allowed_at.map_or(due, |allowed| allowed.max(due)))
    }

    /// A write is done.
    pub(super) fn written(&mut self, source: Source, now: Instant) {
        self.in_flight.remove(&source);
        self.written_at.insert(source, now);
    }

    /// A value is no more.
    pub(super) fn removed(&mut self, source: Source) {
        self.in_flight.remove(&source);
        self.written_at.remove(&source);
    }

    /// A write wasn't done and must be begun again after `pause`.
    pub(super) fn failed(&mut self, source: Source, now: Instant, pause: Duration) {
        self.in_flight.remove(&source);
        self.touch(source, Urgency::Now, now);
        if let Some(dirty) = self.dirty.get_mut(&source) {
            dirty.not_before = Some(now + pause);
        }
    }

    /// Makes everything due now.
    pub(super) fn hurry(&mut self) {
        self.dirty.values_mut().for_each(|dirty| dirty.urgency = Urgency::Now);
    }

    /// Whether a source was touched after its last write began.
    pub(super) fn lacks(&self, source: Source) -> bool {
        self.dirty.contains_key(&source)
    }

    /// The sources whose written values lack something.
    pub(super) fn unwritten(&self) -> BTreeSet<Source> {
        self.dirty.keys().chain(&self.in_flight).copied().collect()
    }

    pub(super) fn unwritten_count(&self) -> usize {
        self.dirty.len() + self.in_flight.iter().filter(|source| !self.dirty.contains_key(source)).count()
    }

    fn waiting(&self) -> impl Iterator<Item = (Source, Dirty, Instant)> + '_ {
        let idle = self.dirty.iter().filter(|(source, _)| !self.in_flight.contains(source));
        idle.map(|(source, dirty)| (*source, *dirty, self.due_at(*source, *dirty)))
    }

    fn due_at(&self, source: Source, dirty: Dirty) -> Instant {
        let due = match dirty.urgency {
            Urgency::Now => dirty.first,
            Urgency::Factor => {
                let last = self.written_at.get(&source).map(|at| *at + self.pace.factor_every);
                last.map_or(dirty.first, |last| last.max(dirty.first)).min(dirty.first + self.pace.stale_after)
            }
            Urgency::Lacks => dirty.first + self.pace.stale_after,
        };
        dirty.not_before.map_or(due, |not_before| not_before.max(due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(id: u64) -> Source {
        format!("channel:{id}").parse().unwrap()
    }

    /// Touches sources at milliseconds, then writes for `until` milliseconds; each write takes no time.
    fn check(touched: &[(u64, Urgency, u64)], until: u64, expected: &[(u64, u64)]) {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut schedule = Schedule::new(Pace::default());
        let mut written = Vec::new();
        for ms in 0..=until {
            for (id, urgency, when) in touched.iter().filter(|(_, _, when)| *when == ms) {
                schedule.touch(source(*id), *urgency, at(*when));
            }
            while let Some(source) = schedule.begin(at(ms)) {
                schedule.written(source, at(ms));
                written.push((source.id, ms));
            }
        }
        assert_eq!(written, expected);
    }

    #[test]
    fn transitions_go_at_once_and_the_rest_in_its_time() {
        check(
            &[(1, Urgency::Lacks, 0), (2, Urgency::Now, 5), (3, Urgency::Factor, 7)],
            10_000,
            &[(2, 5), (3, 7), (1, 10_000)],
        );
    }

    #[test]
    fn factors_go_once_a_second_and_a_transition_doesnt_wait_for_them() {
        check(
            &[
                (1, Urgency::Factor, 0),
                (1, Urgency::Factor, 10),
                (1, Urgency::Factor, 900),
                (1, Urgency::Factor, 1_010),
            ],
            3_000,
            &[(1, 0), (1, 1_000), (1, 2_000)],
        );
        check(&[(1, Urgency::Factor, 0), (1, Urgency::Factor, 10), (1, Urgency::Now, 20)], 500, &[(1, 0), (1, 20)]);
    }

    #[test]
    fn writes_are_bounded_and_the_urgent_ones_are_first() {
        let start = Instant::now();
        let mut schedule = Schedule::new(Pace::default());
        (1..=500).for_each(|id| schedule.touch(source(id), Urgency::Lacks, start));
        let later = start + Duration::from_secs(10);
        (501..=505).for_each(|id| schedule.touch(source(id), Urgency::Now, later));
        let mut first = Vec::new();
        while let Some(source) = schedule.begin(later) {
            first.push(source.id);
        }
        assert_eq!(first.get(..5), Some([501, 502, 503, 504, 505].as_slice()));
        assert!((10..=12).contains(&first.len()), "{}", first.len());
        assert!(schedule.wake_at().is_some_and(|at| at > later && at <= later + Duration::from_millis(10)));
    }

    #[test]
    fn a_source_is_written_by_one_at_a_time() {
        let now = Instant::now();
        let mut schedule = Schedule::new(Pace::default());
        schedule.touch(source(1), Urgency::Now, now);
        assert_eq!(schedule.begin(now), Some(source(1)));
        schedule.touch(source(1), Urgency::Now, now);
        assert_eq!((schedule.begin(now), schedule.unwritten_count()), (None, 1));
        schedule.failed(source(1), now, Duration::from_millis(50));
        assert_eq!(schedule.begin(now), None);
        assert_eq!(schedule.begin(now + Duration::from_millis(50)), Some(source(1)));
    }
}
