//! With equal load each replica gets its share.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::ground::{AVAILABLE, Chance, Fleet, account, limit};

/// Every replica has more to do than it can; returns what each one got done, in slot time.
async fn shares(most: u32, replicas: u32, wait: Duration, times: std::ops::Range<u64>, seed: u64) -> Vec<Duration> {
    let fleet = Fleet::of(replicas).await;
    let end = Instant::now() + Duration::from_secs(60);
    let done: Vec<_> =
        fleet.replicas.iter().map(|_| std::sync::Arc::new(parking_lot::Mutex::new(Duration::ZERO))).collect();
    for (n, (replica, done)) in fleet.replicas.iter().zip(&done).enumerate() {
        for worker in 0..12_u64 {
            let (permits, done, times) = (replica.permits.clone(), done.clone(), times.clone());
            let mut chance = Chance::new(seed * 10_000 + u64::try_from(n).unwrap() * 100 + worker);
            fleet.tasks.spawn(async move {
                while Instant::now() < end {
                    if let Ok(slot) = permits.slot_within(&account(), limit(most), AVAILABLE, wait).await {
                        let time = chance.millis(times.clone());
                        sleep(time).await;
                        *done.lock() += time;
                        drop(slot);
                    } else {
                        sleep(chance.millis(0..100)).await;
                    }
                }
            });
        }
    }
    sleep(Duration::from_secs(75)).await;
    fleet.stop().await;
    done.iter().map(|done| *done.lock()).collect()
}

async fn check(most: u32, replicas: u32, wait: Duration, times: std::ops::Range<u64>) {
    for seed in 0..3 {
        let shares = shares(most, replicas, wait, times.clone(), seed).await;
        let all: Duration = shares.iter().sum();
        let fair = all / replicas;
        let possible = Duration::from_secs(60) * most;
        assert!(shares.iter().all(|share| *share >= fair / 2), "{most} over {replicas}, seed {seed}: {shares:?}");
        assert!(all >= possible.mul_f64(0.9), "{most} over {replicas}, seed {seed}: {all:?} of {possible:?}");
    }
}

const QUEUE: Duration = Duration::from_secs(30);
const SLOT_WAIT: Duration = Duration::from_millis(50);

#[tokio::test(start_paused = true)]
async fn no_replica_gets_less_than_half_its_share() {
    check(5, 3, QUEUE, 50..1_000).await;
    check(6, 2, QUEUE, 200..400).await;
    check(4, 4, QUEUE, 2_000..4_000).await;
}

#[tokio::test(start_paused = true)]
async fn nor_does_it_where_the_limit_is_smaller_than_the_fleet() {
    check(2, 3, QUEUE, 50..1_000).await;
    check(1, 3, QUEUE, 100..500).await;
    check(2, 5, QUEUE, 500..1_500).await;
}

#[tokio::test(start_paused = true)]
async fn nor_does_it_where_requests_go_elsewhere_after_a_short_wait() {
    check(2, 3, SLOT_WAIT, 50..1_000).await;
    check(5, 3, SLOT_WAIT, 50..1_000).await;
}

/// Every replica has more to do than it can; returns the longest time in which fewer than `most` requests ran.
async fn idled(most: u32, replicas: u32, times: std::ops::Range<u64>, seed: u64) -> Duration {
    let fleet = Fleet::of(replicas).await;
    let begun = Instant::now();
    let running = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    for (n, replica) in fleet.replicas.iter().enumerate() {
        for worker in 0..12_u64 {
            let (permits, running, times) = (replica.permits.clone(), running.clone(), times.clone());
            let mut chance = Chance::new(seed * 10_000 + u64::try_from(n).unwrap() * 100 + worker);
            fleet.tasks.spawn(async move {
                while begun.elapsed() < Duration::from_secs(40) {
                    let Ok(slot) = permits.slot_within(&account(), limit(most), AVAILABLE, QUEUE).await else {
                        continue;
                    };
                    running.fetch_add(1, Relaxed);
                    sleep(chance.millis(times.clone())).await;
                    running.fetch_sub(1, Relaxed);
                    drop(slot);
                }
            });
        }
    }
    sleep(Duration::from_secs(1)).await;
    let (mut longest, mut full) = (Duration::ZERO, Instant::now());
    while begun.elapsed() < Duration::from_secs(39) {
        sleep(Duration::from_millis(5)).await;
        if running.load(Relaxed) == most {
            full = Instant::now();
        }
        longest = longest.max(full.elapsed());
    }
    fleet.stop().await;
    longest
}

/// Who gives a slot away comes after whom it gives it to, in everybody's eyes: if each let the other go first, the slot
/// would be nobody's.
#[tokio::test(start_paused = true)]
async fn no_slot_stands_idle_while_everybody_waits() {
    for (most, replicas) in [(5, 3), (2, 3), (7, 3)] {
        for seed in 0..2 {
            let idle = idled(most, replicas, 50..400, seed).await;
            assert!(idle < Duration::from_millis(200), "{most} over {replicas}, seed {seed}: {idle:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_slot_goes_at_once_when_another_replica_wants_it() {
    let fleet = Fleet::of(2).await;
    let [first, second] = &fleet.replicas[..] else { panic!("two replicas") };
    drop(first.permits.slot(&account(), limit(1), AVAILABLE).await.unwrap());
    let begun = Instant::now();
    let slot = second.permits.slot(&account(), limit(1), AVAILABLE).await.unwrap();
    assert!(begun.elapsed() < Duration::from_millis(10), "{:?}", begun.elapsed());
    assert_eq!(fleet.shop.keys("slot.").await.len(), 1);
    sleep(Duration::from_millis(50)).await;
    assert_eq!(fleet.shop.keys("demand.").await.len(), 0, "it is served");
    drop(slot);
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_slot_changes_hands_when_it_was_held_for_a_second() {
    let fleet = Fleet::of(2).await;
    let [first, second] = &fleet.replicas[..] else { panic!("two replicas") };
    let (permits, tasks) = (first.permits.clone(), &fleet.tasks);
    for _ in 0..3 {
        let permits = permits.clone();
        tasks.spawn(async move {
            for _ in 0..60 {
                let slot = permits.slot_within(&account(), limit(1), AVAILABLE, QUEUE).await.unwrap();
                sleep(Duration::from_millis(50)).await;
                drop(slot);
            }
        });
    }
    sleep(Duration::from_millis(10)).await;
    let begun = Instant::now();
    let slot = second.permits.slot_within(&account(), limit(1), AVAILABLE, QUEUE).await.unwrap();
    let waited = begun.elapsed();
    assert!(waited > Duration::from_millis(900) && waited < Duration::from_millis(1_100), "{waited:?}");
    assert!(first.permits.seen(&account()).wanting >= 1);
    drop(slot);
    // Then it is the first one's again, at once.
    sleep(Duration::from_millis(10)).await;
    assert_eq!(first.permits.seen(&account()).held, 1);
    sleep(Duration::from_secs(30)).await;
    fleet.stop().await;
}
