//! Limits per minute: never more in any rolling minute, hardly less when more is asked for.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::ground::{AVAILABLE, Chance, Fleet, account, limit};
use crate::faulty::Faults;
use crate::permits::OnOutage;

#[tokio::test(start_paused = true)]
async fn a_small_limit_costs_one_round_trip_for_each_permit() {
    let fleet = Fleet::of(1).await;
    let replica = &fleet.replicas[0];
    for n in 1..=5 {
        replica.permits.rate(&account(), limit(5), AVAILABLE).await.unwrap();
        assert_eq!(replica.calls(), n);
    }
    let spent = replica.permits.rate(&account(), limit(5), AVAILABLE).await.unwrap_err();
    assert_eq!(replica.calls(), 5, "a spent limit costs none");
    assert!(spent.retry_after > Duration::from_secs(60) && spent.retry_after <= Duration::from_secs(62), "{spent:?}");
    assert_eq!(replica.permits.seen(&account()).rate_used, 5);
    sleep(spent.retry_after + Duration::from_millis(50)).await;
    replica.permits.rate(&account(), limit(5), AVAILABLE).await.unwrap();
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_large_limit_costs_one_round_trip_for_each_chunk() {
    let fleet = Fleet::of(1).await;
    let replica = &fleet.replicas[0];
    for _ in 0..100 {
        replica.permits.rate(&account(), limit(6_000), AVAILABLE).await.unwrap();
    }
    assert_eq!(replica.calls(), 10);
    assert_eq!(replica.permits.counts().reused, 90);
    assert_eq!(replica.permits.seen(&account()).rate_used, 100);
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_permit_of_a_chunk_is_used_within_its_window() {
    let fleet = Fleet::of(1).await;
    let replica = &fleet.replicas[0];
    replica.permits.rate(&account(), limit(6_000), AVAILABLE).await.unwrap();
    sleep(Duration::from_millis(990)).await;
    replica.permits.rate(&account(), limit(6_000), AVAILABLE).await.unwrap();
    assert_eq!(replica.calls(), 1);
    sleep(Duration::from_millis(20)).await;
    replica.permits.rate(&account(), limit(6_000), AVAILABLE).await.unwrap();
    assert_eq!(replica.calls(), 2);
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_unused_permit_serves_the_next_request_or_goes_back() {
    let fleet = Fleet::of(2).await;
    let replica = &fleet.replicas[0];
    let permit = replica.permits.rate(&account(), limit(1), AVAILABLE).await.unwrap();
    replica.permits.rate(&account(), limit(1), AVAILABLE).await.unwrap_err();
    permit.unused();
    let permit = replica.permits.rate(&account(), limit(1), AVAILABLE).await.unwrap();
    assert_eq!(replica.calls(), 1);
    permit.unused();
    sleep(Duration::from_millis(2_100)).await;
    assert_eq!(fleet.shop.keys("rate.").await.len(), 0);
    fleet.replicas[1].permits.rate(&account(), limit(1), AVAILABLE).await.unwrap();
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_a_minute_may_be_lowered_and_raised() {
    let fleet = Fleet::of(2).await;
    let take = async |replica: usize, per_minute: u32| {
        fleet.replicas[replica].permits.rate(&account(), limit(per_minute), AVAILABLE).await
    };
    for n in 0..400 {
        take(n % 2, 600).await.unwrap();
    }
    sleep(Duration::from_millis(10)).await;
    take(0, 300).await.unwrap_err();
    // Keys of 601 a minute are larger than those of 600.
    let mut more = 0;
    while take(more % 2, 601).await.is_ok() {
        more += 1;
    }
    assert!(more <= 201, "{more} more than 400 of 601");
    sleep(Duration::from_secs(63)).await;
    take(1, 300).await.unwrap();
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_leaves_while_it_waits_uses_nothing() {
    let fleet = Fleet::of(1).await;
    let replica = &fleet.replicas[0];
    let left = timeout(Duration::from_micros(500), replica.permits.rate(&account(), limit(1), AVAILABLE)).await;
    assert!(left.is_err());
    sleep(Duration::from_millis(10)).await;
    replica.permits.rate(&account(), limit(1), AVAILABLE).await.unwrap();
    assert_eq!(replica.calls(), 1, "it was claimed for the other one");
    fleet.stop().await;
}

/// More is asked for than the limit gives, unevenly and in bursts, for five minutes; one replica is cut off for a while.
async fn check_minute(seed: u64, per_minute: u32, faults: Faults) {
    let fleet = Fleet::faulty(3, faults, seed).await;
    let end = Instant::now() + Duration::from_secs(300);
    for worker in 0..9_u64 {
        let replica = usize::try_from(worker % 3).unwrap();
        let (permits, upstream) = (fleet.replicas[replica].permits.clone(), fleet.upstream.clone());
        let mut chance = Chance::new(seed * 100 + worker);
        let pause = 9 * 60_000 / u64::from(per_minute) / 2;
        fleet.tasks.spawn(async move {
            while Instant::now() < end {
                let account = account();
                let wanted = permits.rate(&account, limit(per_minute), OnOutage::Closed);
                match timeout(chance.millis(1..500), wanted).await {
                    Ok(Ok(permit)) if chance.one_in(20) => permit.unused(),
                    Ok(Ok(_used)) => drop(upstream.enter()),
                    Ok(Err(_)) | Err(_) => {}
                }
                sleep(chance.millis(0..pause.max(2))).await;
                if chance.one_in(50) {
                    sleep(chance.millis(0..5_000)).await;
                }
            }
        });
    }
    sleep(Chance::new(seed).millis(60_000..200_000)).await;
    fleet.replicas[2].cut_off();
    sleep(Duration::from_secs(10)).await;
    fleet.replicas[2].join();
    sleep(end.duration_since(Instant::now()) + Duration::from_secs(6)).await;
    let (most, came) = (fleet.upstream.most_in_a_minute(), fleet.upstream.came());
    assert!(most <= usize::try_from(per_minute).unwrap(), "seed {seed}: {most} in a minute");
    assert!(f64::from(came) >= f64::from(per_minute) * 5.0 * 0.8, "seed {seed}: {came} of {}", per_minute * 5);
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn never_more_than_the_limit_in_any_rolling_minute() {
    for seed in 0..5 {
        check_minute(seed, 60, Faults::NONE).await;
        check_minute(seed, 700, Faults::NONE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn never_more_than_the_limit_in_any_rolling_minute_whatever_gets_lost() {
    let faults = Faults { lost_answer: 0.05, unavailable: 0.02, cut: 0.02, longest_delay: Duration::from_millis(60) };
    for seed in 0..10 {
        check_minute(seed, 120, faults).await;
    }
}
