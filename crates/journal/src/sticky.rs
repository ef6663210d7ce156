//! Bindings of conversations to accounts. Where a conversation is served is computed, so that nothing is stored for most
//! of them; a binding says where one went that couldn't be served there. All replicas know all bindings by watch: looking
//! one up asks nobody, and without the store the computed choice counts.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use parking_lot::RwLock;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_event::{GroupId, Source};

use crate::keyed::{Bucket, Held, Keyed, Watched};

/// Life of a binding.
const LIFE: Duration = Duration::from_secs(3_600);
/// One that is used is written again when less than this is left of its life.
const RENEW_BELOW: Duration = Duration::from_secs(1_800);
/// Time the store gets.
const DEADLINE: Duration = Duration::from_secs(2);
/// Bindings that a replica knows; what comes beyond that is served as computed.
const MOST: usize = 200_000;

/// Names a conversation within a group: a hash, which tells nothing of what it was made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionKey {
    group: GroupId,
    hash: [u8; 12],
}

impl SessionKey {
    /// The conversation of a group that these parts name.
    #[must_use]
    pub fn of(group: GroupId, parts: &[&[u8]]) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            digest.update(part);
        }
        let mut hash = [0; 12];
        for (to, from) in hash.iter_mut().zip(digest.finalize()) {
            *to = from;
        }
        Self { group, hash }
    }

    /// A number that spreads conversations over sources.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.hash.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
    }

    /// The hash, as events have it.
    #[must_use]
    pub fn hash(&self) -> String {
        self.hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The group.
    #[must_use]
    pub const fn group(&self) -> GroupId {
        self.group
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.group, self.hash())
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionKey({self})")
    }
}

#[derive(Debug, Clone, Copy)]
struct Binding {
    source: Source,
    until: Instant,
}

/// How conversations were served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StickyCounts {
    /// Where they belong.
    pub hit: u64,
    /// Elsewhere, and from now on there.
    pub rebind: u64,
    /// Elsewhere for this once: where they belong was full.
    pub miss: u64,
    /// Bindings that this replica knows.
    pub bindings: u64,
}

/// The bindings, as this replica knows them. Clones are handles of the same.
#[derive(Clone)]
pub struct Bindings {
    inner: Arc<Inner>,
}

struct Inner {
    keyed: Arc<dyn Keyed>,
    tasks: TaskTracker,
    held: RwLock<HashMap<String, Binding>>,
    hit: AtomicU64,
    rebind: AtomicU64,
    miss: AtomicU64,
}

impl Bindings {
    /// Starts watching bindings, in a task of `tasks` that ends with `stop`.
    #[must_use]
    pub fn start(keyed: Arc<dyn Keyed>, tasks: &TaskTracker, stop: &CancellationToken) -> Self {
        let inner = Arc::new(Inner {
            keyed,
            tasks: tasks.clone(),
            held: RwLock::default(),
            hit: AtomicU64::new(0),
            rebind: AtomicU64::new(0),
            miss: AtomicU64::new(0),
        });
        let (watching, stop) = (inner.clone(), stop.clone());
        tasks.spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = watching.watch() => {}
            }
        });
        Self { inner }
    }

    /// Where a conversation is bound to, if it is.
    #[must_use]
    pub fn of(&self, session: &SessionKey) -> Option<Source> {
        let held = self.inner.held.read();
        // Most fleets have none at most times, and a key costs its text.
        if held.is_empty() {
            return None;
        }
        held.get(&session.to_string()).filter(|binding| binding.until > Instant::now()).map(|binding| binding.source)
    }

    /// A conversation was served where it belongs.
    pub fn hit(&self, session: &SessionKey) {
        self.inner.hit.fetch_add(1, Ordering::Relaxed);
        let key = session.to_string();
        let binding = self.inner.held.read().get(&key).copied();
        let ageing = binding.filter(|binding| binding.until < Instant::now() + RENEW_BELOW);
        if let Some(Binding { source, .. }) = ageing {
            self.write(key, source);
        }
    }

    /// A conversation was served elsewhere because where it belongs was full: nothing changes.
    pub fn miss(&self) {
        self.inner.miss.fetch_add(1, Ordering::Relaxed);
    }

    /// A conversation was served here because where it belongs can't serve it: it stays here.
    pub fn rebind(&self, session: &SessionKey, source: Source) {
        self.inner.rebind.fetch_add(1, Ordering::Relaxed);
        self.write(session.to_string(), source);
    }

    /// What was counted since the start.
    #[must_use]
    pub fn counts(&self) -> StickyCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StickyCounts {
            hit: count(&self.inner.hit),
            rebind: count(&self.inner.rebind),
            miss: count(&self.inner.miss),
            bindings: u64::try_from(self.inner.held.read().len()).unwrap_or(u64::MAX),
        }
    }

    /// It counts here at once, and everywhere when the store has it; without the store it is forgotten with this replica.
    fn write(&self, key: String, source: Source) {
        self.inner.put(key.clone(), source);
        let inner = self.inner.clone();
        self.inner.tasks.spawn(async move {
            let value = Bytes::from(source.to_string());
            let write = inner.keyed.write(Bucket::Sticky, &key, value, Held::Anything, Some(LIFE));
            if !matches!(tokio::time::timeout(DEADLINE, write).await, Ok(Ok(_))) {
                tracing::debug!(key, "a conversation's binding isn't known to be stored");
            }
        });
    }
}

impl Inner {
    fn put(&self, key: String, source: Source) {
        let mut held = self.held.write();
        if held.len() >= MOST && !held.contains_key(&key) {
            let now = Instant::now();
            held.retain(|_, binding| binding.until > now);
            if held.len() >= MOST {
                return;
            }
        }
        held.insert(key, Binding { source, until: Instant::now() + LIFE });
    }

    async fn watch(&self) {
        let mut changes = self.keyed.watch(Bucket::Sticky);
        while let Some(change) = changes.next().await {
            match change {
                Ok(Watched::Put(entry)) => {
                    let source = std::str::from_utf8(&entry.value).ok().and_then(|text| text.parse().ok());
                    if let Some(source) = source {
                        self.put(entry.key, source);
                    }
                }
                Ok(Watched::Gone { key, .. }) => drop(self.held.write().remove(&key)),
                Ok(Watched::Current) => {}
                Err(error) => tracing::debug!(%error, "bindings can't be watched just now"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    const GROUP: GroupId = GroupId::new(1);

    fn account(id: u64) -> Source {
        format!("account:{id}").parse().unwrap()
    }

    async fn until(what: impl Fn() -> bool) {
        for _ in 0..200 {
            if what() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it doesn't come to that");
    }

    #[tokio::test]
    async fn a_binding_of_one_replica_holds_at_the_others_and_ends_by_itself() {
        let keyed = Memory::new(Arc::new(|| waybill_event::LogTime::from_micros(1))).journal().keyed;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let [one, other] = [0, 1].map(|_| Bindings::start(keyed.clone(), &tasks, &stop));
        let session = SessionKey::of(GROUP, &[b"a", b"b"]);
        assert_eq!(one.of(&session), None);
        one.rebind(&session, account(7));
        assert_eq!(one.of(&session), Some(account(7)), "at once");
        until(|| other.of(&session) == Some(account(7))).await;
        other.rebind(&session, account(8));
        until(|| one.of(&session) == Some(account(8))).await;
        other.hit(&session);
        other.miss();
        assert_eq!(other.counts(), StickyCounts { hit: 1, rebind: 1, miss: 1, bindings: 1 });
        tokio::time::timeout(DEADLINE, keyed.delete(Bucket::Sticky, &session.to_string(), Held::Anything))
            .await
            .unwrap()
            .unwrap();
        until(|| one.of(&session).is_none()).await;
        stop.cancel();
        tasks.close();
        tasks.wait().await;
    }

    #[test]
    fn parts_are_kept_apart_and_groups_too() {
        let of = |group, parts: &[&[u8]]| SessionKey::of(GroupId::new(group), parts).to_string();
        assert_ne!(of(1, &[b"ab", b"c"]), of(1, &[b"a", b"bc"]));
        assert_ne!(of(1, &[b"a"]), of(2, &[b"a"]));
        assert_eq!(of(1, &[b"a"]), of(1, &[b"a"]));
        assert_ne!(SessionKey::of(GROUP, &[b"a"]).number(), SessionKey::of(GROUP, &[b"b"]).number());
    }
}
