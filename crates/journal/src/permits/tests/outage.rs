//! What is given while the store is away: the bound of each policy, with all replicas cut off and with one.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::ground::{AVAILABLE, Chance, Fleet, STRICT, Upstream, account, limit};
use crate::permits::{OnOutage, Permits, ShareFloor};

/// Requests come to a replica all the time, more than fit, none longer than two seconds.
fn press(fleet: &Fleet, replica: usize, most: u32, on_outage: OnOutage, end: Instant, seed: u64) {
    for worker in 0..u64::from(most) * 2 {
        let mut chance = Chance::new(seed * 100 + worker);
        let (permits, upstream) = (fleet.replicas[replica].permits.clone(), fleet.upstream.clone());
        fleet.tasks.spawn(async move {
            while Instant::now() < end {
                match permits.slot(&account(), limit(most), on_outage).await {
                    Ok(_slot) => upstream.serve(chance.millis(10..2_000)).await,
                    Err(_) => sleep(chance.millis(20..100)).await,
                }
            }
        });
    }
}

/// The most at once that the upstream sees: before the outage, while leases stand, and after they have ended.
#[derive(Debug)]
struct Most {
    before: u32,
    leased: u32,
    after: u32,
    back: u32,
}

fn check(found: &Most, before: u32, leased: u32, after: u32, back: u32) {
    let exact = (found.before, found.after, found.back) == (before, after, back);
    // A slot that was changing hands when the store went away is nobody's.
    assert!(exact && found.leased <= leased && found.leased + 1 >= leased, "{found:?}");
}

/// All replicas are under load; the last `cut` of `replicas` are cut off for a hundred seconds.
async fn outage(replicas: u32, cut: u32, most: u32, on_outage: OnOutage) -> Most {
    let fleet = Fleet::of(replicas).await;
    let end = Instant::now() + Duration::from_secs(160);
    for replica in 0..fleet.replicas.len() {
        press(&fleet, replica, most, on_outage, end, u64::try_from(replica).unwrap());
    }
    sleep(Duration::from_secs(10)).await;
    let before = fleet.upstream.most();
    let cut_off = &fleet.replicas[usize::try_from(replicas - cut).unwrap()..];
    cut_off.iter().for_each(super::ground::Replica::cut_off);
    sleep(Duration::from_secs(70)).await;
    let leased = fleet.upstream.most();
    sleep(Duration::from_secs(30)).await;
    let after = fleet.upstream.most();
    cut_off.iter().for_each(super::ground::Replica::join);
    // What was given without the store runs for two seconds at most.
    sleep(Duration::from_secs(10)).await;
    fleet.upstream.most();
    sleep(Duration::from_secs(20)).await;
    let back = fleet.upstream.most();
    let without: u64 = fleet.replicas.iter().map(|r| r.permits.counts()).map(|c| c.shared + c.opened).sum();
    let gives = match on_outage {
        OnOutage::Open => true,
        OnOutage::Closed => false,
        OnOutage::Share { floor } => floor == ShareFloor::Available || most >= replicas,
    };
    assert_eq!(without > 0, gives, "counted: {without}");
    sleep(Duration::from_secs(30)).await;
    fleet.stop().await;
    Most { before, leased, after, back }
}

#[tokio::test(start_paused = true)]
async fn all_cut_off_with_share_available_stay_within_the_greater_of_limit_and_fleet() {
    check(&outage(3, 3, 6, AVAILABLE).await, 6, 6, 6, 6);
    check(&outage(3, 3, 5, AVAILABLE).await, 5, 5, 3, 5);
    check(&outage(3, 3, 2, AVAILABLE).await, 2, 3, 3, 2);
}

#[tokio::test(start_paused = true)]
async fn all_cut_off_with_share_strict_stay_within_the_limit() {
    check(&outage(3, 3, 6, STRICT).await, 6, 6, 6, 6);
    check(&outage(3, 3, 2, STRICT).await, 2, 2, 0, 2);
}

#[tokio::test(start_paused = true)]
async fn one_cut_off_with_share_stays_within_the_limit_and_one_share() {
    check(&outage(3, 1, 6, AVAILABLE).await, 6, 8, 8, 6);
    check(&outage(3, 1, 2, AVAILABLE).await, 2, 3, 3, 2);
    check(&outage(3, 1, 2, STRICT).await, 2, 2, 2, 2);
}

#[tokio::test(start_paused = true)]
async fn all_cut_off_with_closed_give_only_what_they_hold() {
    check(&outage(3, 3, 6, OnOutage::Closed).await, 6, 6, 0, 6);
}

#[tokio::test(start_paused = true)]
async fn one_cut_off_with_closed_stays_within_the_limit() {
    check(&outage(3, 1, 6, OnOutage::Closed).await, 6, 6, 6, 6);
}

#[tokio::test(start_paused = true)]
async fn cut_off_with_open_give_everything() {
    check(&outage(3, 3, 6, OnOutage::Open).await, 6, 36, 36, 6);
    check(&outage(3, 1, 6, OnOutage::Open).await, 6, 12 + 6, 12 + 6, 6);
}

/// The first of three replicas holds `held` of six slots and the others nothing, when all are cut off.
async fn check_uneven(held: usize, share: usize) {
    let fleet = Fleet::of(3).await;
    let [first, others @ ..] = &fleet.replicas[..] else { panic!("three replicas") };
    let take = async |replica: &super::ground::Replica| replica.permits.slot(&account(), limit(6), AVAILABLE).await;
    let mut slots = Vec::new();
    for _ in 0..held {
        slots.push(take(first).await.unwrap());
    }
    sleep(Duration::from_millis(100)).await;
    fleet.replicas.iter().for_each(super::ground::Replica::cut_off);
    sleep(Duration::from_secs(4)).await;
    for replica in others {
        for _ in 0..share {
            slots.push(take(replica).await.unwrap());
        }
        take(replica).await.unwrap_err();
    }
    take(first).await.unwrap_err();
    assert!(slots.len() <= 6);
    // When what the first one held has lapsed each has its share.
    slots.clear();
    sleep(Duration::from_secs(62)).await;
    for replica in &fleet.replicas {
        slots.push(take(replica).await.unwrap());
        slots.push(take(replica).await.unwrap());
        take(replica).await.unwrap_err();
    }
    drop(slots);
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn all_cut_off_share_only_what_none_of_them_holds() {
    check_uneven(6, 0).await;
    check_uneven(3, 1).await;
    check_uneven(1, 1).await;
}

#[tokio::test(start_paused = true)]
async fn replicas_that_can_no_longer_be_heard_still_have_their_share() {
    let fleet = Fleet::of(3).await;
    let replica = &fleet.replicas[0];
    sleep(Duration::from_secs(5)).await;
    replica.cut_off();
    // Before it is noticed.
    fleet.count.store(1, std::sync::atomic::Ordering::Relaxed);
    sleep(Duration::from_secs(120)).await;
    let mut slots = Vec::new();
    while let Ok(slot) = replica.permits.slot(&account(), limit(6), AVAILABLE).await {
        slots.push(slot);
    }
    assert_eq!(slots.len(), 2);
    drop(slots);
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn requests_admitted_without_the_store_get_slots_when_it_is_back() {
    let fleet = Fleet::of(3).await;
    let [first, second, _third] = &fleet.replicas[..] else { panic!("three replicas") };
    let take = async |replica: &super::ground::Replica| replica.permits.slot(&account(), limit(6), AVAILABLE).await;
    first.cut_off();
    sleep(Duration::from_secs(4)).await;
    let outside = [take(first).await.unwrap(), take(first).await.unwrap()];
    assert!(outside.iter().all(crate::permits::Slot::is_outside));
    first.join();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(fleet.shop.keys("slot.").await.len(), 2);
    let mut slots = Vec::new();
    for _ in 0..4 {
        slots.push(take(second).await.unwrap());
    }
    take(second).await.unwrap_err();
    assert_eq!(first.permits.seen(&account()).in_flight, 6);
    drop(outside);
    slots.push(take(second).await.unwrap());
    drop(slots);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(fleet.shop.keys("slot.").await.len(), 0);
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_given_without_the_store_is_told_to_it_first() {
    let fleet = Fleet::of(2).await;
    let [first, second] = &fleet.replicas[..] else { panic!("two replicas") };
    let take = async |replica: &super::ground::Replica| replica.permits.rate(&account(), limit(10), AVAILABLE).await;
    first.cut_off();
    sleep(Duration::from_secs(4)).await;
    for _ in 0..5 {
        assert!(take(first).await.unwrap().is_outside());
    }
    take(first).await.unwrap_err();
    first.join();
    sleep(Duration::from_secs(4)).await;
    assert!(!take(first).await.unwrap().is_outside());
    sleep(Duration::from_millis(10)).await;
    assert_eq!(fleet.shop.keys("rate.").await.len(), 6, "five that were owed, and one");
    for _ in 0..4 {
        take(second).await.unwrap();
    }
    take(second).await.unwrap_err();
    take(first).await.unwrap_err();
    fleet.stop().await;
}

/// A request is decided within the deadline of the store, whatever the store does.
#[tokio::test(start_paused = true)]
async fn no_request_hangs_on_the_store() {
    for on_outage in [AVAILABLE, STRICT, OnOutage::Closed, OnOutage::Open] {
        let fleet = Fleet::of(3).await;
        let permits = &fleet.replicas[0].permits;
        fleet.replicas[0].cut_off();
        let begun = Instant::now();
        let slot = permits.slot(&account(), limit(6), on_outage).await;
        let rate = permits.rate(&account(), limit(6), on_outage).await;
        assert!(begun.elapsed() <= Duration::from_millis(200), "{:?}", begun.elapsed());
        assert_eq!((slot.is_ok(), rate.is_ok()), (on_outage != OnOutage::Closed, on_outage != OnOutage::Closed));
        assert!(slot.is_err() || slot.as_ref().is_ok_and(crate::permits::Slot::is_outside));
        // Then it is known to be away.
        let begun = Instant::now();
        let again = permits.rate(&account(), limit(6), on_outage).await;
        assert_eq!((again.is_ok(), begun.elapsed()), (on_outage != OnOutage::Closed, Duration::ZERO));
        drop((slot, rate));
        fleet.replicas[0].join();
        sleep(Duration::from_secs(3)).await;
        assert!(permits.store_answers());
        fleet.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_outlives_its_lease_is_told_as_such() {
    let fleet = Fleet::of(2).await;
    let [first, second] = &fleet.replicas[..] else { panic!("two replicas") };
    let slot = first.permits.slot(&account(), limit(1), AVAILABLE).await.unwrap();
    first.cut_off();
    sleep(Duration::from_secs(57)).await;
    assert!(!slot.is_over_lease());
    sleep(Duration::from_secs(2)).await;
    assert!(slot.is_over_lease(), "before the store lets others have it");
    second.permits.slot(&account(), limit(1), AVAILABLE).await.unwrap_err();
    let counts = first.permits.counts();
    assert_eq!((counts.over_lease, counts.over_lease_now), (1, 1));
    sleep(Duration::from_secs(2)).await;
    let other = second.permits.slot(&account(), limit(1), AVAILABLE).await.unwrap();
    first.permits.slot(&account(), limit(1), AVAILABLE).await.unwrap_err();
    first.join();
    sleep(Duration::from_secs(3)).await;
    assert!(slot.is_over_lease() && !other.is_over_lease());
    drop(slot);
    assert_eq!(first.permits.counts().over_lease_now, 0);
    drop(other);
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ended_in_vain_begins_again_when_the_store_is_back() {
    let fleet = Fleet::of(2).await;
    let first = &fleet.replicas[0];
    let slot = first.permits.slot(&account(), limit(1), AVAILABLE).await.unwrap();
    first.cut_off();
    sleep(Duration::from_secs(70)).await;
    assert!(slot.is_over_lease());
    first.join();
    sleep(Duration::from_secs(4)).await;
    assert!(!slot.is_over_lease());
    fleet.replicas[1].permits.slot(&account(), limit(1), AVAILABLE).await.unwrap_err();
    drop(slot);
    fleet.stop().await;
}

/// Asks for a rate permit all the time.
async fn hurry(permits: Permits, upstream: Arc<Upstream>, per_minute: u32, on_outage: OnOutage, end: Instant) {
    while Instant::now() < end {
        if permits.rate(&account(), limit(per_minute), on_outage).await.is_ok() {
            drop(upstream.enter());
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// The most within a minute, when the last `cut` of three replicas are cut off for three minutes.
async fn minute(cut: usize, per_minute: u32, on_outage: OnOutage) -> usize {
    let fleet = Fleet::of(3).await;
    let end = Instant::now() + Duration::from_secs(270);
    for replica in &fleet.replicas {
        let work = hurry(replica.permits.clone(), fleet.upstream.clone(), per_minute, on_outage, end);
        fleet.tasks.spawn(work);
    }
    sleep(Duration::from_secs(75)).await;
    for replica in &fleet.replicas[3 - cut..] {
        replica.cut_off();
    }
    sleep(Duration::from_secs(180)).await;
    sleep(Duration::from_secs(20)).await;
    let most = fleet.upstream.most_in_a_minute();
    fleet.stop().await;
    most
}

#[tokio::test(start_paused = true)]
async fn rates_of_all_cut_off_with_share_stay_within_the_limit_or_one_each() {
    assert_eq!(minute(3, 60, AVAILABLE).await, 60);
    assert_eq!(minute(3, 60, STRICT).await, 60);
    assert_eq!(minute(3, 2, AVAILABLE).await, 3);
    assert_eq!(minute(3, 2, STRICT).await, 2);
}

#[tokio::test(start_paused = true)]
async fn rates_of_one_cut_off_with_share_stay_within_the_limit_and_one_share() {
    assert_eq!(minute(1, 60, AVAILABLE).await, 80);
    assert_eq!(minute(1, 2, AVAILABLE).await, 3);
    assert_eq!(minute(1, 2, STRICT).await, 2);
}

#[tokio::test(start_paused = true)]
async fn rates_of_all_cut_off_with_closed_give_nothing_and_with_open_everything() {
    assert_eq!(minute(3, 60, OnOutage::Closed).await, 60);
    assert!(minute(3, 60, OnOutage::Open).await >= 1_700);
}
