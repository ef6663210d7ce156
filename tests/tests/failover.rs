//! The sixteen fail-over scenarios over three replicas, at a tenth of their times. `cargo xtask failover` runs them in
//! full.

use waybill_tests::Bench;
use waybill_tests::failover::{Mark, Pace, Variant, run, scorecard};

/// Scenarios whose answer breaks off midway: without resuming, an honest error is all there can be.
const MIDWAY: [u8; 4] = [8, 9, 10, 14];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scenario_earns_its_mark() {
    let bench = Bench::of(3).await;
    let results = run(&bench, &Variant::all(), Pace(0.1)).await;
    println!("{}", scorecard(&results));
    let mut wrong = Vec::new();
    for result in &results {
        let Variant { scenario, streamed, resume } = result.variant;
        let broken = streamed && !resume && MIDWAY.contains(&scenario);
        let least = if broken { Mark::Safe } else { Mark::Pass };
        if result.mark < least {
            wrong.push(format!("{:?} is {}: {:#?}", result.variant, result.mark, result.why));
        }
    }
    bench.fleet.stop().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
