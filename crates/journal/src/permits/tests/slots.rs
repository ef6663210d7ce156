//! Slots: what they cost, that they hold, that none is lost.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::ground::{AVAILABLE, Chance, Fleet, account, limit, wait_until};
use crate::faulty::Faults;
use crate::permits::{Permits, Settings, Subject};

#[tokio::test(start_paused = true)]
async fn a_cold_claim_is_one_round_trip_and_a_warm_slot_none() {
    let fleet = Fleet::of(1).await;
    let replica = &fleet.replicas[0];
    let slot = replica.permits.slot(&account(), limit(5), AVAILABLE).await.unwrap();
    assert_eq!((replica.calls(), replica.permits.counts().round_trips), (1, 1));
    drop(slot);
    for _ in 0..100 {
        let begun = Instant::now();
        let slot = replica.permits.slot(&account(), limit(5), AVAILABLE).await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO);
        sleep(Duration::from_millis(20)).await;
        drop(slot);
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(replica.calls(), 1);
    let counts = replica.permits.counts();
    assert_eq!((counts.claims, counts.round_trips, counts.reused), (1, 1, 100));
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_slot_lingers_for_a_second_and_is_deleted() {
    let fleet = Fleet::of(2).await;
    let permits = &fleet.replicas[0].permits;
    drop(permits.slot(&account(), limit(5), AVAILABLE).await.unwrap());
    sleep(Duration::from_millis(900)).await;
    assert_eq!(permits.seen(&account()).held, 1);
    assert_eq!(fleet.shop.keys("slot.").await.len(), 1);
    sleep(Duration::from_millis(200)).await;
    assert_eq!(permits.seen(&account()).held, 0);
    assert_eq!(fleet.shop.keys("slot.").await.len(), 0);
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn others_see_what_is_in_flight() {
    let fleet = Fleet::of(2).await;
    let slot = fleet.replicas[0].permits.slot(&account(), limit(5), AVAILABLE).await.unwrap();
    sleep(Duration::from_millis(10)).await;
    for replica in &fleet.replicas {
        assert_eq!(replica.permits.seen(&account()).in_flight, 1);
    }
    slot.release();
    assert_eq!(fleet.replicas[0].permits.seen(&account()).in_flight, 0);
    sleep(Duration::from_millis(1_100)).await;
    assert_eq!(fleet.replicas[1].permits.seen(&account()).in_flight, 0, "a drained source reads zero");
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_refreshed_for_as_long_as_its_request_runs() {
    let fleet = Fleet::of(2).await;
    let slot = fleet.replicas[0].permits.slot(&account(), limit(1), AVAILABLE).await.unwrap();
    sleep(Duration::from_secs(600)).await;
    assert!(!slot.is_over_lease());
    let full = fleet.replicas[1].permits.slot(&account(), limit(1), AVAILABLE).await.unwrap_err();
    assert_eq!((full.in_flight, full.store_away), (1, false));
    assert!(fleet.replicas[0].permits.counts().refreshed >= 19);
    drop(slot);
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_in_a_replica_are_served_in_their_order() {
    let fleet = Fleet::of(1).await;
    let permits = &fleet.replicas[0].permits;
    let held = permits.slot(&account(), limit(1), AVAILABLE).await.unwrap();
    let order = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    for n in 0..10 {
        let (permits, order) = (permits.clone(), order.clone());
        fleet.tasks.spawn(async move {
            let wait = Duration::from_secs(5);
            let slot = permits.slot_within(&account(), limit(1), AVAILABLE, wait).await.unwrap();
            order.lock().push(n);
            sleep(Duration::from_millis(10)).await;
            drop(slot);
        });
        sleep(Duration::from_millis(1)).await;
    }
    drop(held);
    wait_until("the last", || order.lock().len() == 10).await;
    assert_eq!(*order.lock(), (0..10).collect::<Vec<_>>());
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_limit_is_waited_for_as_long_as_was_said() {
    let fleet = Fleet::of(2).await;
    let _held = fleet.replicas[0].permits.slot(&account(), limit(1), AVAILABLE).await.unwrap();
    let check = |wait: Duration, replica: usize| {
        let permits = fleet.replicas[replica].permits.clone();
        async move {
            let begun = Instant::now();
            permits.slot_within(&account(), limit(1), AVAILABLE, wait).await.unwrap_err();
            let waited = begun.elapsed();
            assert!(waited >= wait && waited < wait + Duration::from_millis(110), "{waited:?} instead of {wait:?}");
        }
    };
    check(Duration::from_millis(50), 0).await;
    check(Duration::from_millis(50), 1).await;
    check(Duration::from_secs(3), 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_may_be_lowered_and_raised() {
    let fleet = Fleet::of(2).await;
    let take = async |replica: usize, most: u32| {
        fleet.replicas[replica].permits.slot(&account(), limit(most), AVAILABLE).await
    };
    let mut held = Vec::new();
    for n in 0..5 {
        held.push(take(n % 2, 5).await.unwrap());
    }
    take(0, 3).await.unwrap_err();
    take(1, 3).await.unwrap_err();
    for _ in 0..2 {
        held.pop();
        sleep(Duration::from_millis(100)).await;
        take(0, 3).await.unwrap_err();
        take(1, 3).await.unwrap_err();
    }
    held.pop();
    sleep(Duration::from_millis(100)).await;
    held.push(take(0, 3).await.unwrap());
    take(1, 3).await.unwrap_err();
    held.push(take(1, 4).await.unwrap());
    take(0, 4).await.unwrap_err();
    drop(held);
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_client_has_left_is_given_back() {
    let fleet = Fleet::of(1).await;
    let permits = &fleet.replicas[0].permits;
    for micros in (0..1_500).step_by(100) {
        let (asked, account) = (Duration::from_micros(micros), account());
        let left = timeout(asked, permits.slot(&account, limit(5), AVAILABLE)).await;
        drop(left);
        sleep(Duration::from_millis(20)).await;
        assert_eq!(permits.seen(&account).in_flight, 0, "after {micros} µs");
    }
    sleep(Duration::from_millis(1_200)).await;
    assert_eq!(fleet.shop.keys("slot.").await, Vec::<String>::new());
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_leaves_no_slot_behind() {
    let fleet = Fleet::faulty(1, Faults::NONE, 1).await;
    let replica = &fleet.replicas[0];
    replica.faults(Faults { lost_answer: 1.0, ..Faults::NONE });
    let slot = replica.permits.slot(&account(), limit(5), AVAILABLE).await.unwrap();
    assert!(!slot.is_outside(), "reading back told of it");
    assert_eq!(fleet.shop.keys("slot.").await.len(), 1);
    drop(slot);
    replica.faults(Faults::NONE);
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(fleet.shop.keys("slot.").await.len(), 0);
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_replica_gives_back_what_its_earlier_start_held() {
    let mut fleet = Fleet::of(1).await;
    let slots = [(); 3].map(|()| ());
    let mut held = Vec::new();
    for () in slots {
        held.push(fleet.replicas[0].permits.slot(&account(), limit(3), AVAILABLE).await.unwrap());
    }
    fleet.replicas[0].kill();
    fleet.add(0, 1, None, Settings::default());
    sleep(Duration::from_millis(2_500)).await;
    fleet.replicas[1].permits.slot(&account(), limit(3), AVAILABLE).await.unwrap();
    drop(held);
}

/// Works until `end`, leaving now and then before it is served or before it is done; counts what it did.
async fn work(permits: Permits, upstream: std::sync::Arc<super::ground::Upstream>, seed: u64, end: Instant) {
    let mut chance = Chance::new(seed);
    let account: Subject = account();
    while Instant::now() < end {
        let (patience, time) = (chance.millis(1..3_000), chance.millis(100..1_500));
        let patience = if chance.one_in(10) { patience } else { Duration::from_secs(60) };
        let work = async {
            let wait = Duration::from_secs(10);
            if let Ok(slot) = permits.slot_within(&account, limit(5), AVAILABLE, wait).await {
                if slot.is_over_lease() {
                    return;
                }
                upstream.serve(time).await;
                drop(slot);
            }
        };
        let _left = timeout(patience, work).await;
        sleep(chance.millis(0..20)).await;
    }
}

/// Three replicas under load, with faults, one of which is killed in the middle.
async fn check_cap(seed: u64, faults: Faults) {
    let fleet = Fleet::faulty(3, faults, seed).await;
    let begun = Instant::now();
    let end = begun + Duration::from_secs(60);
    for worker in 0..60_u64 {
        let replica = usize::try_from(worker % 3).unwrap();
        let permits = fleet.replicas[replica].permits.clone();
        let work = work(permits, fleet.upstream.clone(), seed * 1_000 + worker, end);
        // The last replica's workers die with it.
        let dies = replica == 2;
        fleet.tasks.spawn(async move {
            let life = if dies { Duration::from_secs(30) } else { Duration::from_secs(100) };
            let _killed = timeout(life, work).await;
        });
    }
    sleep(Duration::from_secs(30)).await;
    let busy = fleet.upstream.busy();
    fleet.replicas[2].kill();
    let share = busy.as_secs_f64() / (5.0 * 30.0);
    assert!(share >= 0.9, "seed {seed}: {share} of what five slots can do");
    wait_until("the end of the work", || fleet.upstream.now() == 0 && begun.elapsed() > Duration::from_secs(62)).await;
    assert!(fleet.upstream.most() <= 5, "seed {seed}: more than five at once");
    // What the dead one held has lapsed.
    let survivors = &fleet.replicas[..2];
    survivors.iter().for_each(|replica| replica.faults(Faults::NONE));
    wait_until("all capacity", || survivors.iter().all(|replica| replica.permits.seen(&account()).in_flight == 0))
        .await;
    assert!(begun.elapsed() < Duration::from_secs(30 + 62), "seed {seed}: after {:?}", begun.elapsed());
    let mut held = Vec::new();
    for n in 0..5 {
        held.push(survivors[n % 2].permits.slot(&account(), limit(5), AVAILABLE).await.unwrap());
    }
    drop(held);
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn never_more_than_the_limit_and_hardly_less() {
    for seed in 0..6 {
        check_cap(seed, Faults::NONE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn never_more_than_the_limit_whatever_gets_lost() {
    let faults = Faults { lost_answer: 0.05, unavailable: 0.02, cut: 0.02, longest_delay: Duration::from_millis(20) };
    for seed in 0..6 {
        check_cap(seed, faults).await;
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_hear_at_once_of_another_limit() {
    for (raised, served) in [(Some(limit(3)), 2), (None, 6)] {
        let fleet = Fleet::of(3).await;
        let held = fleet.replicas[0].permits.slot(&account(), limit(1), AVAILABLE).await.unwrap();
        let most = Duration::from_secs(30);
        let begun = Instant::now();
        let waiting = futures_util::future::join_all((0..6).map(|n| {
            let permits = &fleet.replicas[n % 3].permits;
            async move {
                let got = permits.slot_within(&account(), limit(1), AVAILABLE, most).await.ok();
                (begun.elapsed() < Duration::from_secs(2), got.map(std::mem::forget))
            }
        }));
        let raise = async {
            sleep(Duration::from_secs(1)).await;
            for replica in &fleet.replicas {
                replica.permits.relimit(|_| raised);
            }
        };
        let (waited, ()) = tokio::join!(waiting, raise);
        let soon = waited.iter().filter(|(soon, got)| *soon && got.is_some()).count();
        assert_eq!(soon, served, "{raised:?}");
        drop(held);
        fleet.stop().await;
    }
}
