//! Measures what the projector can fold: how long a real one takes for what waits in the log, into a real Postgres, with
//! everything on this machine; then a burst at twice the requests/s that this comes to, while clients go on asking.
//! `cargo xtask projector-rate` builds it in release and runs it; it ends with an error where a figure is missed.

#![expect(clippy::print_stdout, reason = "a table is this program's output")]

use std::process::ExitCode;

use clap::Parser;
use waybill_tests::Bench;
use waybill_tests::folding::{Folds, Rate, burst, catch_up, missing, prepared};
use waybill_tests::traffic::{Histories, Load, Replicas};

/// Events a second that the projector must fold.
const WANTED: f64 = 20_000.0;
/// What a burst is to the ceiling.
const BURST: u64 = 2;
const REPLICAS: usize = 3;

/// What is measured.
#[derive(Debug, Parser)]
struct Args {
    /// Requests that wait for the projector.
    #[arg(long, default_value_t = 60_000)]
    requests: u64,
    /// Requests a second at which they are written.
    #[arg(long, default_value_t = 8_000)]
    rate: u64,
    /// Requests that each replica has open at a time.
    #[arg(long, default_value_t = 1_000)]
    open: u64,
    /// How long the burst lasts, in seconds; 0 leaves it out.
    #[arg(long, default_value_t = 20)]
    burst_seconds: u64,
}

fn told(what: &str, rate: &Rate) {
    println!("{what:<22} {:>9} {:>8.2} {:>10.0}", rate.events, rate.took.as_secs_f64(), rate.per_second());
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let args = Args::parse();
    let bench = Bench::of(3).await;
    prepared(&bench).await;
    let histories = Histories::recorded(&bench.fleet).await;
    let mut replicas = Replicas::start(&bench.fleet, REPLICAS).await;
    let load = Load { requests: args.requests, rate: args.rate, open: args.open };

    let Folds { selector, traffic, cpu, written } = catch_up(&bench, &mut replicas, &histories, load).await;
    println!(
        "{} requests, {} events, written in {:.1} s",
        written.requests,
        written.events,
        written.took.as_secs_f64()
    );
    println!("{:<22} {:>9} {:>8} {:>10}", "fold", "events", "s", "events/s");
    told("into Postgres", &traffic);
    told("the selector's", &selector);
    let all: f64 = cpu.iter().map(|(_, time)| time.as_secs_f64()).sum();
    for (name, time) in &cpu {
        println!("{name:<22} {:>6.1} µs of CPU per event", time.as_secs_f64() * 1e6 / traffic.events as f64);
    }
    println!("two cores, used by these alone: {:.0} events/s", 2.0 * traffic.events as f64 / all);
    let per_second = traffic.per_second().min(selector.per_second());
    let ceiling = (per_second / histories.events_per_request()) as u64;
    println!("{:.2} events per request: ceiling {ceiling} requests/s", histories.events_per_request());
    let mut holds = per_second >= WANTED;
    let mut requests = written.requests;

    if args.burst_seconds > 0 {
        let rate = ceiling * BURST;
        let load = Load { requests: rate * args.burst_seconds, rate, open: args.open };
        let told = burst(&bench, &mut replicas, &histories, load).await;
        println!("burst of {rate} requests/s for {} s: {told}", args.burst_seconds);
        holds &= told.refused == 0;
        requests += told.written.requests + told.served;
    }
    replicas.close().await;
    let missing = missing(&bench, requests).await;
    println!(
        "{requests} requests, against a fold from scratch: {}",
        missing.as_deref().unwrap_or("nothing is missing")
    );
    holds &= missing.is_none();
    bench.fleet.stop().await;
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
