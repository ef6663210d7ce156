use std::sync::atomic::{AtomicU64, Ordering};

use tokio_util::task::TaskTracker;
use waybill_event::LogTime;

use super::*;
use crate::faulty::{Faults, Faulty};
use crate::memory::Memory;

const FOR_EVER: Duration = Duration::from_secs(100_000);

/// Processes that want to lead the same.
struct Fleet {
    memory: Memory,
    origin: Instant,
    leading: Arc<AtomicU64>,
    tasks: TaskTracker,
}

struct Process {
    faulty: Faulty,
    seen: Arc<Seen>,
    stop: CancellationToken,
}

#[derive(Default)]
struct Seen {
    leads: AtomicU64,
    tenures: AtomicU64,
    /// When it last began and last ended to lead, in milliseconds of the test's time.
    began: AtomicU64,
    ended: AtomicU64,
}

impl Fleet {
    fn new() -> Self {
        Self {
            memory: Memory::started_at(LogTime::from_micros(1_790_000_000_000_000)),
            origin: Instant::now(),
            leading: Arc::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// A process that leads for as long as it may, but gives up after `turn` each time.
    fn start(&self, name: &str, n: u32, turn: Duration) -> Process {
        let faulty = Faulty::over(self.memory.journal(), Faults::NONE, u64::from(n));
        let config = LeaseConfig::new("selector", name.parse().unwrap(), Boot::new(self.memory.now(), n));
        let (seen, stop) = (Arc::<Seen>::default(), CancellationToken::new());
        let (noted, stopping, all, origin) = (Arc::clone(&seen), stop.clone(), Arc::clone(&self.leading), self.origin);
        let work = move |lost: CancellationToken| {
            assert_eq!(all.fetch_add(1, Ordering::SeqCst), 0, "two lead at once");
            noted.leads.store(1, Ordering::SeqCst);
            noted.tenures.fetch_add(1, Ordering::SeqCst);
            noted.began.store(millis(origin), Ordering::SeqCst);
            let (noted, stopping, all) = (Arc::clone(&noted), stopping.clone(), Arc::clone(&all));
            async move {
                tokio::select! {
                    () = lost.cancelled() => {}
                    () = stopping.cancelled() => {}
                    () = sleep(turn) => {}
                }
                noted.leads.store(0, Ordering::SeqCst);
                noted.ended.store(millis(origin), Ordering::SeqCst);
                all.fetch_sub(1, Ordering::SeqCst);
            }
        };
        self.tasks.spawn(lead(faulty.journal().keyed, config, stop.clone(), work));
        Process { faulty, seen, stop }
    }

    async fn end(self, processes: &[&Process]) {
        for process in processes {
            process.stop.cancel();
        }
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Process {
    fn leads(&self) -> bool {
        self.seen.leads.load(Ordering::SeqCst) == 1
    }

    fn tenures(&self) -> u64 {
        self.seen.tenures.load(Ordering::SeqCst)
    }
}

fn millis(origin: Instant) -> u64 {
    u64::try_from(origin.elapsed().as_millis()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_leads_for_long_and_hands_over_at_once() {
    let fleet = Fleet::new();
    let a = fleet.start("a", 1, FOR_EVER);
    sleep(Duration::from_millis(10)).await;
    let b = fleet.start("b", 2, FOR_EVER);
    sleep(Duration::from_secs(120)).await;
    assert!(a.leads() && !b.leads());
    assert_eq!(a.tenures(), 1);
    a.stop.cancel();
    sleep(Duration::from_secs(1)).await;
    assert!(b.leads() && !a.leads());
    fleet.end(&[&a, &b]).await;
}

#[tokio::test(start_paused = true)]
async fn who_falls_silent_ends_before_another_begins() {
    let fleet = Fleet::new();
    let a = fleet.start("a", 1, FOR_EVER);
    sleep(Duration::from_millis(10)).await;
    let b = fleet.start("b", 2, FOR_EVER);
    sleep(Duration::from_secs(10)).await;
    a.faulty.set(Faults { unavailable: 1.0, ..Faults::NONE });
    sleep(Duration::from_secs(7)).await;
    assert!(!a.leads() && b.leads());
    let (ended, began) = (a.seen.ended.load(Ordering::SeqCst), b.seen.began.load(Ordering::SeqCst));
    assert!((12_900..=14_100).contains(&ended), "ended at {ended} ms");
    assert!(ended < began && began <= 15_600, "ended at {ended}, taken over at {began} ms");
    a.faulty.set(Faults::NONE);
    sleep(Duration::from_secs(60)).await;
    assert!(!a.leads() && b.leads());
    fleet.end(&[&a, &b]).await;
}

#[tokio::test(start_paused = true)]
async fn lost_answers_cost_no_lease() {
    let fleet = Fleet::new();
    let a = fleet.start("a", 1, FOR_EVER);
    sleep(Duration::from_millis(10)).await;
    a.faulty.set(Faults { lost_answer: 0.6, unavailable: 0.2, ..Faults::NONE });
    sleep(Duration::from_secs(300)).await;
    assert!(a.leads());
    assert_eq!(a.tenures(), 1);
    fleet.end(&[&a]).await;
}

#[tokio::test(start_paused = true)]
async fn at_most_one_leads_whatever_fails() {
    for seed in 0..5 {
        let fleet = Fleet::new();
        let processes: Vec<Process> = (1..=5)
            .map(|n| fleet.start(&format!("p{n}"), seed * 10 + n, Duration::from_millis(700 * u64::from(n))))
            .collect();
        for process in &processes {
            process.faulty.set(Faults { lost_answer: 0.2, unavailable: 0.2, ..Faults::SOME });
        }
        sleep(Duration::from_secs(200)).await;
        let tenures: u64 = processes.iter().map(Process::tenures).sum();
        assert!(tenures > 20, "{tenures}");
        fleet.end(&processes.iter().collect::<Vec<_>>()).await;
    }
}
