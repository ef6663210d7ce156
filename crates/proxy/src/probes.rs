//! Probe permits of half-open breakers: at most one request of the whole fleet probes an opening at a time. Who holds
//! one is known by watch, so that planning asks nobody; a claim is one round trip with a deadline.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
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
/// Time the store gets on a request's path.
const CLAIM_DEADLINE: Duration = Duration::from_millis(100);

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
        if !self.inner.own.lock().insert(key.clone()) {
            return Claim::Taken;
        }
        let permit = Permit { key: key.clone(), held: self.inner.clone(), ended: CancellationToken::new() };
        let value = Bytes::from(json!({ "holder": self.inner.holder, "opening": opening }).to_string());
        let keyed = &self.inner.keyed;
        let asked = keyed.write(Bucket::Permits, &key, value.clone(), Held::Nothing, Some(LIFE));
        match tokio::time::timeout(CLAIM_DEADLINE, asked).await {
            Ok(Ok(revision)) => {
                self.keep(&permit, revision, value);
                Claim::Granted(permit)
            }
            Ok(Err(AppendError::Conflict)) => Claim::Taken,
            Ok(Err(_)) | Err(_) => {
                tracing::warn!(%source, "a probe goes ahead without the store's permit");
                Claim::Granted(permit)
            }
        }
    }

    /// Gives a permit back.
    pub fn release(&self, permit: Permit) {
        drop(permit);
    }

    /// Renews a permit until it ends, then deletes it.
    fn keep(&self, permit: &Permit, mut revision: u64, value: Bytes) {
        let (inner, key, ended) = (self.inner.clone(), permit.key.clone(), permit.ended.clone());
        self.inner.tasks.spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    () = ended.cancelled() => break,
                    () = inner.stop.cancelled() => break,
                    () = tokio::time::sleep(RENEW) => {}
                }
                let held = Held::Revision(revision);
                match inner.keyed.write(Bucket::Permits, &key, value.clone(), held, Some(LIFE)).await {
                    Ok(renewed) => revision = renewed,
                    Err(error) => tracing::debug!(key, %error, "a probe permit can't be renewed"),
                }
            }
            if let Err(error) = inner.keyed.delete(Bucket::Permits, &key, Held::Revision(revision)).await {
                tracing::debug!(key, %error, "a probe permit lapses by itself");
            }
        });
    }
}

impl Inner {
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

#[cfg(test)]
mod tests {
    use waybill_journal::memory::Memory;

    use super::*;

    const OPENING: &str = "model:channel:3:gpt \"x\"@proxy-1:0:7";

    fn source() -> Source {
        "channel:3".parse().unwrap()
    }

    #[tokio::test]
    async fn one_of_two_replicas_probes_and_the_other_may_afterwards() {
        let journal = Memory::started_at(waybill_event::LogTime::from_micros(1)).journal();
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let start = |name: &str| {
            let boot = Boot::new(waybill_event::LogTime::from_micros(1), 1);
            Probes::start(&journal, &name.parse().unwrap(), boot, &tasks, &stop)
        };
        let (one, two) = (start("proxy-1"), start("proxy-2"));
        assert!(one.seems_free(source(), OPENING, 1));
        let Claim::Granted(permit) = one.claim(source(), OPENING, 1).await else { panic!("it was free") };
        assert!(!one.seems_free(source(), OPENING, 1));
        assert!(matches!(one.claim(source(), OPENING, 1).await, Claim::Taken));
        assert!(matches!(two.claim(source(), OPENING, 1).await, Claim::Taken));
        assert!(two.seems_free(source(), OPENING, 2), "a second one");
        one.release(permit);
        let again = async {
            loop {
                if let Claim::Granted(permit) = two.claim(source(), OPENING, 1).await {
                    return permit;
                }
                tokio::task::yield_now().await;
            }
        };
        drop(tokio::time::timeout(Duration::from_secs(5), again).await.unwrap());
        stop.cancel();
        tasks.close();
        tasks.wait().await;
    }
}
