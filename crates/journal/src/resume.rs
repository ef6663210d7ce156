//! How followers and watches go on after they were cut, so that nothing is skipped and nothing comes twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::keyed::Watched;
use crate::log::Start;

/// Where a follower stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowPoint {
    /// The stream's last sequence when following began, where that matters; messages up to it are told as newest of
    /// their subject only.
    newest_only_up_to: u64,
    /// Everything up to this sequence was told, or is not asked for.
    told: u64,
    /// Whether a message was told: from then on a hole is one that the follower should know of.
    begun: bool,
}

impl FollowPoint {
    /// A follower that begins at `start`, when the stream's last sequence is `last`.
    #[must_use]
    pub const fn new(start: Start, last: u64) -> Self {
        match start {
            Start::At(from) => Self { newest_only_up_to: 0, told: from.saturating_sub(1), begun: false },
            Start::LastPerSubject => Self { newest_only_up_to: last, told: 0, begun: true },
            Start::New => Self { newest_only_up_to: 0, told: last, begun: true },
        }
    }

    /// Where it goes on. With [`Start::LastPerSubject`] messages that [`FollowPoint::admit`] refuses come again.
    #[must_use]
    pub const fn start(&self) -> Start {
        if self.told < self.newest_only_up_to { Start::LastPerSubject } else { Start::At(self.told.saturating_add(1)) }
    }

    /// Whether a message with this sequence is to be told; if so it counts as told.
    pub const fn admit(&mut self, sequence: u64) -> bool {
        if sequence <= self.told {
            return false;
        }
        self.told = sequence;
        self.begun = true;
        true
    }

    /// The sequence that should have come, if `met` leaves a hole that is to be reported.
    #[must_use]
    pub const fn hole_before(&self, met: u64) -> Option<u64> {
        let expected = self.told.saturating_add(1);
        if self.begun && self.told >= self.newest_only_up_to && met > expected { Some(expected) } else { None }
    }

    /// Goes past a hole that was reported.
    pub const fn pass_hole(&mut self, met: u64) {
        self.told = met.saturating_sub(1);
    }

    /// The last sequence that counts as told.
    #[must_use]
    pub const fn told(&self) -> u64 {
        self.told
    }

    /// Whether anything was told, or was there when following began.
    #[must_use]
    pub const fn has_told(&self) -> bool {
        self.begun
    }
}

/// What a watch has told.
#[derive(Debug, Clone, Default)]
pub struct WatchPoint {
    living: BTreeMap<String, u64>,
    newest: u64,
    current: bool,
    /// The keys met since the watch began anew; none once that is over.
    met: Option<BTreeSet<String>>,
}

impl WatchPoint {
    /// The watch begins (again), when the bucket's last revision is `last`: what comes up to the next
    /// [`Watched::Current`] is all that lives.
    pub fn begin(&mut self, last: u64) {
        self.met = Some(BTreeSet::new());
        if last < self.newest {
            // The bucket was lost and begins anew: what was known says nothing about the revisions to come.
            self.newest = last;
            self.living.values_mut().for_each(|revision| *revision = 0);
        }
    }

    /// What to tell of something that the store told.
    pub fn accept(&mut self, watched: Watched) -> Vec<Watched> {
        match watched {
            Watched::Put(entry) => {
                if let Some(met) = &mut self.met {
                    met.insert(entry.key.clone());
                }
                self.newest = self.newest.max(entry.revision);
                let known = self.living.get(&entry.key).is_some_and(|revision| *revision >= entry.revision);
                if known {
                    return Vec::new();
                }
                self.living.insert(entry.key.clone(), entry.revision);
                vec![Watched::Put(entry)]
            }
            Watched::Gone { key, revision } => {
                self.newest = self.newest.max(revision);
                match self.living.get(&key) {
                    Some(living) if *living < revision => {
                        self.living.remove(&key);
                        vec![Watched::Gone { key, revision }]
                    }
                    Some(_) | None => Vec::new(),
                }
            }
            Watched::Current => {
                let Some(met) = self.met.take() else { return Vec::new() };
                let revision = self.newest;
                let vanished: Vec<String> = self.living.keys().filter(|key| !met.contains(*key)).cloned().collect();
                let mut told = Vec::with_capacity(vanished.len() + 1);
                for key in vanished {
                    self.living.remove(&key);
                    told.push(Watched::Gone { key, revision });
                }
                if !std::mem::replace(&mut self.current, true) {
                    told.push(Watched::Current);
                }
                told
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use waybill_event::LogTime;

    use super::*;
    use crate::keyed::Entry;

    fn put(key: &str, revision: u64) -> Watched {
        let (key, value) = (key.to_owned(), Bytes::from_static(b"v"));
        Watched::Put(Entry { key, value, revision, stored_at: LogTime::from_micros(0) })
    }

    fn gone(key: &str, revision: u64) -> Watched {
        Watched::Gone { key: key.to_owned(), revision }
    }

    fn check(given: Vec<Option<Watched>>, then: &[Watched]) {
        let mut point = WatchPoint::default();
        let mut told = Vec::new();
        for step in given {
            match step {
                None => point.begin(9),
                Some(watched) => told.extend(point.accept(watched)),
            }
        }
        assert_eq!(told, then);
    }

    #[test]
    fn a_watch_that_begins_again_tells_only_what_changed() {
        check(
            vec![
                None,
                Some(put("a", 1)),
                Some(put("b", 2)),
                Some(Watched::Current),
                None,
                Some(put("a", 1)),
                Some(put("c", 5)),
                Some(Watched::Current),
                Some(gone("c", 6)),
                Some(gone("c", 6)),
            ],
            &[put("a", 1), put("b", 2), Watched::Current, put("c", 5), gone("b", 5), gone("c", 6)],
        );
    }

    #[test]
    fn a_watch_cut_before_it_was_current_says_so_once() {
        check(
            vec![None, Some(put("a", 1)), None, Some(Watched::Current), None, Some(Watched::Current)],
            &[put("a", 1), gone("a", 1), Watched::Current],
        );
    }

    #[test]
    fn a_bucket_that_began_anew_is_told_as_it_is() {
        let mut point = WatchPoint::default();
        let mut told = Vec::new();
        point.begin(8);
        for watched in [put("a", 7), put("b", 8), Watched::Current] {
            told.extend(point.accept(watched));
        }
        point.begin(2);
        for watched in [put("a", 2), Watched::Current, put("b", 3)] {
            told.extend(point.accept(watched));
        }
        assert_eq!(told[3..], [put("a", 2), gone("b", 2), put("b", 3)]);
    }

    #[test]
    fn a_follower_goes_on_where_it_was_cut() {
        let mut point = FollowPoint::new(Start::LastPerSubject, 10);
        assert_eq!(point.start(), Start::LastPerSubject);
        assert!(point.admit(4) && !point.admit(4) && point.admit(7));
        assert_eq!((point.start(), point.hole_before(9)), (Start::LastPerSubject, None));
        assert!(point.admit(10));
        assert_eq!((point.start(), point.hole_before(12)), (Start::At(11), Some(11)));
        let point = FollowPoint::new(Start::New, 10);
        assert_eq!((point.start(), point.hole_before(11)), (Start::At(11), None));
        let point = FollowPoint::new(Start::At(3), 10);
        assert_eq!((point.start(), point.hole_before(5)), (Start::At(3), None));
    }
}
