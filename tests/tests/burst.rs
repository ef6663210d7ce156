//! More at once than the projector folds: what is behind is caught up, nothing is missing, no client notices. In full size
//! and with figures: `cargo xtask projector-rate`.

use std::time::Duration;

use serde_json::Value;
use waybill_testkit::{until, wait_until};
use waybill_tests::Bench;
use waybill_tests::folding::{burst, catch_up, missing, prepared};
use waybill_tests::traffic::{Histories, Load, Replicas};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_at_twice_the_ceiling_is_caught_up_afterwards() {
    let bench = Bench::of(2).await;
    prepared(&bench).await;
    let histories = Histories::recorded(&bench.fleet).await;
    let mut replicas = Replicas::start(&bench.fleet, 2).await;

    let waiting = Load { requests: 4_000, rate: 4_000, open: 200 };
    let folds = catch_up(&bench, &mut replicas, &histories, waiting).await;
    assert_eq!(folds.written.requests, 4_000);
    let per_second = folds.traffic.per_second().min(folds.selector.per_second()) / histories.events_per_request();

    let rate = (2.0 * per_second) as u64;
    let told = burst(&bench, &mut replicas, &histories, Load { requests: 2 * rate, rate, open: 200 }).await;
    replicas.close().await;
    assert_eq!(told.refused, 0, "{told}");
    assert!(told.served > 20, "{told}");
    assert!(!told.longest_lag.is_zero(), "it was behind, and said so: {told}");
    assert_eq!(missing(&bench, folds.written.requests + told.written.requests + told.served).await, None, "{told}");

    let metrics = bench.fleet.metrics("projector-1").await;
    for fold in ["selector", "config", "traffic"] {
        for name in ["fold_lag_milliseconds", "fold_behind_messages", "fold_behind_events"] {
            let line = format!("waybill_{name}{{fold=\"{fold}\"}} 0\n");
            assert!(metrics.contains(&line), "{line}: {metrics}");
        }
    }
    // The selector's fold tells its position with each beat.
    wait_until(Duration::from_secs(10), "administrators see all three folds at the log's end", async || {
        let status = bench.admin().get("/status").await;
        let at_end = |d: &&Value| d["lag_ms"] == 0 && d["behind"] == 0;
        let folds = status["dependencies"].as_array().unwrap().iter().filter(at_end).count();
        until(folds == 3, || status.to_string())
    })
    .await;
    bench.fleet.stop().await;
}
