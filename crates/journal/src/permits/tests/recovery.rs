//! The store comes back empty.

use std::time::Duration;

use tokio::time::sleep;

use super::ground::{Fleet, account, limit};
use crate::permits::{OnOutage, Settings};

const CLOSED: OnOutage = OnOutage::Closed;

/// The first of three replicas holds all slots when the store loses everything; `away` says for how long nobody reaches
/// it before that.
async fn check(away: Duration) {
    let fleet = Fleet::of(3).await;
    let [first, second, third] = &fleet.replicas[..] else { panic!("three replicas") };
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(first.permits.slot(&account(), limit(4), CLOSED).await.unwrap());
    }
    sleep(Duration::from_millis(100)).await;
    fleet.replicas.iter().for_each(super::ground::Replica::cut_off);
    sleep(away).await;
    fleet.shop.empty();
    // Those who hold nothing come back first.
    second.join();
    third.join();
    second.permits.slot(&account(), limit(4), CLOSED).await.unwrap_err();
    third.permits.slot(&account(), limit(4), CLOSED).await.unwrap_err();
    sleep(Duration::from_secs(3)).await;
    second.permits.slot(&account(), limit(4), CLOSED).await.unwrap_err();
    first.join();
    sleep(Duration::from_secs(4)).await;
    assert_eq!(fleet.shop.keys("slot.").await.len(), 3, "who held them has claimed them again");
    assert!(held.iter().all(|slot| !slot.is_over_lease()));
    for replica in &fleet.replicas {
        replica.permits.slot(&account(), limit(4), CLOSED).await.unwrap_err();
    }
    sleep(Duration::from_secs(62)).await;
    // Then everybody claims again, what is left.
    let fourth = second.permits.slot(&account(), limit(4), CLOSED).await.unwrap();
    third.permits.slot(&account(), limit(4), CLOSED).await.unwrap_err();
    drop((held, fourth));
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn holders_claim_again_and_nobody_else_claims_for_one_time_to_live() {
    check(Duration::ZERO).await;
    check(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn who_starts_meanwhile_waits_too() {
    let mut fleet = Fleet::of(2).await;
    let held = fleet.replicas[0].permits.slot(&account(), limit(1), CLOSED).await.unwrap();
    fleet.shop.empty();
    sleep(Duration::from_millis(100)).await;
    fleet.add(7, 0, None, Settings::default());
    sleep(Duration::from_millis(100)).await;
    fleet.replicas[2].permits.slot(&account(), limit(2), CLOSED).await.unwrap_err();
    assert_eq!(fleet.shop.keys("slot.").await.len(), 1);
    sleep(Duration::from_secs(63)).await;
    fleet.replicas[2].permits.slot(&account(), limit(2), CLOSED).await.unwrap();
    drop(held);
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_slot_given_by_a_store_that_forgot_is_not_used() {
    let fleet = Fleet::of(2).await;
    let [first, second] = &fleet.replicas[..] else { panic!("two replicas") };
    let _held = first.permits.slot(&account(), limit(1), CLOSED).await.unwrap();
    // Between two looks of everybody's.
    sleep(Duration::from_millis(1_000)).await;
    fleet.shop.empty_unheard();
    second.permits.slot(&account(), limit(2), CLOSED).await.unwrap_err();
    assert_eq!(second.permits.counts().emptied, 1);
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn permits_of_a_minute_are_not_given_again_for_a_minute() {
    let fleet = Fleet::of(2).await;
    for n in 0..6 {
        fleet.replicas[n % 2].permits.rate(&account(), limit(6), CLOSED).await.unwrap();
    }
    sleep(Duration::from_secs(1)).await;
    fleet.shop.empty();
    for _ in 0..58 {
        fleet.replicas[1].permits.rate(&account(), limit(6), super::ground::AVAILABLE).await.unwrap_err();
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_secs(6)).await;
    fleet.replicas[1].permits.rate(&account(), limit(6), CLOSED).await.unwrap();
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_before_the_store_was_named_is_no_store_that_forgot() {
    let fleet = Fleet::of(2).await;
    let [first, second] = &fleet.replicas[..] else { panic!("two replicas") };
    let _held = second.permits.slot(&account(), limit(2), CLOSED).await.unwrap();
    let inner = &first.permits.inner;
    inner.answered(&mut inner.state.lock(), None);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(first.permits.counts().emptied, 0);
    first.permits.slot(&account(), limit(2), CLOSED).await.unwrap();
    fleet.stop().await;
}
