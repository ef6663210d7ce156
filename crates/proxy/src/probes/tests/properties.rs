//! At most so many probes of an opening are under way in the whole fleet as its policy says, whatever becomes of those
//! who hold their permits and of what the store answers.

use async_trait::async_trait;
use proptest::prelude::*;
use waybill_journal::keyed::{Entry, Watching};
use waybill_journal::memory::Memory;
use waybill_journal::{Journal, ReadError};

use super::*;

const REPLICAS: usize = 3;

#[derive(Debug, Clone, Copy)]
enum Does {
    /// Claims a permit, and probes if it gets one.
    Claim,
    /// The oldest of its probes is decided.
    Finish,
    /// It is killed, and starts again.
    Crash,
    /// The answers of its next writes are lost; the writes aren't.
    LoseAnswers(u8),
    /// The store is out of its reach, or within it again.
    Cut(bool),
}

/// A replica's way to the store.
struct Way {
    inner: Journal,
    lost: Mutex<u8>,
    cut: Mutex<bool>,
    dead: Mutex<bool>,
}

impl Way {
    async fn passes(&self) -> bool {
        if *self.dead.lock() {
            std::future::pending::<()>().await;
        }
        !*self.cut.lock()
    }

    fn answered<T>(&self, answer: Result<T, AppendError>) -> Result<T, AppendError> {
        let mut lost = self.lost.lock();
        if *lost == 0 {
            return answer;
        }
        *lost -= 1;
        Err(AppendError::Unknown { reason: "the answer is lost".to_owned() })
    }
}

fn away() -> AppendError {
    AppendError::Unknown { reason: "out of reach".to_owned() }
}

#[async_trait]
impl Keyed for Way {
    async fn get(&self, bucket: Bucket, key: &str) -> Result<Option<Entry>, ReadError> {
        if !self.passes().await {
            return Err(ReadError::Unavailable { reason: "out of reach".to_owned() });
        }
        self.inner.keyed.get(bucket, key).await
    }

    async fn write(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        held: Held,
        ttl: Option<Duration>,
    ) -> Result<u64, AppendError> {
        if !self.passes().await {
            return Err(away());
        }
        let written = self.inner.keyed.write(bucket, key, value, held, ttl).await;
        self.answered(written)
    }

    async fn delete(&self, bucket: Bucket, key: &str, held: Held) -> Result<(), AppendError> {
        if !self.passes().await {
            return Err(away());
        }
        let deleted = self.inner.keyed.delete(bucket, key, held).await;
        self.answered(deleted)
    }

    fn watch(&self, bucket: Bucket) -> Watching {
        self.inner.keyed.watch(bucket)
    }
}

/// A replica in one of its lives.
struct Living {
    probes: Probes,
    way: Arc<Way>,
    /// Its probes under way, and whether the store was always within reach of them.
    under_way: Vec<(Permit, bool)>,
}

fn start(memory: &Memory, number: usize, life: u32, tasks: &TaskTracker, stop: &CancellationToken) -> Living {
    let inner = memory.journal();
    let way = Way { inner: inner.clone(), lost: Mutex::new(0), cut: Mutex::new(false), dead: Mutex::new(false) };
    let way = Arc::new(way);
    let journal = Journal { log: inner.log, keyed: way.clone() };
    let name = format!("proxy-{number}").parse().unwrap();
    let probes = Probes::start(&journal, &name, boot(life), tasks, stop);
    Living { probes, way, under_way: Vec::new() }
}

async fn run(most: u32, course: Vec<(usize, Does, u64)>) -> Result<usize, TestCaseError> {
    let memory = Memory::started_at(waybill_event::LogTime::from_micros(1));
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let mut replicas: Vec<Living> = (0..REPLICAS).map(|number| start(&memory, number, 1, &tasks, &stop)).collect();
    let (mut life, mut greatest) = (1, 0);
    for (who, does, then_ms) in course {
        let one = &mut replicas[who];
        match does {
            Does::Claim => {
                if let Claim::Granted(permit) = one.probes.claim(source(), OPENING, most).await {
                    let reached = !*one.way.cut.lock();
                    one.under_way.push((permit, reached));
                }
            }
            Does::Finish => {
                if !one.under_way.is_empty() {
                    one.under_way.remove(0);
                }
            }
            Does::Crash => {
                // What it has under way ends with it; its permits stay behind.
                *one.way.dead.lock() = true;
                life += 1;
                *one = start(&memory, who, life, &tasks, &stop);
            }
            Does::LoseAnswers(count) => *one.way.lost.lock() = count,
            Does::Cut(cut) => {
                *one.way.cut.lock() = cut;
                one.under_way.iter_mut().for_each(|(_, reached)| *reached = false);
            }
        }
        for one in &replicas {
            let unreached = one.under_way.iter().filter(|(_, reached)| !reached).count();
            prop_assert!(unreached <= usize::try_from(most).unwrap());
        }
        let reached = replicas.iter().flat_map(|one| &one.under_way).filter(|(_, reached)| *reached).count();
        prop_assert!(reached <= usize::try_from(most).unwrap(), "{reached} probes at once, {most} allowed");
        greatest = greatest.max(reached);
        tokio::time::sleep(Duration::from_millis(then_ms)).await;
    }
    stop.cancel();
    Ok(greatest)
}

fn course() -> impl Strategy<Value = Vec<(usize, Does, u64)>> {
    let does = prop_oneof![
        8 => Just(Does::Claim),
        4 => Just(Does::Finish),
        1 => Just(Does::Crash),
        2 => (1u8..4).prop_map(Does::LoseAnswers),
        1 => any::<bool>().prop_map(Does::Cut),
    ];
    let then = prop_oneof![3 => 0u64..50, 2 => 50u64..3_000, 1 => 3_000u64..25_000];
    proptest::collection::vec((0..REPLICAS, does, then), 1..60)
}

fn on_paused_time<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    #[test]
    fn at_most_so_many_probes_are_under_way_fleet_wide_as_the_policy_says(most in 1u32..=3, course in course()) {
        on_paused_time(run(most, course))?;
    }
}

#[test]
fn all_permits_of_an_opening_are_used_where_they_are_asked_for() {
    for most in 1..=3 {
        let course = (0..12).map(|n| (n % REPLICAS, Does::Claim, 1)).collect();
        assert_eq!(on_paused_time(run(most, course)).unwrap(), usize::try_from(most).unwrap());
    }
}

#[test]
fn with_the_store_away_each_replica_probes_once_at_a_time() {
    on_paused_time(async {
        let memory = Memory::started_at(waybill_event::LogTime::from_micros(1));
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let one = start(&memory, 1, 1, &tasks, &stop);
        *one.way.cut.lock() = true;
        let Claim::Granted(first) = one.probes.claim(source(), OPENING, 3).await else { panic!("nobody says no") };
        assert!(matches!(one.probes.claim(source(), OPENING, 3).await, Claim::Taken));
        drop(first);
        assert!(matches!(one.probes.claim(source(), OPENING, 3).await, Claim::Granted(_)));
        stop.cancel();
    });
}

#[test]
fn a_permit_whose_renewal_nobody_answered_lasts_as_long_as_its_probe() {
    on_paused_time(async {
        let memory = Memory::started_at(waybill_event::LogTime::from_micros(1));
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let (one, two) = (start(&memory, 1, 1, &tasks, &stop), start(&memory, 2, 1, &tasks, &stop));
        let Claim::Granted(permit) = one.probes.claim(source(), OPENING, 1).await else { panic!("it was free") };
        *one.way.lost.lock() = 1;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(matches!(two.probes.claim(source(), OPENING, 1).await, Claim::Taken));
        drop(permit);
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(matches!(two.probes.claim(source(), OPENING, 1).await, Claim::Granted(_)));
        stop.cancel();
    });
}
