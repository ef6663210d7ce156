//! What sessions have spent on accounts within a rolling time. Each replica writes what went through it, at most once a
//! second for each session, and knows by watch what went through the others; asking costs no call. What is spent in the
//! last second elsewhere isn't known yet, so that a limit may be exceeded by what was under way.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_event::{Boot, LogTime, NanoUsd, Source};

use crate::keyed::{Bucket, Held, Keyed, Watched};
use crate::sticky::SessionKey;

/// Prefix of the keys.
const PREFIX: &str = "spend.";
/// Parts of a window: an amount leaves it with its part.
const PARTS: u32 = 60;
/// Between two writes of one session.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// Time the store gets.
const DEADLINE: Duration = Duration::from_secs(2);
/// Sessions whose spending a replica knows; what comes beyond is not limited.
const MOST: usize = 100_000;

/// Amounts by the millisecond at which their part begins.
type Amounts = BTreeMap<i64, i64>;

#[derive(Default)]
struct State {
    /// By session and account, then by who wrote it.
    spent: HashMap<String, HashMap<String, Amounts>>,
    /// What this replica has to write, and how long it is to live.
    dirty: HashMap<String, Duration>,
}

/// The spending of sessions, as this replica knows it. Clones are handles of the same.
#[derive(Clone)]
pub struct Spending {
    inner: Arc<Inner>,
}

struct Inner {
    keyed: Arc<dyn Keyed>,
    own: String,
    state: Mutex<State>,
}

fn name(session: &SessionKey, source: Source) -> String {
    format!("{session}.{}", source.to_string().replace(':', "."))
}

/// The length of a window's part, in milliseconds.
fn part_ms(window: Duration) -> i64 {
    i64::try_from((window / PARTS).as_millis()).unwrap_or(i64::MAX).max(1)
}

impl Spending {
    /// Starts watching and writing, in tasks of `tasks` that end with `stop`.
    #[must_use]
    pub fn start(keyed: Arc<dyn Keyed>, boot: Boot, tasks: &TaskTracker, stop: &CancellationToken) -> Self {
        let inner = Arc::new(Inner { keyed, own: boot.to_string(), state: Mutex::default() });
        let (watching, end) = (inner.clone(), stop.clone());
        tasks.spawn(async move {
            tokio::select! {
                biased;
                () = end.cancelled() => {}
                () = watching.watch() => {}
            }
        });
        let (writing, end) = (inner.clone(), stop.clone());
        tasks.spawn(async move {
            while end.run_until_cancelled(tokio::time::sleep(WRITE_EVERY)).await.is_some() {
                writing.write().await;
            }
            // The last second's is written all the same, as far as the store is there.
            let _as_far_as_it_comes = tokio::time::timeout(DEADLINE, writing.write()).await;
        });
        Self { inner }
    }

    /// What a session has spent on a source within a window that ends now.
    #[must_use]
    pub fn spent(&self, session: &SessionKey, source: Source, window: Duration, now: LogTime) -> NanoUsd {
        let state = self.inner.state.lock();
        let Some(writers) = state.spent.get(&name(session, source)) else { return NanoUsd(0) };
        let since = now.as_millis().saturating_sub(i64::try_from(window.as_millis()).unwrap_or(i64::MAX));
        let amounts = writers.values().flat_map(|amounts| amounts.range(since..).map(|(_, amount)| *amount));
        NanoUsd(amounts.fold(0, i64::saturating_add))
    }

    /// After how long a session that has spent its limit on a source has something left of it again: when enough of what
    /// it spent has left the window.
    #[must_use]
    pub fn room_in(
        &self,
        session: &SessionKey,
        source: Source,
        (window, limit): (Duration, NanoUsd),
        now: LogTime,
    ) -> Duration {
        let state = self.inner.state.lock();
        let Some(writers) = state.spent.get(&name(session, source)) else { return Duration::ZERO };
        let window = i64::try_from(window.as_millis()).unwrap_or(i64::MAX);
        let since = now.as_millis().saturating_sub(window);
        let mut all = Amounts::new();
        for (at, amount) in writers.values().flat_map(|amounts| amounts.range(since..)) {
            let sum = all.entry(*at).or_default();
            *sum = sum.saturating_add(*amount);
        }
        let mut left = all.values().copied().fold(0, i64::saturating_add);
        let mut room_in = 0;
        for (at, amount) in all {
            if left < limit.0 {
                break;
            }
            left = left.saturating_sub(amount);
            room_in = at.saturating_add(window).saturating_sub(now.as_millis()).saturating_add(1);
        }
        Duration::from_millis(u64::try_from(room_in).unwrap_or(0))
    }

    /// A session has spent something on a source.
    pub fn add(&self, session: &SessionKey, source: Source, window: Duration, amount: NanoUsd, now: LogTime) {
        if amount <= NanoUsd(0) {
            return;
        }
        let name = name(session, source);
        let mut state = self.inner.state.lock();
        if state.spent.len() >= MOST && !state.spent.contains_key(&name) {
            return;
        }
        let part = part_ms(window);
        // An amount counts from the end of its part on, so that none leaves the window early.
        let at = now.as_millis().div_euclid(part).saturating_add(1).saturating_mul(part);
        let since = now.as_millis().saturating_sub(i64::try_from(window.as_millis()).unwrap_or(i64::MAX));
        let own = state.spent.entry(name.clone()).or_default().entry(self.inner.own.clone()).or_default();
        own.retain(|at, _| *at >= since);
        let sum = own.entry(at).or_default();
        *sum = sum.saturating_add(amount.0);
        state.dirty.insert(name, window + window / PARTS);
    }
}

impl Inner {
    fn key(&self, name: &str) -> String {
        format!("{PREFIX}{name}.{}", self.own)
    }

    async fn write(&self) {
        let due: Vec<(String, Bytes, Duration)> = {
            let mut state = self.state.lock();
            let State { spent, dirty } = &mut *state;
            let amounts = |name: &String| spent.get(name).and_then(|writers| writers.get(&self.own));
            let value = |amounts: &Amounts| serde_json::to_vec(amounts).map(Bytes::from).ok();
            let due = dirty.drain();
            due.filter_map(|(name, life)| Some((name.clone(), value(amounts(&name)?)?, life))).collect()
        };
        let mut failed = HashSet::new();
        for (name, value, life) in &due {
            let key = self.key(name);
            let write = self.keyed.write(Bucket::Sticky, &key, value.clone(), Held::Anything, Some(*life));
            if !matches!(tokio::time::timeout(DEADLINE, write).await, Ok(Ok(_))) {
                failed.insert(name.clone());
            }
        }
        if !failed.is_empty() {
            let mut state = self.state.lock();
            for (name, _, life) in due.into_iter().filter(|(name, ..)| failed.contains(name)) {
                state.dirty.entry(name).or_insert(life);
            }
        }
    }

    async fn watch(&self) {
        let mut changes = self.keyed.watch(Bucket::Sticky);
        while let Some(change) = changes.next().await {
            match change {
                Ok(Watched::Put(entry)) => {
                    let Some((name, writer)) = parts(&entry.key) else { continue };
                    let Ok(amounts) = serde_json::from_slice::<Amounts>(&entry.value) else { continue };
                    let mut state = self.state.lock();
                    // What is written of the own may be older than what is known here.
                    if writer == self.own || (state.spent.len() >= MOST && !state.spent.contains_key(name)) {
                        continue;
                    }
                    state.spent.entry(name.to_owned()).or_default().insert(writer.to_owned(), amounts);
                }
                Ok(Watched::Gone { key, .. }) => {
                    let Some((name, writer)) = parts(&key) else { continue };
                    let mut state = self.state.lock();
                    if let Some(writers) = state.spent.get_mut(name) {
                        writers.remove(writer);
                        if writers.is_empty() {
                            state.spent.remove(name);
                        }
                    }
                }
                Ok(Watched::Current) => {}
                Err(error) => tracing::debug!(%error, "what sessions spend can't be watched just now"),
            }
        }
    }
}

/// What one replica wrote of a session's spending on a source, for somebody who only looks on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The session: its group and its hash.
    pub session: String,
    /// The source.
    pub source: Source,
    amounts: Amounts,
}

impl Entry {
    /// Reads a key of the bucket and its value; nothing where it is about something else.
    #[must_use]
    pub fn read(key: &str, value: &[u8]) -> Option<Self> {
        let (session, source) = named(key)?;
        Some(Self { session: session.to_owned(), source, amounts: serde_json::from_slice(value).ok()? })
    }

    /// The source that a key is about.
    #[must_use]
    pub fn source(key: &str) -> Option<Source> {
        named(key).map(|(_, source)| source)
    }

    /// What of it was spent within a window that ends now.
    #[must_use]
    pub fn within(&self, window: Duration, now: LogTime) -> NanoUsd {
        let since = now.as_millis().saturating_sub(i64::try_from(window.as_millis()).unwrap_or(i64::MAX));
        NanoUsd(self.amounts.range(since..).fold(0, |sum, (_, amount)| sum.saturating_add(*amount)))
    }
}

/// The session and the source of a key.
fn named(key: &str) -> Option<(&str, Source)> {
    let (name, _) = parts(key)?;
    let (rest, _) = name.rsplit_once('.')?;
    let (session, _) = rest.rsplit_once('.')?;
    let source = name.strip_prefix(session)?.strip_prefix('.')?;
    Some((session, source.parse().ok()?))
}

/// The session and account of a key, and who wrote it.
fn parts(key: &str) -> Option<(&str, &str)> {
    key.strip_prefix(PREFIX)?.rsplit_once('.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use waybill_event::GroupId;

    const WINDOW: Duration = Duration::from_secs(60);

    fn at(seconds: i64) -> LogTime {
        LogTime::from_micros(1_790_000_000_000_000 + seconds * 1_000_000)
    }

    #[test]
    fn who_looks_on_reads_what_was_written() {
        let account: Source = "account:7".parse().unwrap();
        let session = SessionKey::of(GroupId::new(1), &[b"s"]);
        let key = format!("{PREFIX}{}.{}", name(&session, account), Boot::new(at(0), 1));
        let amounts = Amounts::from([(at(0).as_millis(), 5), (at(30).as_millis(), 6)]);
        let entry = Entry::read(&key, &serde_json::to_vec(&amounts).unwrap()).unwrap();
        assert_eq!((entry.session.as_str(), entry.source), (session.to_string().as_str(), account));
        assert_eq!((entry.within(WINDOW, at(59)).0, entry.within(WINDOW, at(63)).0), (11, 6));
        assert_eq!(Entry::read(&session.to_string(), b"account:7"), None);
        assert_eq!((Entry::source(&key), Entry::source("spend.1.a")), (Some(account), None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_spent_session_has_room_again_when_enough_has_left_the_window() {
        let keyed = Memory::new(Arc::new(|| LogTime::from_micros(1))).journal().keyed;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let spending = Spending::start(keyed, Boot::new(at(0), 1), &tasks, &stop);
        let (session, account) = (SessionKey::of(GroupId::new(1), &[b"s"]), "account:7".parse().unwrap());
        for (second, amount) in [(0, 3), (10, 4), (20, 5)] {
            spending.add(&session, account, WINDOW, NanoUsd(amount), at(second));
        }
        let room_in = |limit| spending.room_in(&session, account, (WINDOW, NanoUsd(limit)), at(30));
        // Amounts count from the end of their second on.
        let expected = [(13, 0), (12, 31_001), (10, 31_001), (9, 41_001), (5, 51_001)];
        for (limit, millis) in expected {
            let room_in = room_in(limit);
            assert_eq!(room_in, Duration::from_millis(millis), "limit {limit}");
            let then = LogTime::from_micros(at(30).as_micros() + i64::try_from(room_in.as_micros()).unwrap());
            assert!(spending.spent(&session, account, WINDOW, then).0 < limit);
        }
        stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn replicas_know_together_what_a_session_has_spent_and_it_leaves_with_the_window() {
        let keyed = Memory::new(Arc::new(|| LogTime::from_micros(1))).journal().keyed;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let [one, other] = [1, 2].map(|random| Spending::start(keyed.clone(), Boot::new(at(0), random), &tasks, &stop));
        let session = SessionKey::of(GroupId::new(1), &[b"s"]);
        let account: Source = "account:7".parse().unwrap();
        let spent = |by: &Spending, seconds| by.spent(&session, account, WINDOW, at(seconds)).0;
        one.add(&session, account, WINDOW, NanoUsd(5), at(0));
        one.add(&session, account, WINDOW, NanoUsd(6), at(30));
        other.add(&session, account, WINDOW, NanoUsd(100), at(30));
        assert_eq!((spent(&one, 30), spent(&other, 30)), (11, 100), "at once, as far as each has seen");
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!((spent(&one, 33), spent(&other, 33)), (111, 111));
        assert_eq!(spent(&one, 59), 111);
        assert_eq!(spent(&one, 63), 106, "what was spent at first has left the window");
        assert_eq!(spent(&one, 95), 0);
        let elsewhere: Source = "account:8".parse().unwrap();
        assert_eq!(one.spent(&session, elsewhere, WINDOW, at(33)), NanoUsd(0));
        stop.cancel();
        tasks.close();
        tasks.wait().await;
    }
}
