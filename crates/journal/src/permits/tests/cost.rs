//! What large limits cost: the same as small ones, for each request.

use std::time::Duration;

use super::ground::{AVAILABLE, Fleet, account, limit};
use crate::permits::{Settings, Slot};

/// Requests of one measurement.
const ROUNDS: u32 = 200;

/// What a request costs where so many are in flight: to claim its slot, to get one that is idle and give it back, to be
/// refused, and to have others refused behind it.
#[derive(Debug)]
struct Cost {
    claimed: Duration,
    reused: Duration,
    refused: Duration,
}

/// The least of some measurements: what else the machine does only ever adds to it.
async fn least(times: u32, mut one: impl AsyncFnMut()) -> Duration {
    let mut least = Duration::MAX;
    for _ in 0..times {
        let begun = std::time::Instant::now();
        for _ in 0..ROUNDS {
            one().await;
        }
        least = least.min(begun.elapsed() / ROUNDS);
    }
    least
}

async fn cost(most: u32) -> Cost {
    let fleet = Fleet::of(1).await;
    let permits = &fleet.replicas[0].permits;
    let slot = || async { permits.slot(&account(), limit(most), AVAILABLE).await.unwrap() };
    let begun = std::time::Instant::now();
    let mut held: Vec<Slot> = futures_util::future::join_all((0..most).map(|_| slot())).await;
    let claimed = begun.elapsed() / most;
    held.pop();
    let reused = least(5, async || drop(slot().await)).await;
    held.push(slot().await);
    let refused = least(5, async || {
        let refused = permits.slot_within(&account(), limit(most), AVAILABLE, Duration::ZERO).await;
        assert_eq!(refused.unwrap_err().in_flight, most);
    })
    .await;
    drop(held);
    tokio::time::sleep(Settings::default().linger * 2).await;
    assert_eq!((permits.seen(&account()).in_flight, permits.seen(&account()).held), (0, 0), "all came back");
    fleet.stop().await;
    Cost { claimed, reused, refused }
}

#[tokio::test(start_paused = true)]
async fn a_large_limit_costs_a_request_what_a_small_one_does() {
    let (small, large) = (cost(20).await, cost(2_000).await);
    println!("of 20: {small:?}; of 2,000: {large:?}");
    let grows = |small: Duration, large: Duration| large.as_secs_f64() / small.as_secs_f64();
    let times =
        [grows(small.claimed, large.claimed), grows(small.reused, large.reused), grows(small.refused, large.refused)];
    assert!(times.iter().all(|times| *times <= 5.0), "{times:?} times: {small:?} and {large:?}");
}
