//! Days of traffic that are too old: dropped by whoever leads, unless a request of theirs is open.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use waybill_event::LogTime;
use waybill_journal::memory::Memory;
use waybill_read_model::Projection;
use waybill_read_model::read::RequestQuery;

use crate::ground::{Ground, start_of_time};
use crate::plan::Traffic;

const TRAFFIC: Projection = Projection::Traffic;
const DAY: Duration = Duration::from_secs(86_400);

async fn requests(ground: &Ground) -> usize {
    let query = RequestQuery { limit: 500, ..RequestQuery::default() };
    ground.store.requests(&query).await.unwrap().len()
}

/// Folds old traffic, then one message that came so many days later; keeps seven.
async fn check(days: u32, old_requests_end: bool, stay: bool) {
    let now = Arc::new(AtomicI64::new(start_of_time().as_micros()));
    let clock = Arc::clone(&now);
    let memory = Memory::new(Arc::new(move || LogTime::from_micros(clock.load(Ordering::Relaxed))));
    let mut ground = Ground::new().await;
    (ground.journal, ground.memory, ground.keep_days) = (memory.journal(), memory, Some(7));
    let mut traffic = Traffic::new();
    let mut last = 0;
    for payload in traffic.messages(60) {
        last = ground.traffic(payload).await;
    }
    if old_requests_end {
        last = ground.traffic(traffic.drained()).await;
    }
    let runner = ground.runner();
    if old_requests_end {
        last = ground.settled(&runner).await;
    }
    runner.caught_up(TRAFFIC, last).await;
    let before = requests(&ground).await;
    assert!(before > 20, "{before}");
    assert_eq!(runner.status(TRAFFIC).counts.dropped_days, 0);
    runner.end().await;

    now.fetch_add(i64::try_from((DAY * days).as_micros()).unwrap(), Ordering::Relaxed);
    let late = ground.traffic(b"[]".to_vec()).await;
    let runner = ground.runner();
    runner.caught_up(TRAFFIC, late).await;
    runner.end().await;
    // Whoever leads next looks at once.
    let runner = ground.runner();
    if stay {
        let fresh = ground.traffic(b"[]".to_vec()).await;
        runner.caught_up(TRAFFIC, fresh).await;
        assert_eq!((runner.status(TRAFFIC).counts.dropped_days, requests(&ground).await), (0, before));
    } else {
        runner.wait_for(TRAFFIC, "old days being dropped", |status| status.counts.dropped_days > 0).await;
        assert_eq!(requests(&ground).await, 0);
    }
    runner.end().await;
    ground.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_older_than_is_kept_goes() {
    check(9, true, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_young_or_open_stays() {
    check(6, true, true).await;
    check(9, false, true).await;
}
