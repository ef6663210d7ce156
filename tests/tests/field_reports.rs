//! What operators of other gateways reported holds here: each script of `docs/field-reports.md` that can run, with its
//! siblings, over fleets of three replicas.

use std::time::Duration;

use waybill_testkit::FleetOptions;
use waybill_tests::field_reports::operation;
use waybill_tests::{Bench, field_reports};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_report_holds() {
    // Disabled sources stay so: no probe changes what a script counts.
    let options = FleetOptions { probe_interval: Duration::from_secs(3_600), ..FleetOptions::default() };
    let bench = Bench::start(options).await;
    let wanted = std::env::var("WAYBILL_REPORT").unwrap_or_default();
    let scripts: Vec<_> =
        field_reports::scripts().into_iter().filter(|script| script.name.starts_with(&wanted)).collect();
    let begun = std::time::Instant::now();
    let wrong = field_reports::run(&bench, &scripts).await;
    println!("{} scripts in {:?}", scripts.len(), begun.elapsed());
    bench.fleet.stop().await;
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), scripts.len(), wrong.join("\n\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_on_the_fleet_itself_hold() {
    let bench = Bench::start(operation::options()).await;
    operation::late_replicas_know_what_is_blocked(&bench).await;
    operation::shares_survive_a_restart(&bench).await;
    operation::histories_tell_everything(&bench).await;
    operation::stops_drain(&bench).await;
    operation::nobody_waits_for_the_database(&bench).await;
    operation::numbers_are_neither_doubled_nor_lost(&bench).await;
    bench.fleet.stop().await;
}
