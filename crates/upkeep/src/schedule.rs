//! When which disabled source is probed: pure, without a clock of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use waybill_domain::probing::Purpose;
use waybill_event::{LogTime, Source};

/// How soon one probe follows another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rhythm {
    /// After the first probe; doubled after each further one.
    pub first: Duration,
    /// At most.
    pub longest: Duration,
    /// Time that one model has to answer.
    pub each: Duration,
}

impl Default for Rhythm {
    fn default() -> Self {
        Self { first: Duration::from_secs(60), longest: Duration::from_secs(3_600), each: Duration::from_secs(14) }
    }
}

impl Rhythm {
    /// How long to wait after this many probes that brought nothing.
    #[must_use]
    pub fn after(&self, tries: u32) -> Duration {
        let doubled = 1_u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(doubled).min(self.longest.max(self.first))
    }
}

/// A source that wants probing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The source.
    pub source: Source,
    /// Why.
    pub purpose: Purpose,
    /// Id of its disabling; of a check it says nothing.
    pub disabling: Arc<str>,
    /// Since when.
    pub since: LogTime,
    /// Version of its entity: an edit makes the next probe due at once.
    pub version: u64,
    /// When an operator asked for a probe since it was disabled, which makes it due at once too.
    pub asked: Option<LogTime>,
}

#[derive(Debug, Clone)]
struct Entry {
    wanted: Wanted,
    next: LogTime,
    under_way: bool,
}

/// The disabled sources, each with the time of its next probe.
#[derive(Debug, Clone, Default)]
pub struct Schedule {
    entries: BTreeMap<Source, Entry>,
}

impl Schedule {
    /// A source wants probing: `first` after its disabling, since what has just failed fails again; an edited source at
    /// once. What is known already stays as it is.
    pub fn want(&mut self, wanted: Wanted, first: Duration, now: LogTime) {
        match self.entries.get_mut(&wanted.source) {
            Some(entry) if entry.wanted == wanted => {}
            Some(entry) => {
                let edited = entry.wanted.disabling == wanted.disabling;
                entry.next = if edited { now } else { wanted.since + first };
                entry.wanted = wanted;
            }
            None => {
                // Whether a wish was met already, the permit knows.
                let next = wanted.asked.unwrap_or(wanted.since + first);
                self.entries.insert(wanted.source, Entry { wanted, next, under_way: false });
            }
        }
    }

    /// A source wants no probing any more.
    pub fn forget(&mut self, source: Source) {
        self.entries.remove(&source);
    }

    /// The next source whose time has come; from now on it counts as under way.
    pub fn due(&mut self, now: LogTime) -> Option<Wanted> {
        let ready = |entry: &&mut Entry| !entry.under_way && entry.next <= now;
        let entry = self.entries.values_mut().filter(ready).min_by_key(|entry| entry.next)?;
        entry.under_way = true;
        Some(entry.wanted.clone())
    }

    /// What was due is done, or wasn't possible: the next look is at `next`. If the source was disabled anew or edited
    /// meanwhile, it stays due.
    pub fn settle(&mut self, done: &Wanted, next: LogTime) {
        if let Some(entry) = self.entries.get_mut(&done.source) {
            entry.under_way = false;
            if entry.wanted == *done {
                entry.next = next;
            }
        }
    }

    /// When the next one is due; nothing while none wants probing or all are under way.
    #[must_use]
    pub fn next_at(&self) -> Option<LogTime> {
        self.entries.values().filter(|entry| !entry.under_way).map(|entry| entry.next).min()
    }

    /// How many sources want probing.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// What is asked of its own accord: disabled sources, and those that are checked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Schedules {
    pub(crate) disabled: Schedule,
    pub(crate) checks: Schedule,
}

impl Schedules {
    pub(crate) fn of(&mut self, purpose: Purpose) -> &mut Schedule {
        match purpose {
            Purpose::Disabled => &mut self.disabled,
            Purpose::Check { .. } => &mut self.checks,
        }
    }

    /// A source wants checking: at once, and then in its rhythm, however often it is told of.
    pub(crate) fn check(&mut self, wanted: Wanted, now: LogTime) {
        let held = self.checks.entries.get(&wanted.source).map(|entry| &entry.wanted);
        let same = |held: &&Wanted| held.purpose == wanted.purpose && held.version == wanted.version;
        if held.filter(same).is_none() {
            self.checks.want(wanted, Duration::ZERO, now);
        }
    }

    /// The next that is due; disabled sources before checks.
    pub(crate) fn due(&mut self, now: LogTime) -> Option<Wanted> {
        self.disabled.due(now).or_else(|| self.checks.due(now))
    }

    pub(crate) fn next_at(&self) -> Option<LogTime> {
        [self.disabled.next_at(), self.checks.next_at()].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use waybill_event::SourceKind;

    use super::*;

    fn at(seconds: i64) -> LogTime {
        LogTime::from_micros(seconds * 1_000_000)
    }

    fn wanted(id: u64, disabling: &str, version: u64) -> Wanted {
        let source = Source { kind: SourceKind::Channel, id };
        Wanted { source, purpose: Purpose::Disabled, disabling: disabling.into(), since: at(0), version, asked: None }
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn intervals_double_up_to_an_hour() {
        let rhythm = Rhythm::default();
        let minutes: Vec<u64> = (1..=8).map(|tries| rhythm.after(tries).as_secs() / 60).collect();
        assert_eq!(minutes, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(rhythm.after(0).as_secs(), 60);
        assert_eq!(rhythm.after(u32::MAX).as_secs(), 3_600);
    }

    #[test]
    fn a_disabled_source_is_due_by_its_rhythm() {
        let mut schedule = Schedule::default();
        let rhythm = Rhythm::default();
        schedule.want(wanted(1, "a", 1), rhythm.first, at(1));
        let mut probes = Vec::new();
        let mut tries = 0;
        for second in 1..=1_100 {
            let now = at(second);
            schedule.want(wanted(1, "a", 1), rhythm.first, now);
            if let Some(due) = schedule.due(now) {
                assert_eq!(schedule.due(now), None, "one at a time");
                probes.push(second);
                tries += 1;
                schedule.settle(&due, now + rhythm.after(tries));
            }
        }
        assert_eq!(probes, [60, 120, 240, 480, 960]);
    }

    #[test]
    fn an_edit_makes_it_due_at_once() {
        let mut schedule = Schedule::default();
        schedule.want(wanted(1, "a", 1), MINUTE, at(0));
        assert_eq!(schedule.due(at(59)), None, "what has just failed fails again");
        let due = schedule.due(at(60)).unwrap();
        schedule.settle(&due, at(3_600));
        assert_eq!(schedule.next_at(), Some(at(3_600)));
        schedule.want(wanted(1, "a", 2), MINUTE, at(100));
        assert_eq!(schedule.next_at(), Some(at(100)));
        let due = schedule.due(at(100)).unwrap();
        schedule.want(Wanted { since: at(101), ..wanted(1, "b", 3) }, MINUTE, at(101));
        schedule.settle(&due, at(9_999));
        assert_eq!(schedule.next_at(), Some(at(161)), "what is done was about an older state");
    }

    #[test]
    fn an_operator_makes_it_due_at_once() {
        let mut schedule = Schedule::default();
        schedule.want(wanted(1, "a", 1), MINUTE, at(0));
        schedule.want(Wanted { asked: Some(at(5)), ..wanted(1, "a", 1) }, MINUTE, at(5));
        assert_eq!(schedule.due(at(5)).map(|due| due.asked), Some(Some(at(5))));
        schedule.want(Wanted { asked: Some(at(6)), ..wanted(2, "a", 1) }, MINUTE, at(7));
        assert!(schedule.due(at(7)).is_some(), "also one that is new here");
    }

    #[test]
    fn a_source_that_is_back_is_forgotten() {
        let mut schedule = Schedule::default();
        schedule.want(wanted(1, "a", 1), MINUTE, at(0));
        let due = schedule.due(at(60)).unwrap();
        schedule.forget(due.source);
        schedule.settle(&due, at(60));
        assert!(schedule.is_empty());
        assert_eq!(schedule.next_at(), None);
    }

    #[test]
    fn the_longest_due_comes_first() {
        let mut schedule = Schedule::default();
        schedule.want(Wanted { since: at(20), ..wanted(1, "a", 1) }, Duration::ZERO, at(20));
        schedule.want(Wanted { since: at(10), ..wanted(2, "b", 1) }, Duration::ZERO, at(20));
        assert_eq!(schedule.len(), 2);
        let order: Vec<u64> = std::iter::from_fn(|| schedule.due(at(30)).map(|due| due.source.id)).collect();
        assert_eq!(order, [2, 1]);
    }
}
