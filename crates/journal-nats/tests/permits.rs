//! Permits over real servers: what a claim costs there, and that limits hold while replicas and nodes die. By default in
//! scaled times; `cargo xtask permits` runs them in full.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_event::{Boot, LogTime, Source, SourceKind};
use waybill_journal::permits::{OnOutage, Permits, Settings, ShareFloor, Subject};
use waybill_journal_nats::{Connection, NatsConfig, SetupConfig, connect};
use waybill_services::{Finder, Launcher, Nats, NatsCluster, NatsConfig as ServerConfig};

const AVAILABLE: OnOutage = OnOutage::Share { floor: ShareFloor::Available };

fn account() -> Subject {
    Subject::from(Source { kind: SourceKind::Account, id: 7 })
}

fn limit(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).unwrap()
}

/// Whether everything takes as long as it does in production.
fn in_full() -> bool {
    std::env::var_os("WAYBILL_PERMITS_IN_FULL").is_some()
}

async fn connected(url: &str) -> Connection {
    let urls = url.split(',').map(str::to_owned).collect();
    connect(NatsConfig::new(urls, "tester".to_owned(), "none".into(), "permits".to_owned())).await.unwrap()
}

/// One replica.
struct Replica {
    connection: Connection,
    permits: Permits,
    stop: CancellationToken,
}

impl Replica {
    async fn start(url: &str, n: u32, settings: Settings, tasks: &TaskTracker) -> Self {
        let connection = connected(url).await;
        let keyed = Arc::clone(&connection.journal().keyed);
        let (producer, stop) = (format!("proxy-{n}").parse().unwrap(), CancellationToken::new());
        let boot = Boot::new(LogTime::from_micros(1_790_000_000_000_000), n);
        let permits = Permits::start(keyed, &producer, boot, Arc::new(|| 3), tasks, &stop, settings);
        Self { connection, permits, stop }
    }
}

/// What the upstream sees.
#[derive(Default)]
struct Upstream {
    now: AtomicU32,
    most: AtomicU32,
    busy_us: AtomicU64,
    came: Mutex<Vec<Instant>>,
}

impl Upstream {
    async fn serve(&self, time: Duration) {
        let _here = Here::enter(self);
        sleep(time).await;
    }

    fn busy(&self) -> Duration {
        Duration::from_micros(self.busy_us.load(Ordering::Relaxed))
    }

    fn most_within(&self, window: Duration) -> usize {
        let (mut within, mut most) = (VecDeque::new(), 0);
        for at in self.came.lock().iter() {
            within.push_back(*at);
            while within.pop_front_if(|first| at.duration_since(*first) >= window).is_some() {}
            most = most.max(within.len());
        }
        most
    }
}

struct Here<'a>(&'a Upstream, Instant);

impl<'a> Here<'a> {
    fn enter(upstream: &'a Upstream) -> Self {
        let now = upstream.now.fetch_add(1, Ordering::SeqCst) + 1;
        upstream.most.fetch_max(now, Ordering::SeqCst);
        Self(upstream, Instant::now())
    }
}

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
        let micros = u64::try_from(self.1.elapsed().as_micros()).unwrap();
        self.0.busy_us.fetch_add(micros, Ordering::Relaxed);
    }
}

/// Counts what is sent to the store about one subject's keys.
async fn spy(url: &str, tasks: &TaskTracker) -> (Arc<AtomicU64>, async_nats::Client) {
    let client = async_nats::connect(url).await.unwrap();
    let mut heard = client.subscribe(">").await.unwrap();
    client.flush().await.unwrap();
    let count = Arc::<AtomicU64>::default();
    let counted = count.clone();
    tasks.spawn(async move {
        while let Some(message) = heard.next().await {
            let asked = message.subject.starts_with("$JS.API.") || message.subject.starts_with("$KV.");
            let about = |text: &str| text.contains("slot.account") || text.contains("rate.account");
            // What the server tells watches was counted when it was sent.
            let told = message.reply.as_ref().is_some_and(|reply| reply.starts_with("$JS.ACK."));
            let text = String::from_utf8_lossy(&message.payload);
            if asked && !told && (about(&message.subject) || about(&text)) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    (count, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_one_message_also_over_a_tombstone() {
    let dir = TempDir::new().unwrap();
    let config = ServerConfig::new(dir.path().join("nats"));
    let server = Nats::start(&Launcher::UtilLinux, &Finder::new(dir.path()), config).await.unwrap();
    let setup = connected(&server.url()).await;
    setup.setup(&SetupConfig::single_node()).await.unwrap();
    let tasks = TaskTracker::new();
    let first = Replica::start(&server.url(), 1, Settings::default(), &tasks).await;
    let second = Replica::start(&server.url(), 2, Settings::default(), &tasks).await;
    let (sent, spy) = spy(&server.url(), &tasks).await;
    let counted = async |work: &str, expected: u64| {
        sleep(Duration::from_millis(200)).await;
        assert_eq!(sent.swap(0, Ordering::SeqCst), expected, "{work}");
    };
    sleep(Duration::from_millis(500)).await;
    let slot = first.permits.slot(&account(), limit(1), AVAILABLE).await.unwrap();
    counted("a cold claim", 1).await;
    drop(slot);
    for _ in 0..20 {
        drop(first.permits.slot(&account(), limit(1), AVAILABLE).await.unwrap());
    }
    counted("a warm slot", 0).await;
    sleep(Duration::from_millis(1_500)).await;
    counted("its deletion", 1).await;
    let slot = second.permits.slot(&account(), limit(1), AVAILABLE).await.unwrap();
    counted("a claim over the tombstone of another replica's", 1).await;
    drop(slot);
    for _ in 0..100 {
        drop(first.permits.rate(&account(), limit(6_000), AVAILABLE).await.unwrap());
    }
    counted("ten chunks", 10).await;
    for replica in [first, second] {
        replica.stop.cancel();
        replica.connection.close().await;
    }
    spy.drain().await.unwrap();
    tasks.close();
    tasks.wait().await;
    setup.close().await;
    server.stop().await.unwrap();
}

/// The index of the node that leads the bucket of permits, once there is one other than `killed`.
async fn leader(url: &str, killed: Option<usize>) -> usize {
    let context = async_nats::jetstream::new(async_nats::connect(url.split(',').collect::<Vec<_>>()).await.unwrap());
    let asked = async {
        loop {
            let stream = context.get_stream_no_info("KV_wb_permits").await.unwrap();
            let cluster = stream.get_info().await.ok().and_then(|info| info.cluster);
            if let Some(leader) = cluster.and_then(|cluster| cluster.leader) {
                let node = leader.strip_prefix("nats-").unwrap().parse::<usize>().unwrap() - 1;
                if Some(node) != killed {
                    return node;
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(30), asked).await.unwrap()
}

/// Streams of mixed length for `permits`, some of which are left early, until `end`.
async fn work(permits: Permits, upstream: Arc<Upstream>, over: Arc<AtomicU32>, seed: u64, end: Instant) {
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    let account = account();
    while Instant::now() < end {
        let time = Duration::from_millis(chance.random_range(50..800));
        let patience =
            Duration::from_millis(if chance.random_bool(0.1) { chance.random_range(1..800) } else { 60_000 });
        let wait = Duration::from_secs(10);
        let served = timeout(patience, async {
            if let Ok(slot) = permits.slot_within(&account, limit(5), OnOutage::Closed, wait).await {
                upstream.serve(time).await;
                if slot.is_over_lease() {
                    over.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        // Who has no patience leaves, and its slot with it.
        let _left = served.await;
    }
}

/// 3 replicas over 3 nodes, a limit of 5, 200 clients; a replica dies, then the leader of the bucket is killed.
#[tokio::test(flavor = "multi_thread")]
async fn the_cap_holds_in_a_cluster_while_a_replica_and_the_leader_die() {
    let (ttl, quiet) = if in_full() { (60, 60) } else { (12, 8) };
    let (ttl, quiet) = (Duration::from_secs(ttl), Duration::from_secs(quiet));
    let settings = Settings { ttl, ..Settings::default() };
    let dir = TempDir::new().unwrap();
    let config = ServerConfig::new(dir.path().join("nats"));
    let mut cluster = NatsCluster::start(&Launcher::UtilLinux, &Finder::new(dir.path()), 3, config).await.unwrap();
    let setup = connected(&cluster.url()).await;
    setup.setup(&SetupConfig { traffic_max_bytes: 256 << 20, ..SetupConfig::three_nodes() }).await.unwrap();
    let (tasks, work_tasks) = (TaskTracker::new(), TaskTracker::new());
    let mut replicas = Vec::new();
    for n in 1..=3 {
        replicas.push(Replica::start(&cluster.url(), n, settings, &tasks).await);
    }
    let (upstream, over) = (Arc::<Upstream>::default(), Arc::<AtomicU32>::default());
    let end = Instant::now() + quiet * 3 + ttl;
    let killed = CancellationToken::new();
    for worker in 0..200_u64 {
        let replica = usize::try_from(worker % 3).unwrap();
        let permits = replicas[replica].permits.clone();
        let work = work(permits, upstream.clone(), over.clone(), worker, end);
        let killed = if replica == 2 { killed.clone() } else { CancellationToken::new() };
        work_tasks.spawn(async move {
            tokio::select! {
                () = killed.cancelled() => {}
                () = work => {}
            }
        });
    }
    work_tasks.close();
    let share = async |what: &str, time: Duration| {
        let (before, begun) = (upstream.busy(), Instant::now());
        sleep(time).await;
        let share = (upstream.busy() - before).as_secs_f64() / (5.0 * begun.elapsed().as_secs_f64());
        println!("{what}: {:.1} % of what five slots can do", share * 100.0);
        share
    };
    sleep(Duration::from_secs(2)).await;
    let undisturbed = share("three replicas", quiet).await;
    // The third replica's connection ends first, so that it can't tell the store of its end.
    let third = replicas.pop().unwrap();
    third.connection.close().await;
    killed.cancel();
    third.stop.cancel();
    sleep(ttl + Duration::from_millis(1_500)).await;
    let survivors = share("two replicas, a lease time after the third died", quiet).await;
    let node = leader(&cluster.url(), None).await;
    cluster.kill9(node).await.unwrap();
    let leaderless = share("after the leader was killed", quiet / 2).await;
    leader(&cluster.url(), Some(node)).await;
    cluster.restart(node).await.unwrap();
    work_tasks.wait().await;
    let most = upstream.most.load(Ordering::SeqCst);
    let counts: Vec<_> = replicas.iter().map(|replica| replica.permits.counts()).collect();
    println!("at most {most} at once, {} over lease; {counts:?}", over.load(Ordering::SeqCst));
    assert!(most <= 5 + over.load(Ordering::SeqCst), "{most} at once");
    assert!(undisturbed >= 0.9 && survivors >= 0.9 && leaderless >= 0.5, "{undisturbed} {survivors} {leaderless}");
    // All capacity is there, wherever it is asked for.
    cluster.ready().await.unwrap();
    sleep(Duration::from_secs(2)).await;
    let mut held = Vec::new();
    for n in 0..5 {
        let wait = ttl + Duration::from_secs(2);
        let permits = &replicas[n % 2].permits;
        held.push(permits.slot_within(&account(), limit(5), OnOutage::Closed, wait).await.unwrap());
    }
    assert!(replicas[0].permits.slot(&account(), limit(5), OnOutage::Closed).await.is_err());
    drop(held);
    for replica in replicas {
        replica.stop.cancel();
        replica.connection.close().await;
    }
    tasks.close();
    tasks.wait().await;
    setup.close().await;
    cluster.stop().await.unwrap();
}

/// Three replicas ask for more than the limit of a minute gives.
#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_a_minute_holds_over_three_replicas() {
    let minute = Duration::from_secs(if in_full() { 60 } else { 6 });
    let settings = Settings { minute, ..Settings::default() };
    let dir = TempDir::new().unwrap();
    let config = ServerConfig::new(dir.path().join("nats"));
    let cluster = NatsCluster::start(&Launcher::UtilLinux, &Finder::new(dir.path()), 3, config).await.unwrap();
    let setup = connected(&cluster.url()).await;
    setup.setup(&SetupConfig { traffic_max_bytes: 256 << 20, ..SetupConfig::three_nodes() }).await.unwrap();
    let (tasks, work_tasks) = (TaskTracker::new(), TaskTracker::new());
    let mut replicas = Vec::new();
    for n in 1..=3 {
        replicas.push(Replica::start(&cluster.url(), n, settings, &tasks).await);
    }
    sleep(Duration::from_secs(1)).await;
    let (per_minute, minutes) = (60_u32, 3_u32);
    let upstream = Arc::<Upstream>::default();
    let end = Instant::now() + minute * minutes;
    for worker in 0..9_u64 {
        let permits = replicas[usize::try_from(worker % 3).unwrap()].permits.clone();
        let (upstream, mut chance) = (upstream.clone(), ChaCha8Rng::seed_from_u64(worker));
        let pause = u64::try_from(minute.as_millis()).unwrap() / u64::from(per_minute) * 9;
        work_tasks.spawn(async move {
            while Instant::now() < end {
                if permits.rate(&account(), limit(per_minute), OnOutage::Closed).await.is_ok() {
                    upstream.came.lock().push(Instant::now());
                }
                sleep(Duration::from_millis(chance.random_range(0..pause))).await;
            }
        });
    }
    work_tasks.close();
    work_tasks.wait().await;
    upstream.came.lock().sort();
    let (most, came) = (upstream.most_within(minute), upstream.came.lock().len());
    let counts: Vec<_> = replicas.iter().map(|replica| replica.permits.counts()).collect();
    println!("at most {most} of {per_minute} within a minute, {came} in {minutes}; {counts:?}");
    assert!(most <= usize::try_from(per_minute).unwrap(), "{most} within a minute");
    // A key comes back a window and a second after the minute, which weighs more where the minute is short.
    let life = minute + settings.use_window + Duration::from_secs(1);
    let possible = f64::from(per_minute) * (minute * minutes).as_secs_f64() / life.as_secs_f64();
    assert!(f64::from(u32::try_from(came).unwrap()) >= possible * 0.8, "{came} of {possible}");
    for replica in replicas {
        replica.stop.cancel();
        replica.connection.close().await;
    }
    tasks.close();
    tasks.wait().await;
    setup.close().await;
    cluster.stop().await.unwrap();
}
