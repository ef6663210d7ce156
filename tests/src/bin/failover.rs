//! Runs the sixteen fail-over scenarios in full time and prints the scorecard. `cargo xtask failover` builds the binary
//! and runs this.

#![expect(clippy::print_stdout, reason = "a scorecard is this program's output")]

use std::process::ExitCode;

use waybill_tests::Bench;
use waybill_tests::failover::{Mark, Pace, Variant, run, scorecard};

#[tokio::main]
async fn main() -> ExitCode {
    let pace = match std::env::args().nth(1).map(|text| text.parse()) {
        None => Pace(1.0),
        Some(Ok(pace)) => Pace(pace),
        Some(Err(error)) => {
            println!("the pace is a number, 1 for full time: {error}");
            return ExitCode::from(2);
        }
    };
    let bench = Bench::of(3).await;
    let results = run(&bench, &Variant::all(), pace).await;
    println!("{}", scorecard(&results));
    for result in results.iter().filter(|result| result.mark < Mark::Pass) {
        println!("{:?}: {} {:#?}", result.variant, result.mark, result.why);
    }
    bench.fleet.stop().await;
    let failed = results.iter().any(|result| result.mark == Mark::Fail);
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
