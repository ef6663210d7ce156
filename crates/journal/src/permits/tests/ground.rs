//! A fleet's permits over one store that each replica can be cut off from and that can be emptied, and what the upstream
//! counts.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_event::{Boot, LogTime, Source, SourceKind};

use crate::Journal;
use crate::faulty::{Faults, Faulty};
use crate::keyed::{Bucket, Entry, Held, Keyed, Watched, Watching};
use crate::log::{AppendError, ReadError};
use crate::memory::Memory;
use crate::permits::{OnOutage, Permits, Settings, ShareFloor, Subject};
use crate::resume::WatchPoint;

pub(super) const AVAILABLE: OnOutage = OnOutage::Share { floor: ShareFloor::Available };
pub(super) const STRICT: OnOutage = OnOutage::Share { floor: ShareFloor::Strict };

/// How long a call of a store that is away takes to fail.
const SILENCE: Duration = Duration::from_secs(2);
/// The way to the store and back.
const WAY: Duration = Duration::from_millis(1);

pub(super) fn start() -> LogTime {
    LogTime::from_micros(1_790_000_000_000_000)
}

pub(super) fn account() -> Subject {
    Subject::from(Source { kind: SourceKind::Account, id: 7 })
}

pub(super) fn limit(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).unwrap()
}

/// The store of a fleet.
pub(super) struct Shop {
    memory: Mutex<Memory>,
    /// Rises when the store loses everything.
    age: watch::Sender<u64>,
}

impl Shop {
    fn memory(&self) -> Memory {
        self.memory.lock().clone()
    }

    /// The store loses all that it holds.
    pub(super) fn empty(&self) {
        *self.memory.lock() = Memory::started_at(start());
        self.age.send_modify(|age| *age += 1);
    }

    /// The store loses all that it holds, and no watch tells of it.
    pub(super) fn empty_unheard(&self) {
        *self.memory.lock() = Memory::started_at(start());
    }

    /// Keys that it holds now and that begin like this.
    pub(super) async fn keys(&self, prefix: &str) -> Vec<String> {
        let mut watching = self.memory().journal().keyed.watch(Bucket::Permits);
        let mut keys = Vec::new();
        while let Some(Ok(Watched::Put(entry))) = watching.next().await {
            keys.extend(Some(entry.key).filter(|key| key.starts_with(prefix)));
        }
        keys
    }
}

/// One replica's way to the store.
#[derive(Clone)]
pub(super) struct Cable {
    shop: Arc<Shop>,
    cut: Arc<watch::Sender<bool>>,
    /// Calls but those that only look whether the store is there.
    calls: Arc<AtomicU64>,
}

impl Cable {
    async fn call(&self, key: &str) -> Result<Arc<dyn Keyed>, String> {
        if !key.starts_with("permits.") {
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
        sleep(WAY / 2).await;
        if *self.cut.borrow() {
            sleep(SILENCE).await;
            return Err("cut off".to_owned());
        }
        Ok(self.shop.memory().journal().keyed)
    }

    async fn answer<T, E>(&self, answer: Result<T, E>, silent: impl FnOnce(String) -> E) -> Result<T, E> {
        sleep(WAY / 2).await;
        if *self.cut.borrow() {
            sleep(SILENCE).await;
            return Err(silent("cut off before the answer".to_owned()));
        }
        answer
    }
}

fn unavailable(reason: String) -> ReadError {
    ReadError::Unavailable { reason }
}

fn unknown(reason: String) -> AppendError {
    AppendError::Unknown { reason }
}

#[async_trait]
impl Keyed for Cable {
    async fn get(&self, bucket: Bucket, key: &str) -> Result<Option<Entry>, ReadError> {
        let keyed = self.call(key).await.map_err(unavailable)?;
        let found = keyed.get(bucket, key).await;
        self.answer(found, unavailable).await
    }

    async fn write(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        held: Held,
        ttl: Option<Duration>,
    ) -> Result<u64, AppendError> {
        let keyed = self.call(key).await.map_err(unknown)?;
        let written = keyed.write(bucket, key, value, held, ttl).await;
        self.answer(written, unknown).await
    }

    async fn delete(&self, bucket: Bucket, key: &str, held: Held) -> Result<(), AppendError> {
        let keyed = self.call(key).await.map_err(unknown)?;
        let deleted = keyed.delete(bucket, key, held).await;
        self.answer(deleted, unknown).await
    }

    fn watch(&self, bucket: Bucket) -> Watching {
        let begun = (self.clone(), WatchPoint::default(), None, VecDeque::new());
        stream::unfold(begun, move |(cable, point, watching, told)| cable.watch_on(bucket, point, watching, told))
            .boxed()
    }
}

/// A watch of one age of the store.
struct Inner {
    age: u64,
    watching: Watching,
}

type WatchState = (Cable, WatchPoint, Option<Inner>, VecDeque<Watched>);

impl Cable {
    async fn watch_on(
        self,
        bucket: Bucket,
        mut point: WatchPoint,
        mut inner: Option<Inner>,
        mut told: VecDeque<Watched>,
    ) -> Option<(Result<Watched, ReadError>, WatchState)> {
        let (mut cut, mut age) = (self.cut.subscribe(), self.shop.age.subscribe());
        let known = inner.as_ref().map(|inner| inner.age);
        loop {
            if let Some(next) = told.pop_front() {
                return Some((Ok(next), (self, point, inner, told)));
            }
            let (is_cut, now) = (*cut.borrow_and_update(), *age.borrow_and_update());
            if is_cut || inner.as_ref().is_some_and(|inner| inner.age != now) {
                if inner.take().is_some() {
                    return Some((Err(unavailable("the watch is cut".to_owned())), (self, point, None, told)));
                }
                cut.changed().await.ok()?;
                continue;
            }
            let watched = match &mut inner {
                None => {
                    point.begin(if known == Some(now) { u64::MAX } else { 0 });
                    let watching = self.shop.memory().journal().keyed.watch(bucket);
                    inner = Some(Inner { age: now, watching });
                    continue;
                }
                Some(inner) => tokio::select! {
                    biased;
                    changed = cut.changed() => { changed.ok()?; continue }
                    changed = age.changed() => { changed.ok()?; continue }
                    watched = inner.watching.next() => watched?,
                },
            };
            sleep(WAY / 2).await;
            told.extend(watched.map(|watched| point.accept(watched)).unwrap_or_default());
        }
    }
}

/// One replica.
pub(super) struct Replica {
    pub(super) permits: Permits,
    stop: CancellationToken,
    cut: Arc<watch::Sender<bool>>,
    calls: Arc<AtomicU64>,
    faults: Option<Faulty>,
}

impl Replica {
    pub(super) fn cut_off(&self) {
        self.cut.send_replace(true);
    }

    pub(super) fn join(&self) {
        self.cut.send_replace(false);
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(super) fn faults(&self, faults: Faults) {
        self.faults.as_ref().unwrap().set(faults);
    }

    /// It dies without a word: whatever it still wants to tell the store doesn't get through.
    pub(super) fn kill(&self) {
        self.cut_off();
        self.stop.cancel();
    }
}

/// A fleet.
pub(super) struct Fleet {
    pub(super) shop: Arc<Shop>,
    pub(super) replicas: Vec<Replica>,
    pub(super) tasks: TaskTracker,
    pub(super) upstream: Arc<Upstream>,
    /// How many replicas live, as each of them hears.
    pub(super) count: Arc<AtomicU32>,
}

impl Fleet {
    /// So many replicas whose calls all get through.
    pub(super) async fn of(count: u32) -> Self {
        Self::started(count, None, Settings::default()).await
    }

    /// So many replicas, each with faults by this seed.
    pub(super) async fn faulty(count: u32, faults: Faults, seed: u64) -> Self {
        Self::started(count, Some((faults, seed)), Settings::default()).await
    }

    async fn started(count: u32, faults: Option<(Faults, u64)>, settings: Settings) -> Self {
        let shop = Shop { memory: Mutex::new(Memory::started_at(start())), age: watch::Sender::new(0) };
        let mut fleet = Self {
            shop: Arc::new(shop),
            replicas: Vec::new(),
            tasks: TaskTracker::new(),
            upstream: Arc::default(),
            count: Arc::new(AtomicU32::new(count)),
        };
        for n in 0..count {
            fleet.add(n, 0, faults.map(|(faults, seed)| (faults, seed * 100 + u64::from(n))), settings);
        }
        // Everybody has met the store.
        sleep(Duration::from_millis(1_500)).await;
        fleet
    }

    /// One more start of a replica.
    pub(super) fn add(&mut self, n: u32, start_no: u32, faults: Option<(Faults, u64)>, settings: Settings) {
        let (cut, calls) = (Arc::new(watch::Sender::new(false)), Arc::<AtomicU64>::default());
        let cable = Cable { shop: self.shop.clone(), cut: cut.clone(), calls: calls.clone() };
        let faulty = faults.map(|(faults, seed)| {
            let log = self.shop.memory().journal().log;
            Faulty::over(Journal { log, keyed: Arc::new(cable.clone()) }, faults, seed)
        });
        let keyed: Arc<dyn Keyed> = faulty.as_ref().map_or_else(|| Arc::new(cable) as _, |f| Arc::new(f.clone()) as _);
        let stop = CancellationToken::new();
        let producer = format!("proxy-{}", n + 1).parse().unwrap();
        let boot = Boot::new(super::ground::start() + Duration::from_secs(start_no.into()), n);
        let count = self.count.clone();
        let permits = Permits::start(
            keyed,
            &producer,
            boot,
            Arc::new(move || count.load(Ordering::Relaxed)),
            &self.tasks,
            &stop,
            settings,
        );
        self.replicas.push(Replica { permits, stop, cut, calls, faults: faulty });
    }

    pub(super) async fn stop(self) {
        for replica in &self.replicas {
            replica.stop.cancel();
        }
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// What the upstream sees.
#[derive(Default)]
pub(super) struct Upstream {
    now: AtomicU32,
    most: AtomicU32,
    /// When each request came.
    came: Mutex<VecDeque<Instant>>,
    busy_us: AtomicU64,
}

impl Upstream {
    /// Serves one request for so long.
    pub(super) async fn serve(&self, time: Duration) {
        let _here = self.enter();
        sleep(time).await;
    }

    /// A request comes, and goes when what is returned is dropped.
    pub(super) fn enter(&self) -> Here<'_> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.came.lock().push_back(Instant::now());
        Here { upstream: self, since: Instant::now() }
    }

    pub(super) fn now(&self) -> u32 {
        self.now.load(Ordering::SeqCst)
    }

    /// The most at once since the last time this was asked.
    pub(super) fn most(&self) -> u32 {
        self.most.swap(self.now(), Ordering::SeqCst)
    }

    pub(super) fn came(&self) -> u32 {
        u32::try_from(self.came.lock().len()).unwrap()
    }

    /// Time that all requests together took.
    pub(super) fn busy(&self) -> Duration {
        Duration::from_micros(self.busy_us.load(Ordering::Relaxed))
    }

    /// The most that came within any minute.
    pub(super) fn most_in_a_minute(&self) -> usize {
        let came = self.came.lock();
        let mut window = VecDeque::new();
        let mut most = 0;
        for at in came.iter() {
            window.push_back(*at);
            while window.pop_front_if(|first| at.duration_since(*first) >= Duration::from_secs(60)).is_some() {}
            most = most.max(window.len());
        }
        most
    }
}

/// A request that the upstream serves.
pub(super) struct Here<'a> {
    upstream: &'a Upstream,
    since: Instant,
}

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.upstream.now.fetch_sub(1, Ordering::SeqCst);
        let micros = u64::try_from(self.since.elapsed().as_micros()).unwrap();
        self.upstream.busy_us.fetch_add(micros, Ordering::Relaxed);
    }
}

/// Random numbers of a worker.
pub(super) struct Chance(ChaCha8Rng);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    pub(super) fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.0.random_range(range))
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.0.random_range(0..n) == 0
    }
}

/// Waits until something holds; panics after a minute and a half of virtual time.
pub(super) async fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(90);
    while !holds() {
        assert!(Instant::now() < end, "{what} never came");
        sleep(Duration::from_millis(5)).await;
    }
}
