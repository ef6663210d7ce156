//! Checks of the keyed state.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::{Answers, Suite, is_conflict, patient, told_until};
use crate::keyed::{Bucket, Held, Watched, whole_seconds};

const RACERS: usize = 20;

impl Suite<'_> {
    /// Checks the keyed state; the buckets must be empty.
    pub async fn run_buckets(&self) {
        for bucket in Bucket::ALL {
            self.a_watch_of_an_empty_bucket_is_current(bucket).await;
        }
        self.writes_hold_to_what_they_expect().await;
        self.a_deleted_key_can_be_claimed_again().await;
        self.one_of_many_claims_wins().await;
        self.a_watch_tells_what_is_there_then_what_changes().await;
        self.a_watch_ends_at_the_newest_values().await;
        for bucket in [Bucket::Permits, Bucket::Presence, Bucket::Sticky] {
            self.values_expire_also_over_what_was_deleted(bucket).await;
        }
        self.a_write_renews_or_ends_the_time_to_live().await;
    }

    async fn a_watch_of_an_empty_bucket_is_current(&self, bucket: Bucket) {
        let mut watching = self.journal.keyed.watch(bucket);
        let told = told_until(&mut watching, |watched| *watched == Watched::Current).await;
        assert_eq!(told, [Watched::Current], "{bucket:?}");
        let revision = self.write(bucket, "first", "v", Held::Nothing, None).await.unwrap();
        let told = told_until(&mut watching, |_| true).await;
        assert!(matches!(told.as_slice(), [Watched::Put(entry)] if entry.revision == revision && entry.key == "first"));
        self.delete(bucket, "first", Held::Revision(revision)).await.unwrap();
        let told = told_until(&mut watching, |_| true).await;
        assert!(matches!(told.as_slice(), [Watched::Gone { key, .. }] if key == "first"), "{told:?}");
    }

    async fn writes_hold_to_what_they_expect(&self) {
        let (bucket, key) = (Bucket::Selector, "channel.1");
        assert_eq!(self.value(bucket, key).await, None);
        let first = self.write(bucket, key, "a", Held::Nothing, None).await.unwrap();
        assert!(is_conflict(&self.write(bucket, key, "b", Held::Nothing, None).await));
        let second = self.write(bucket, key, "c", Held::Revision(first), None).await.unwrap();
        assert!(second > first);
        assert!(is_conflict(&self.write(bucket, key, "d", Held::Revision(first), None).await));
        assert_eq!(self.value(bucket, key).await, Some((second, "c".to_owned())));
        let third = self.write(bucket, key, "e", Held::Anything, None).await.unwrap();
        assert_eq!(self.value(bucket, key).await, Some((third, "e".to_owned())));
        assert!(is_conflict(&self.write(bucket, "channel.2", "a", Held::Revision(third), None).await));
        assert_eq!(self.value(bucket, "channel.2").await, None);
    }

    async fn a_deleted_key_can_be_claimed_again(&self) {
        let (bucket, key) = (Bucket::Permits, "slot.deleted");
        self.delete(bucket, key, Held::Anything).await.unwrap();
        for round in 0..3 {
            let claim = self.write(bucket, key, &format!("claim {round}"), Held::Nothing, None).await.unwrap();
            assert!(is_conflict(&self.delete(bucket, key, Held::Revision(claim - 1)).await));
            assert!(is_conflict(&self.delete(bucket, key, Held::Nothing).await));
            self.delete(bucket, key, Held::Revision(claim)).await.unwrap();
            assert_eq!(self.value(bucket, key).await, None);
            assert!(is_conflict(&self.write(bucket, key, "late", Held::Revision(claim), None).await));
            // Where answers get lost, a second deletion can't be told from the first.
            let again = self.delete(bucket, key, Held::Revision(claim)).await;
            assert!(is_conflict(&again) || (self.answers == Answers::Sometimes && again.is_ok()));
        }
        self.write(bucket, key, "anything", Held::Anything, None).await.unwrap();
        self.delete(bucket, key, Held::Anything).await.unwrap();
        self.delete(bucket, key, Held::Anything).await.unwrap();
        self.delete(bucket, key, Held::Nothing).await.unwrap();
    }

    async fn one_of_many_claims_wins(&self) {
        let bucket = Bucket::Permits;
        let mut held = Held::Nothing;
        for round in 0..6 {
            let values: Vec<String> = (0..RACERS).map(|n| format!("{round}/{n}")).collect();
            let claims = values.iter().map(|value| self.write(bucket, "slot.race", value, held, Some(30)));
            let results = join_all(claims).await;
            let winners: Vec<_> = results.iter().zip(&values).filter(|(result, _)| result.is_ok()).collect();
            let losers = results.iter().filter(|result| is_conflict(result)).count();
            assert_eq!((winners.len(), losers), (1, RACERS - 1), "round {round}: {results:?}");
            let (revision, value) = self.value(bucket, "slot.race").await.unwrap();
            assert_eq!(winners.first().map(|(_, value)| value.as_str()), Some(value.as_str()));
            // Every other round is a race over what was deleted.
            held = if round % 2 == 0 {
                self.delete(bucket, "slot.race", Held::Revision(revision)).await.unwrap();
                Held::Nothing
            } else {
                Held::Revision(revision)
            };
        }
    }

    async fn a_watch_tells_what_is_there_then_what_changes(&self) {
        let bucket = Bucket::Selector;
        let a = self.write(bucket, "seen.a", "1", Held::Anything, None).await.unwrap();
        self.write(bucket, "seen.b", "1", Held::Anything, None).await.unwrap();
        let gone = self.write(bucket, "seen.gone", "1", Held::Anything, None).await.unwrap();
        self.delete(bucket, "seen.gone", Held::Revision(gone)).await.unwrap();
        let a = self.write(bucket, "seen.a", "2", Held::Revision(a), None).await.unwrap();
        let mut watching = self.journal.keyed.watch(bucket);
        let told = told_until(&mut watching, |watched| *watched == Watched::Current).await;
        let puts: Vec<_> = told
            .iter()
            .filter_map(|watched| match watched {
                Watched::Put(entry) if entry.key.starts_with("seen.") => {
                    Some((entry.key.as_str(), entry.value.as_ref()))
                }
                Watched::Put(_) | Watched::Gone { .. } | Watched::Current => None,
            })
            .collect();
        let expected: [(&str, &[u8]); 2] = [("seen.b", b"1"), ("seen.a", b"2")];
        assert_eq!(puts, expected);
        assert!(!told.iter().any(|watched| matches!(watched, Watched::Gone { .. })), "{told:?}");
        let c = self.write(bucket, "seen.c", "1", Held::Nothing, None).await.unwrap();
        self.delete(bucket, "seen.a", Held::Revision(a)).await.unwrap();
        let told = told_until(&mut watching, |watched| matches!(watched, Watched::Gone { .. })).await;
        match told.as_slice() {
            [Watched::Put(entry), Watched::Gone { key, revision }] => {
                assert_eq!((entry.key.as_str(), entry.revision, key.as_str()), ("seen.c", c, "seen.a"));
                assert!(*revision >= c && entry.stored_at.as_micros() > 0);
            }
            other => assert!(other.is_empty() && !other.is_empty(), "unexpected: {other:?}"),
        }
    }

    async fn a_watch_ends_at_the_newest_values(&self) {
        let bucket = Bucket::Selector;
        let mut watching = self.journal.keyed.watch(bucket);
        let write = async {
            for n in 0..150 {
                let key = format!("many.{}", n % 7);
                self.write(bucket, &key, &n.to_string(), Held::Anything, None).await.unwrap();
            }
            self.write(bucket, "many.end", "end", Held::Anything, None).await.unwrap();
        };
        let (mut current, mut end) = (false, false);
        let ended = |watched: &Watched| {
            current |= *watched == Watched::Current;
            end |= matches!(watched, Watched::Put(entry) if entry.key == "many.end");
            current && end
        };
        let ((), told) = futures_util::future::join(write, told_until(&mut watching, ended)).await;
        assert_eq!(told.iter().filter(|watched| **watched == Watched::Current).count(), 1);
        let mut revisions: BTreeMap<String, u64> = BTreeMap::new();
        let mut newest = BTreeMap::new();
        for watched in told {
            let Watched::Put(entry) = watched else { continue };
            let before = revisions.insert(entry.key.clone(), entry.revision);
            assert!(before.is_none_or(|before| before < entry.revision), "{} went back", entry.key);
            newest.insert(entry.key, String::from_utf8_lossy(&entry.value).into_owned());
        }
        for n in 143..150 {
            assert_eq!(newest.get(&format!("many.{}", n % 7)), Some(&n.to_string()));
        }
    }

    async fn values_expire_also_over_what_was_deleted(&self, bucket: Bucket) {
        let key = "lease.expires";
        let mut watching = self.journal.keyed.watch(bucket);
        told_until(&mut watching, |watched| *watched == Watched::Current).await;
        for round in 0..3 {
            // Nothing there at first, then over what has expired, then over what was deleted.
            if round == 2 {
                let claim = self.write(bucket, key, "short", Held::Nothing, Some(30)).await.unwrap();
                self.delete(bucket, key, Held::Revision(claim)).await.unwrap();
            }
            let began = Instant::now();
            let claim = self.write(bucket, key, &format!("claim {round}"), Held::Nothing, Some(1)).await.unwrap();
            told_until(&mut watching, |watched| matches!(watched, Watched::Put(e) if e.revision == claim)).await;
            assert!(is_conflict(&self.write(bucket, key, "other", Held::Nothing, Some(1)).await));
            told_until(&mut watching, |watched| matches!(watched, Watched::Gone { key: k, .. } if k == key)).await;
            let lived = began.elapsed();
            assert!(lived >= Duration::from_millis(900) && lived < Duration::from_secs(4), "round {round}: {lived:?}");
            assert_eq!(self.value(bucket, key).await, None);
        }
    }

    async fn a_write_renews_or_ends_the_time_to_live(&self) {
        assert_eq!(whole_seconds(Duration::from_millis(1001)), Duration::from_secs(2));
        let bucket = Bucket::Permits;
        let mut renewed = self.write(bucket, "lease.renewed", "0", Held::Nothing, Some(2)).await.unwrap();
        let lasting = self.write(bucket, "lease.lasting", "0", Held::Nothing, Some(1)).await.unwrap();
        self.write(bucket, "lease.lasting", "1", Held::Revision(lasting), None).await.unwrap();
        for n in 1..=3 {
            tokio::time::sleep(Duration::from_millis(1000)).await;
            let value = n.to_string();
            renewed = self.write(bucket, "lease.renewed", &value, Held::Revision(renewed), Some(2)).await.unwrap();
        }
        assert_eq!(self.value(bucket, "lease.lasting").await.map(|(_, value)| value).as_deref(), Some("1"));
        patient(async {
            while self.value(bucket, "lease.renewed").await.is_some() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
}
