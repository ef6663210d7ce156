//! Checks of the streams.

use futures_util::future::join_all;

use super::{Answers, Suite, is_conflict, messages, patient, reading, record};
use crate::log::{AppendError, Expect, Start, Stream};

const RACERS: usize = 20;

impl Suite<'_> {
    /// Checks the streams.
    pub async fn run_streams(&self) {
        self.appends_rise_and_read_back().await;
        self.a_message_id_is_stored_once().await;
        self.the_last_of_a_subject_can_be_expected().await;
        self.the_last_of_a_stream_can_be_expected().await;
        self.one_of_many_racers_wins().await;
        self.all_messages_or_none_are_stored().await;
        self.one_of_many_batches_wins().await;
        self.secrets_keep_two_of_a_subject().await;
        self.a_foreign_subject_is_refused().await;
        self.a_follower_sees_all_in_order().await;
        self.a_follower_of_the_newest_sees_each_subject_once().await;
        self.a_follower_of_new_messages_sees_only_these().await;
        // Last: what the others have written goes.
        self.what_is_purged_is_gone_and_nothing_else().await;
    }

    async fn appends_rise_and_read_back(&self) {
        let (stream, subject) = (Stream::Traffic, "wb.traffic.0.rise");
        let before = self.last(stream).await;
        let mut sequences = Vec::new();
        for n in 0..5 {
            let record = record(subject, &n.to_string(), &format!("p{n}"));
            sequences.push(self.append(stream, &record, Expect::Anything).await.unwrap().sequence);
        }
        assert_eq!(sequences, (before + 1..=before + 5).collect::<Vec<_>>());
        let read = self.read(stream, before + 2, 3).await;
        let read: Vec<_> = read.iter().map(|m| (m.sequence, m.subject.as_str(), m.payload.as_ref())).collect();
        let expected: [(u64, &str, &[u8]); 3] =
            [(before + 2, subject, b"p1"), (before + 3, subject, b"p2"), (before + 4, subject, b"p3")];
        assert_eq!(read, expected);
        assert!(self.read(stream, before + 6, 10).await.is_empty());
        assert_eq!(self.read(stream, before + 1, 100).await.len(), 5);
        let last = reading(|| self.journal.log.last_of_subject(stream, subject)).await.unwrap();
        assert_eq!((last.sequence, last.payload.as_ref()), (before + 5, b"p4".as_slice()));
        assert!(last.stored_at.as_micros() > 0);
        assert!(reading(|| self.journal.log.last_of_subject(stream, "wb.traffic.0.never")).await.is_none());
        let bounds = reading(|| self.journal.log.bounds(stream)).await;
        assert!(bounds.first <= before + 1 && bounds.last == before + 5 && bounds.bytes > 0);
    }

    async fn a_message_id_is_stored_once(&self) {
        let stream = Stream::Traffic;
        let message = record("wb.traffic.0.once", "1", "p");
        let first = self.append(stream, &message, Expect::Anything).await.unwrap();
        let second = self.append(stream, &message, Expect::Anything).await.unwrap();
        assert_eq!(first.sequence, second.sequence);
        assert!(second.duplicate && (self.answers == Answers::Sometimes || !first.duplicate));
        assert_eq!(self.last(stream).await, first.sequence);
        // Also where what was expected doesn't hold any more, because it was taken.
        let edit = record("wb.config.once.1", "1", "p");
        let first = self.append(Stream::Config, &edit, Expect::LastOfSubject(0)).await.unwrap();
        let again = self.append(Stream::Config, &edit, Expect::LastOfSubject(0)).await.unwrap();
        assert!(again.duplicate && again.sequence == first.sequence);
        let edit = record("wb.config.once.2", "1", "p");
        let taken = self.append(Stream::Config, &edit, Expect::LastInStream(first.sequence)).await.unwrap();
        let again = self.append(Stream::Config, &edit, Expect::LastInStream(first.sequence)).await.unwrap();
        assert!(again.duplicate && again.sequence == taken.sequence);
    }

    async fn the_last_of_a_subject_can_be_expected(&self) {
        let (stream, subject) = (Stream::Config, "wb.config.subject.1");
        let append = |id, expect| async move { self.append(stream, &record(subject, id, "p"), expect).await };
        let first = append("1", Expect::LastOfSubject(0)).await.unwrap().sequence;
        assert!(is_conflict(&append("2", Expect::LastOfSubject(0)).await));
        let other = record("wb.config.subject.2", "1", "p");
        self.append(stream, &other, Expect::LastOfSubject(0)).await.unwrap();
        let second = append("3", Expect::LastOfSubject(first)).await.unwrap().sequence;
        assert!(is_conflict(&append("4", Expect::LastOfSubject(first)).await));
        append("5", Expect::LastOfSubject(second)).await.unwrap();
    }

    async fn the_last_of_a_stream_can_be_expected(&self) {
        let stream = Stream::Config;
        let last = self.last(stream).await;
        let append =
            |id, expect| async move { self.append(stream, &record("wb.config.stream.1", id, "p"), expect).await };
        let first = append("1", Expect::LastInStream(last)).await.unwrap().sequence;
        assert_eq!(first, last + 1);
        assert!(is_conflict(&append("2", Expect::LastInStream(last)).await));
        assert_eq!(self.last(stream).await, first);
        append("3", Expect::LastInStream(first)).await.unwrap();
    }

    async fn one_of_many_racers_wins(&self) {
        let stream = Stream::Config;
        for round in 0..3 {
            let subject = format!("wb.config.race.{round}");
            let last = self.last(stream).await;
            let expect = if round == 0 { Expect::LastOfSubject(0) } else { Expect::LastInStream(last) };
            let racers: Vec<_> = (0..RACERS).map(|n| record(&subject, &n.to_string(), &n.to_string())).collect();
            let results = join_all(racers.iter().map(|racer| self.append(stream, racer, expect))).await;
            let winners = results.iter().filter(|result| result.is_ok()).count();
            let losers = results.iter().filter(|result| is_conflict(result)).count();
            assert_eq!((winners, losers), (1, RACERS - 1), "round {round}: {results:?}");
            assert_eq!(self.last(stream).await, last + 1);
        }
    }

    async fn all_messages_or_none_are_stored(&self) {
        let stream = Stream::Config;
        let batch = |name: &str, count: usize| -> Vec<_> {
            (0..count).map(|n| record(&format!("wb.config.all.{n}"), name, name)).collect()
        };
        let last = self.last(stream).await;
        assert!(is_conflict(&self.append_all(stream, &batch("stale", 4), last + 7).await));
        if last > 0 {
            assert!(is_conflict(&self.append_all(stream, &batch("older", 4), last - 1).await));
        }
        assert_eq!(self.last(stream).await, last);
        let taken = self.append_all(stream, &batch("good", 4), last).await.unwrap();
        assert_eq!(taken.sequence, last + 4);
        let again = self.append_all(stream, &batch("good", 4), last).await.unwrap();
        assert_eq!((again.sequence, again.duplicate), (last + 4, true));
        let read = self.read(stream, last + 1, 10).await;
        let subjects: Vec<_> = read.iter().map(|message| message.subject.as_str()).collect();
        assert_eq!(subjects, ["wb.config.all.0", "wb.config.all.1", "wb.config.all.2", "wb.config.all.3"]);
        let single = self.append_all(stream, &batch("single", 1), last + 4).await.unwrap();
        assert_eq!(single.sequence, last + 5);
        let large = self.append_all(stream, &batch("large", 500), last + 5).await.unwrap();
        assert_eq!(large.sequence, last + 505);
        let refused = self.journal.log.append_all(stream, batch("larger", 501), last + 505).await;
        assert!(matches!(refused, Err(AppendError::Refused { .. } | AppendError::Unknown { .. })));
        assert_eq!(self.last(stream).await, last + 505);
    }

    async fn one_of_many_batches_wins(&self) {
        let stream = Stream::Config;
        let last = self.last(stream).await;
        let batches: Vec<Vec<_>> = (0..6)
            .map(|racer| (0..3).map(|n| record(&format!("wb.config.batch.{racer}-{n}"), "1", "p")).collect())
            .collect();
        let results = join_all(batches.iter().map(|batch| self.append_all(stream, batch, last))).await;
        let winners: Vec<usize> = results.iter().enumerate().filter(|(_, r)| r.is_ok()).map(|(at, _)| at).collect();
        let losers = results.iter().filter(|result| is_conflict(result)).count();
        assert_eq!((winners.len(), losers), (1, 5), "{results:?}");
        let read = self.read(stream, last + 1, 100).await;
        let subjects: Vec<_> = read.iter().map(|message| message.subject.clone()).collect();
        let winner = winners.first().copied().unwrap_or_default();
        assert_eq!(subjects, (0..3).map(|n| format!("wb.config.batch.{winner}-{n}")).collect::<Vec<_>>());
    }

    async fn secrets_keep_two_of_a_subject(&self) {
        let stream = Stream::Secret;
        let before = self.last(stream).await;
        for n in 0..4 {
            self.append(stream, &record("wb.secret.kept.1", &n.to_string(), "p"), Expect::Anything).await.unwrap();
        }
        self.append(stream, &record("wb.secret.kept.2", "0", "p"), Expect::Anything).await.unwrap();
        let sequences: Vec<_> = self.read(stream, before + 1, 10).await.iter().map(|m| m.sequence).collect();
        assert_eq!(sequences, [before + 3, before + 4, before + 5]);
        let mut following = self.journal.log.follow(stream, Start::At(before + 1));
        let told: Vec<_> = messages(&mut following, 3).await.iter().map(|m| m.sequence).collect();
        assert_eq!(told, [before + 3, before + 4, before + 5]);
        // What makes room between others leaves a hole, which is no fault of this stream.
        self.append(stream, &record("wb.secret.kept.1", "4", "p"), Expect::Anything).await.unwrap();
        self.append(stream, &record("wb.secret.kept.2", "1", "p"), Expect::Anything).await.unwrap();
        self.append(stream, &record("wb.secret.kept.2", "2", "p"), Expect::Anything).await.unwrap();
        let mut following = self.journal.log.follow(stream, Start::At(before + 4));
        // A copy that lags behind the others may still tell what has just made room.
        let mut told = Vec::new();
        while told.last() != Some(&(before + 8)) {
            told.extend(messages(&mut following, 1).await.iter().map(|m| m.sequence).filter(|at| *at != before + 5));
        }
        assert_eq!(told, [before + 4, before + 6, before + 7, before + 8]);
    }

    async fn a_foreign_subject_is_refused(&self) {
        let (config, traffic) = (self.last(Stream::Config).await, self.last(Stream::Traffic).await);
        for subject in ["wb.traffic.0.foreign", "elsewhere.entirely"] {
            let result = self.journal.log.append(Stream::Config, record(subject, "1", "p"), Expect::Anything).await;
            assert!(matches!(result, Err(AppendError::Refused { .. } | AppendError::Unknown { .. })), "{result:?}");
            assert!(
                self.answers == Answers::Sometimes || matches!(result, Err(AppendError::Refused { .. })),
                "{result:?}"
            );
        }
        assert_eq!((self.last(Stream::Config).await, self.last(Stream::Traffic).await), (config, traffic));
    }

    async fn a_follower_sees_all_in_order(&self) {
        let (stream, subject) = (Stream::Traffic, "wb.traffic.0.order");
        let before = self.last(stream).await;
        let mut early = self.journal.log.follow(stream, Start::At(before + 1));
        let write = async {
            for n in 0..200 {
                let record = record(subject, &n.to_string(), &n.to_string());
                self.append(stream, &record, Expect::Anything).await.unwrap();
            }
        };
        let follow = async {
            let mut late = self.journal.log.follow(stream, Start::At(before + 50));
            (messages(&mut early, 200).await, messages(&mut late, 151).await)
        };
        let ((), (early, late)) = futures_util::future::join(write, follow).await;
        let told: Vec<_> = early.iter().map(|message| message.sequence).collect();
        assert_eq!(told, (before + 1..=before + 200).collect::<Vec<_>>());
        let payloads: Vec<_> = early.iter().map(|m| String::from_utf8_lossy(&m.payload).into_owned()).collect();
        assert_eq!(payloads, (0..200).map(|n| n.to_string()).collect::<Vec<_>>());
        assert_eq!(late.first().map(|message| message.sequence), Some(before + 50));
        assert_eq!(late.last().map(|message| message.sequence), Some(before + 200));
    }

    async fn a_follower_of_the_newest_sees_each_subject_once(&self) {
        let stream = Stream::Config;
        for (subject, id) in [("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", "2")] {
            let subject = format!("wb.config.newest.{subject}");
            self.append(stream, &record(&subject, id, id), Expect::Anything).await.unwrap();
        }
        let last = self.last(stream).await;
        let mut following = self.journal.log.follow(stream, Start::LastPerSubject);
        let mut told = Vec::new();
        while told.last().is_none_or(|message: &crate::log::Message| message.sequence < last) {
            told.extend(messages(&mut following, 1).await);
        }
        assert!(told.is_sorted_by(|a, b| a.sequence < b.sequence));
        let mut subjects: Vec<_> = told.iter().map(|message| message.subject.as_str()).collect();
        subjects.sort_unstable();
        assert!(subjects.is_sorted_by(|a, b| a < b), "each subject comes once");
        let newest: Vec<_> = told
            .iter()
            .filter_map(|m| Some((m.subject.strip_prefix("wb.config.newest.")?, m.payload.as_ref())))
            .collect();
        let expected: [(&str, &[u8]); 3] = [("a", b"2"), ("c", b"1"), ("b", b"2")];
        assert_eq!(newest, expected);
        for id in ["3", "4"] {
            self.append(stream, &record("wb.config.newest.a", id, id), Expect::Anything).await.unwrap();
        }
        let new: Vec<_> = messages(&mut following, 2).await.iter().map(|message| message.sequence).collect();
        assert_eq!(new, [last + 1, last + 2]);
    }

    async fn a_follower_of_new_messages_sees_only_these(&self) {
        let (stream, subject) = (Stream::Traffic, "wb.traffic.0.new");
        let before = self.last(stream).await;
        let mut following = self.journal.log.follow(stream, Start::New);
        let mut n = 0;
        // Following begins a moment after the call; from the first message on none may be missing.
        let first = loop {
            let record = record(subject, &n.to_string(), "p");
            let appended = self.append(stream, &record, Expect::Anything).await.unwrap();
            n += 1;
            let wait = tokio::time::timeout(std::time::Duration::from_millis(50), messages(&mut following, 1));
            if let Ok(told) = wait.await {
                let first = told.first().map_or(0, |message| message.sequence);
                assert!(first > before && first <= appended.sequence);
                let rest = usize::try_from(appended.sequence - first).unwrap_or_default();
                messages(&mut following, rest).await;
                break appended.sequence;
            }
        };
        for n in n..n + 5 {
            self.append(stream, &record(subject, &n.to_string(), "p"), Expect::Anything).await.unwrap();
        }
        let told: Vec<_> = messages(&mut following, 5).await.iter().map(|message| message.sequence).collect();
        assert_eq!(told, (first + 1..=first + 5).collect::<Vec<_>>());
    }

    async fn what_is_purged_is_gone_and_nothing_else(&self) {
        let (stream, subject) = (Stream::Traffic, "wb.traffic.0.purge");
        let before = self.last(stream).await;
        for n in 0..6 {
            self.append(stream, &record(subject, &n.to_string(), "p"), Expect::Anything).await.unwrap();
        }
        let purge = |first| async move {
            patient(async {
                loop {
                    match self.journal.log.purge_before(stream, first).await {
                        Err(AppendError::Unknown { .. }) => {}
                        other => return other,
                    }
                }
            })
            .await
        };
        let removed = purge(before + 3).await.unwrap();
        assert!(removed >= 2 || self.answers == Answers::Sometimes);
        assert_eq!(purge(before + 3).await.unwrap(), 0, "a second time changes nothing");
        assert_eq!(purge(before + 1).await.unwrap(), 0, "nothing comes back");
        let bounds = reading(|| self.journal.log.bounds(stream)).await;
        assert_eq!((bounds.first, bounds.last), (before + 3, before + 6));
        let left: Vec<_> = self.read(stream, 1, 10).await.iter().map(|message| message.sequence).collect();
        assert_eq!(left, (before + 3..=before + 6).collect::<Vec<_>>());
        let next = self.append(stream, &record(subject, "6", "p"), Expect::Anything).await.unwrap();
        assert_eq!(next.sequence, before + 7);
        purge(before + 8).await.unwrap();
        let bounds = reading(|| self.journal.log.bounds(stream)).await;
        assert_eq!((bounds.first, bounds.last), (before + 8, before + 7), "an empty stream goes on where it was");
        let next = self.append(stream, &record(subject, "7", "p"), Expect::Anything).await.unwrap();
        assert_eq!(next.sequence, before + 8);
        for kept in [Stream::Config, Stream::Secret] {
            let before = reading(|| self.journal.log.bounds(kept)).await;
            let refused = self.journal.log.purge_before(kept, u64::MAX).await;
            assert!(matches!(refused, Err(AppendError::Refused { .. } | AppendError::Unknown { .. })), "{refused:?}");
            assert_eq!(reading(|| self.journal.log.bounds(kept)).await, before);
        }
    }
}
