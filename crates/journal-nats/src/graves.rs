//! Tombstones and expiry markers that were heard of. Where one stands, a write of something new must name its revision;
//! whoever knows it needs one round trip for that instead of three.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use waybill_journal::Bucket;

/// How long one is relied on; it stands for ten seconds.
const FRESH: Duration = Duration::from_secs(9);
/// Tombstones after which those that are gone are looked for.
const MANY: usize = 1_024;

/// What a connection has heard of tombstones and markers; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Graves {
    heard: Arc<Mutex<HashMap<(Bucket, String), Grave>>>,
}

#[derive(Clone, Copy)]
struct Grave {
    revision: u64,
    heard: Instant,
}

impl Graves {
    /// A key's newest message is a tombstone or a marker.
    pub(crate) fn dug(&self, bucket: Bucket, key: &str, revision: u64) {
        let now = Instant::now();
        let mut heard = self.heard.lock();
        if heard.len() >= MANY {
            heard.retain(|_, grave| now.duration_since(grave.heard) < FRESH);
        }
        let grave = Grave { revision, heard: now };
        let known = heard.entry((bucket, key.to_owned())).or_insert(grave);
        if known.revision < revision {
            *known = grave;
        }
    }

    /// A key has a value again, written at this revision.
    pub(crate) fn left(&self, bucket: Bucket, key: &str, revision: u64) {
        let mut heard = self.heard.lock();
        // Nothing is looked up twice where there are none, which is nearly always.
        if heard.is_empty() {
            return;
        }
        let key = (bucket, key.to_owned());
        if heard.get(&key).is_some_and(|grave| grave.revision < revision) {
            heard.remove(&key);
        }
    }

    /// The revision of what is likely to stand under a key that holds nothing; 0 where nothing was ever heard of it.
    pub(crate) fn revision(&self, bucket: Bucket, key: &str) -> u64 {
        let heard = self.heard.lock();
        let grave = heard.get(&(bucket, key.to_owned())).filter(|grave| grave.heard.elapsed() < FRESH);
        grave.map_or(0, |grave| grave.revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_tombstone_is_known_until_it_is_gone_or_overwritten() {
        let graves = Graves::default();
        let revision = || graves.revision(Bucket::Permits, "a");
        assert_eq!(revision(), 0);
        graves.dug(Bucket::Permits, "a", 7);
        assert_eq!((revision(), graves.revision(Bucket::Presence, "a")), (7, 0));
        graves.left(Bucket::Permits, "a", 6);
        graves.dug(Bucket::Permits, "a", 5);
        assert_eq!(revision(), 7, "older news changes nothing");
        graves.left(Bucket::Permits, "a", 8);
        assert_eq!(revision(), 0);
        graves.dug(Bucket::Permits, "a", 9);
        tokio::time::advance(FRESH).await;
        assert_eq!(revision(), 0);
    }
}
