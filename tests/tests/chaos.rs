//! Real fleets under load while parts of them are killed, frozen, cut off and restarted, small. `cargo xtask chaos` runs
//! the same in full size.

#![expect(clippy::print_stdout, reason = "what a case came to is shown where it fails")]

use std::time::Duration;

use waybill_tests::chaos::{CLUSTER_FEW, Case, Ground, SINGLE_FEW, Scale, Through, away, kills, rolling};

/// As the deployment has it by default: four looks of its balancer.
const DRAIN_DELAY: Duration = Duration::from_secs(2);

#[track_caller]
fn check(cases: &[Case]) {
    for case in cases {
        println!("{case:#?}");
    }
    let wrong: Vec<_> = cases.iter().filter(|case| !case.violations.is_empty()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_with_a_log_of_three_nodes() {
    let mut ground = Ground::start(3, Scale::small(), Duration::ZERO).await;
    let cases = kills(&mut ground, CLUSTER_FEW, |_| {}).await;
    check(&cases);
    ground.bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_with_a_log_of_one_node() {
    let mut ground = Ground::start(1, Scale::small(), Duration::ZERO).await;
    let cases = kills(&mut ground, SINGLE_FEW, |_| {}).await;
    check(&cases);
    ground.bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_away_is_history_told_late() {
    let mut ground = Ground::start(1, Scale::small(), Duration::ZERO).await;
    let case = away(&mut ground).await;
    check(&[case]);
    ground.bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_fails_no_request() {
    let mut ground = Ground::start(1, Scale::small(), DRAIN_DELAY).await;
    let case = rolling(&mut ground, Through::Front).await;
    check(&case.into_iter().collect::<Vec<_>>());
    ground.bench.fleet.stop().await;
}
