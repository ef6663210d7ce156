use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tokio_util::task::TaskTracker;
use waybill_event::LogTime;

use super::*;
use crate::AppendError;
use crate::faulty::{Faults, Faulty};
use crate::keyed::{Entry, Watching};
use crate::log::ReadError;
use crate::memory::Memory;

const START: i64 = 1_790_000_000_000_000;

struct Process {
    presence: Arc<Presence>,
    clock: LogClock,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// A store whose watches tell nothing any more once it is deaf, not even that something has gone.
struct Deaf(Arc<dyn Keyed>, Arc<AtomicBool>);

#[async_trait]
impl Keyed for Deaf {
    async fn get(&self, bucket: Bucket, key: &str) -> Result<Option<Entry>, ReadError> {
        self.0.get(bucket, key).await
    }

    async fn write(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        held: Held,
        ttl: Option<Duration>,
    ) -> Result<u64, AppendError> {
        self.0.write(bucket, key, value, held, ttl).await
    }

    async fn delete(&self, bucket: Bucket, key: &str, held: Held) -> Result<(), AppendError> {
        self.0.delete(bucket, key, held).await
    }

    fn watch(&self, bucket: Bucket) -> Watching {
        let deaf = Arc::clone(&self.1);
        self.0.watch(bucket).filter(move |_| std::future::ready(!deaf.load(Ordering::Relaxed))).boxed()
    }
}

/// A process whose steady time began at `skew` microseconds.
fn process(name: &str, keyed: &Arc<dyn Keyed>, skew: i64) -> Process {
    acting("proxy", name, keyed, skew)
}

fn acting(role: &str, name: &str, keyed: &Arc<dyn Keyed>, skew: i64) -> Process {
    let origin = tokio::time::Instant::now();
    let clock = LogClock::new(Arc::new(move || skew + i64::try_from(origin.elapsed().as_micros()).unwrap()));
    let boot = Boot::new(LogTime::from_micros(START), 1);
    let presence = Arc::new(Presence::new(Arc::clone(keyed), name.parse().unwrap(), boot, role, clock.clone()));
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let (running, stopping) = (Arc::clone(&presence), stop.clone());
    tasks.spawn(async move {
        let busy = BTreeMap::from([("channel:1".parse().unwrap(), 2), ("account:1".parse().unwrap(), 1)]);
        running.run(|| Report { in_flight: 3, busy: busy.clone(), ..Report::default() }, stopping).await;
    });
    tasks.close();
    Process { presence, clock, stop, tasks }
}

impl Process {
    fn names(&self) -> Vec<String> {
        self.presence.fleet().into_keys().collect()
    }

    /// How far its clock is from the store's, in microseconds.
    fn off(&self, memory: &Memory) -> i64 {
        (self.clock.now().unwrap().as_micros() - memory.now().as_micros()).abs()
    }

    async fn end(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

#[tokio::test(start_paused = true)]
async fn processes_see_each_other_and_the_stores_time() {
    let memory = Memory::started_at(LogTime::from_micros(START));
    let keyed = memory.journal().keyed;
    let (a, b) = (process("a", &keyed, 77_000_000), process("b", &keyed, 5));
    assert_eq!(a.clock.now(), None);
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(a.names(), ["a", "b"]);
    assert_eq!(b.names(), ["a", "b"]);
    assert!(a.off(&memory) <= 2_000 && b.off(&memory) <= 2_000, "{} and {} µs off", a.off(&memory), b.off(&memory));
    let seen = b.presence.fleet().remove("a").unwrap();
    assert!(seen.report.in_flight == 3 && seen.n >= 3 && seen.role == "proxy");
    // Who stops says so; nobody has to wait for the end of its beats.
    a.end().await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(b.names(), ["b"]);
    b.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_falls_silent_is_gone_after_its_time_and_comes_back() {
    let memory = Memory::started_at(LogTime::from_micros(START));
    let faulty = Faulty::over(memory.journal(), Faults::NONE, 5);
    let (a, b) = (process("a", &faulty.journal().keyed, 0), process("b", &memory.journal().keyed, 0));
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    faulty.set(Faults { unavailable: 1.0, ..Faults::NONE });
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(b.names(), ["a", "b"]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(b.names(), ["b"]);
    assert!(a.off(&memory) <= 2_000, "the clock goes on");
    faulty.set(Faults { lost_answer: 0.5, cut: 0.2, ..Faults::NONE });
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(b.names(), ["a", "b"]);
    a.end().await;
    b.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_others_of_a_role_have_under_way_is_summed_until_their_beats_expire() {
    let memory = Memory::started_at(LogTime::from_micros(START));
    let keyed = memory.journal().keyed;
    let deaf = Arc::new(AtomicBool::new(false));
    let to_a: Arc<dyn Keyed> = Arc::new(Deaf(Arc::clone(&keyed), Arc::clone(&deaf)));
    let (a, b, c) = (process("a", &to_a, 0), process("b", &keyed, 0), process("c", &keyed, 0));
    let projector = acting("projector", "d", &keyed, 0);
    let check = |process: &Process, count: u32| {
        let sum = |each: u32| (count > 0).then_some(each * count);
        let others = process.presence.others();
        assert_eq!(others.count, count);
        assert_eq!(others.busy.get(&"channel:1".parse().unwrap()).copied(), sum(2));
        assert_eq!(others.busy.get(&"account:1".parse().unwrap()).copied(), sum(1));
    };
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    [&a, &b, &c].into_iter().for_each(|process| check(process, 2));
    check(&projector, 0);
    // Cut off, it hears of nobody's end and of no further beat; what it heard holds for its time and no longer.
    deaf.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(3)).await;
    check(&a, 2);
    tokio::time::sleep(Duration::from_secs(3)).await;
    check(&a, 0);
    check(&b, 2);
    b.end().await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    check(&c, 1);
    for process in [a, c, projector] {
        process.end().await;
    }
}

#[test]
fn a_beat_tells_of_the_busiest_sources_where_there_are_too_many() {
    let source = |id: u32| format!("channel:{id}").parse::<Source>().unwrap();
    let most = u32::try_from(TOLD).unwrap();
    let busy = (1..=most + 7).map(|id| (source(id), if id > 7 { 2 } else { 1 })).collect();
    let told = told(Report { busy, ..Report::default() });
    assert_eq!(told.busy.len(), TOLD);
    assert!(told.busy.values().all(|busy| *busy == 2));
}

#[tokio::test(start_paused = true)]
async fn slow_echoes_move_the_clock_little() {
    let memory = Memory::started_at(LogTime::from_micros(START));
    let slow = Faults { longest_delay: Duration::from_millis(400), ..Faults::NONE };
    let faulty = Faulty::over(memory.journal(), slow, 9);
    let a = process("a", &faulty.journal().keyed, 1_000);
    tokio::time::sleep(Duration::from_secs(20)).await;
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(a.off(&memory) < 250_000, "{} µs off", a.off(&memory));
    }
    assert_eq!(a.clock.jumps(), 0);
    a.end().await;
}
