//! Permits of half-open breakers and of limits that are tried again: at most so many requests of the whole fleet probe an
//! opening at a time as its policy says, and one tries a block. Who holds one is known by watch, so that planning asks
//! nobody; a claim is one round trip with a deadline.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_event::{Boot, ProducerId, Source};
use waybill_journal::{AppendError, Bucket, Held, Journal, Keyed, Watched};

/// Prefix of all probe permits in their bucket.
const PREFIX: &str = "probe.";
/// Life of a permit; it is renewed while the probe runs.
const LIFE: Duration = Duration::from_secs(10);
const RENEW: Duration = Duration::from_secs(4);
/// How long a permit outlives what failed, so that whoever could ask for it next has heard of that before.
const LINGER: Duration = Duration::from_secs(1);
/// Time the store gets on a request's path.
const CLAIM_DEADLINE: Duration = Duration::from_millis(100);
/// Writes of one claim, where the store says that none before got through.
const CLAIM_TRIES: u32 = 3;

/// What a claim came to.
pub enum Claim {
    /// This request probes.
    Granted(Permit),
    /// Somebody else does.
    Taken,
}

/// The right to probe. It ends when it is released or dropped; a dead replica's lapses by itself.
pub struct Permit {
    key: String,
    held: Arc<Inner>,
    ended: CancellationToken,
    lingers: Arc<AtomicBool>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.held.own.lock().remove(&self.key);
        self.ended.cancel();
    }
}

struct Inner {
    keyed: Arc<dyn Keyed>,
    holder: String,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Permits that the store knows, with the instant at which each has lapsed at the latest.
    taken: Mutex<HashMap<String, Instant>>,
    /// Permits of this replica's own requests.
    own: Mutex<HashSet<String>>,
}

/// Claims probes for this replica.
#[derive(Clone)]
pub struct Probes {
    inner: Arc<Inner>,
}

impl Probes {
    /// Starts watching who holds permits, in a task of `tasks` that ends with `stop`.
    #[must_use]
    pub fn start(
        journal: &Journal,
        producer: &ProducerId,
        boot: Boot,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        let inner = Arc::new(Inner {
            keyed: journal.keyed.clone(),
            holder: format!("{producer}:{boot}"),
            tasks: tasks.clone(),
            stop: stop.clone(),
            taken: Mutex::default(),
            own: Mutex::default(),
        });
        let watching = inner.clone();
        tasks.spawn(async move {
            tokio::select! {
                biased;
                () = watching.stop.cancelled() => {}
                () = watching.watch() => {}
            }
        });
        Self { inner }
    }

    /// Whether one of an opening's `most` probes seems to be free, as far as this replica has heard.
    #[must_use]
    pub fn seems_free(&self, source: Source, opening: &str, most: u32) -> bool {
        self.free_slots(source, opening, most).next().is_some()
    }

    fn free_slots(&self, source: Source, opening: &str, most: u32) -> impl Iterator<Item = String> {
        let keys = (0..most.max(1)).map(|slot| key(source, opening, slot)).collect::<Vec<_>>();
        let (taken, own, now) = (self.inner.taken.lock(), self.inner.own.lock(), Instant::now());
        let free = |key: &String| taken.get(key).is_none_or(|lapses| *lapses <= now) && !own.contains(key);
        keys.into_iter().filter(free).collect::<Vec<_>>().into_iter()
    }

    /// Claims one of the `most` probes of an opening. With the store away each replica may probe once at a time.
    pub async fn claim(&self, source: Source, opening: &str, most: u32) -> Claim {
        for key in self.free_slots(source, opening, most) {
            match self.claim_slot(source, opening, key).await {
                Claim::Taken => {}
                granted @ Claim::Granted(_) => return granted,
            }
        }
        Claim::Taken
    }

    async fn claim_slot(&self, source: Source, opening: &str, key: String) -> Claim {
        let alone = {
            let mut own = self.inner.own.lock();
            if !own.insert(key.clone()) {
                return Claim::Taken;
            }
            own.iter().filter(|other| opening_of(other) == opening_of(&key)).count() == 1
        };
        let (held, ended) = (self.inner.clone(), CancellationToken::new());
        let permit = Permit { key: key.clone(), held, ended, lingers: Arc::default() };
        let value = Bytes::from(json!({ "holder": self.inner.holder, "opening": opening }).to_string());
        match tokio::time::timeout(CLAIM_DEADLINE, self.inner.written(&key, &value)).await {
            Ok(Written::Held(revision)) => {
                self.keep(&permit, Some(revision), value);
                Claim::Granted(permit)
            }
            Ok(Written::Refused) => Claim::Taken,
            Ok(Written::Away) | Err(_) if alone => {
                tracing::warn!(%source, "a probe goes ahead without the store's permit");
                // The write may have got through all the same, or may yet.
                self.keep(&permit, None, value);
                Claim::Granted(permit)
            }
            Ok(Written::Away) | Err(_) => Claim::Taken,
        }
    }

    /// Gives a permit back.
    pub fn release(&self, permit: Permit) {
        drop(permit);
    }

    /// Gives a permit back of what has failed: all others are to hear of that before the next one is granted.
    pub fn release_failed(&self, permit: Permit) {
        permit.lingers.store(true, Ordering::Release);
        drop(permit);
    }

    /// Renews a permit until it ends, then deletes it. No revision is known of one whose claim nobody answered.
    fn keep(&self, permit: &Permit, mut revision: Option<u64>, value: Bytes) {
        let (inner, key, ended) = (self.inner.clone(), permit.key.clone(), permit.ended.clone());
        let lingers = permit.lingers.clone();
        self.inner.tasks.spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    () = ended.cancelled() => break,
                    () = inner.stop.cancelled() => break,
                    () = tokio::time::sleep(RENEW) => {}
                }
                let held = revision.map_or(Held::Nothing, Held::Revision);
                match inner.keyed.write(Bucket::Permits, &key, value.clone(), held, Some(LIFE)).await {
                    Ok(renewed) => revision = Some(renewed),
                    Err(error) => {
                        tracing::debug!(key, %error, "a probe permit isn't known to be renewed");
                        revision = inner.find(&key, &value).await.or(revision);
                    }
                }
            }
            if lingers.load(Ordering::Acquire) {
                let _sooner_at_the_stop = tokio::time::timeout(LINGER, inner.stop.cancelled()).await;
            }
            let deleted = match revision {
                Some(revision) => inner.keyed.delete(Bucket::Permits, &key, Held::Revision(revision)).await.is_ok(),
                None => false,
            };
            if !deleted
                && let Some(revision) = inner.find(&key, &value).await
                && let Err(error) = inner.keyed.delete(Bucket::Permits, &key, Held::Revision(revision)).await
            {
                tracing::debug!(key, %error, "a probe permit lapses by itself");
            }
        });
    }
}

/// What a claim's write came to.
enum Written {
    /// The permit is ours, at this revision.
    Held(u64),
    /// It is somebody else's.
    Refused,
    /// Nobody can tell.
    Away,
}

impl Inner {
    /// Writes a permit that nobody holds. Where a write isn't answered the store is asked what became of it.
    async fn written(&self, key: &str, value: &Bytes) -> Written {
        for _ in 0..CLAIM_TRIES {
            match self.keyed.write(Bucket::Permits, key, value.clone(), Held::Nothing, Some(LIFE)).await {
                Ok(revision) => return Written::Held(revision),
                Err(AppendError::Conflict) => return Written::Refused,
                Err(error) => tracing::debug!(key, %error, "a claim isn't answered"),
            }
            match self.keyed.get(Bucket::Permits, key).await {
                Ok(Some(entry)) if entry.value == *value => return Written::Held(entry.revision),
                Ok(Some(_)) => return Written::Refused,
                Ok(None) => {}
                Err(_) => return Written::Away,
            }
        }
        Written::Away
    }

    /// The revision of an own permit, as the store has it: what became of a write that nobody answered. Nothing where it
    /// isn't there, is somebody else's or can't be asked for.
    async fn find(&self, key: &str, value: &Bytes) -> Option<u64> {
        let found = self.keyed.get(Bucket::Permits, key).await.ok().flatten();
        found.filter(|entry| entry.value == *value).map(|entry| entry.revision)
    }

    async fn watch(&self) {
        let mut changes = self.keyed.watch(Bucket::Permits);
        while let Some(change) = changes.next().await {
            match change {
                Ok(Watched::Put(entry)) if entry.key.starts_with(PREFIX) => {
                    let mut taken = self.taken.lock();
                    let now = Instant::now();
                    taken.retain(|_, lapses| *lapses > now);
                    // Also without word of its end it counts no longer than it can live.
                    taken.insert(entry.key, now + LIFE + Duration::from_secs(1));
                }
                Ok(Watched::Gone { key, .. }) => {
                    self.taken.lock().remove(&key);
                }
                Ok(Watched::Put(_) | Watched::Current) => {}
                Err(error) => tracing::debug!(%error, "permits can't be watched just now"),
            }
        }
    }
}

/// The key of one of an opening's permits. Names of models are in the opening's id and never in a key, so it is hashed.
fn key(source: Source, opening: &str, slot: u32) -> String {
    let hash = opening
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{PREFIX}{}.{hash:016x}.{slot}", source.to_string().replace(':', "."))
}

/// What the keys of all permits of one opening have in common.
fn opening_of(key: &str) -> &str {
    key.rsplit_once('.').map_or(key, |(opening, _)| opening)
}

#[cfg(test)]
mod tests;
