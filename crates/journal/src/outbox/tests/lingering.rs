//! What others act on isn't kept waiting for company; what only tells is.

use tokio::time::Instant;
use waybill_event::FailureKind;
use waybill_event::failure::Health;
use waybill_event::traffic::SourceOutcome;

use super::*;

fn outcome(source_health: Health) -> Encoded {
    let body = SourceOutcome {
        upstream_model: "m".to_owned(),
        kind: FailureKind::Success,
        source_health,
        model_health: Health::Ok,
        latency_ms: None,
        block: None,
        attempts: 1,
        credential_revision: 1,
        base_url_revision: 1,
        probe: false,
        usage: None,
    };
    Draft::new(start(), body).encode().unwrap()
}

/// Appends these events, 2 ms apart, and gives the time until the log has the first one.
async fn check(events: &[Encoded], expected: Duration) {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::started_at(start());
    let (outbox, publisher) = Outbox::open(config(dir.path()), boot(1)).unwrap();
    let running = run(publisher, memory.journal().log);
    let began = Instant::now();
    for event in events {
        outbox.append(std::slice::from_ref(event)).unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    while outbox.status().acknowledged == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let took = began.elapsed();
    assert!(took >= expected && took < expected + Duration::from_millis(4), "{took:?}, not {expected:?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_success_waits_and_a_failure_takes_it_along() {
    let limits = BatchLimits::default();
    check(&[outcome(Health::Ok)], limits.linger).await;
    check(&[outcome(Health::Ok), outcome(Health::Ok)], limits.linger).await;
    check(&[outcome(Health::Fail)], limits.urgent_linger).await;
    check(&[outcome(Health::Ok), outcome(Health::Fail)], Duration::from_millis(2) + limits.urgent_linger).await;
    check(&[outcome(Health::Busy), outcome(Health::Ok)], limits.urgent_linger).await;
}

#[tokio::test(start_paused = true)]
async fn what_somebody_waits_for_goes_out_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::started_at(start());
    let (outbox, publisher) = Outbox::open(config(dir.path()), boot(1)).unwrap();
    let running = run(publisher, memory.journal().log);
    let began = Instant::now();
    let ordinals = outbox.append(&[outcome(Health::Ok)]).unwrap();
    assert!(outbox.wait_acknowledged(*ordinals.end()).await);
    assert!(began.elapsed() < Duration::from_millis(2), "{:?}", began.elapsed());
    running.stop().await;
}
