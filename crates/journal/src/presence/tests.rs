use tokio_util::task::TaskTracker;
use waybill_event::LogTime;

use super::*;
use crate::faulty::{Faults, Faulty};
use crate::memory::Memory;

const START: i64 = 1_790_000_000_000_000;

struct Process {
    presence: Arc<Presence>,
    clock: LogClock,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// A process whose steady time began at `skew` microseconds.
fn process(name: &str, keyed: &Arc<dyn Keyed>, skew: i64) -> Process {
    let origin = tokio::time::Instant::now();
    let clock = LogClock::new(Arc::new(move || skew + i64::try_from(origin.elapsed().as_micros()).unwrap()));
    let boot = Boot::new(LogTime::from_micros(START), 1);
    let presence = Arc::new(Presence::new(Arc::clone(keyed), name.parse().unwrap(), boot, "proxy", clock.clone()));
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let (running, stopping) = (Arc::clone(&presence), stop.clone());
    tasks.spawn(async move {
        running.run(|| Report { in_flight: 3, ..Report::default() }, stopping).await;
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
