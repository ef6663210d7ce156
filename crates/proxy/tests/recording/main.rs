//! How strictly requests are recorded: with the log there and away, with room in the outbox and without.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail where it stands")]

mod silent;
mod world;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::StatusCode;
use waybill_proxy::{Durability, OutboxFull, Recording};
use waybill_scripted_upstream::{Reply, Source};

use world::{SOURCE, World};

/// Room for whatever a test writes.
const ROOM: u64 = 1 << 24;
/// Room for a few requests: each is promised 16 KB for its end.
const LITTLE: u64 = 40 << 10;
/// How long the log is waited for.
const WITHIN: Duration = Duration::from_millis(300);

fn recording(durability: Durability, outbox_full: OutboxFull) -> Recording {
    Recording { durability, outbox_full, acknowledged_within: WITHIN }
}

fn acked() -> Recording {
    recording(Durability::Acked, OutboxFull::Refuse)
}

fn slow(ms: u64) -> Source {
    let reply: Reply =
        serde_json::from_value(serde_json::json!({"delay_head_ms": ms, "body": {"chat": {"words": 3}}})).unwrap();
    Source::default().then(reply)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_log_there_acked_serves_and_the_admission_is_in_the_log_first() {
    let world = World::new(acked(), ROOM, slow(100)).await;
    for stream in [false, true] {
        let asking = world.ask(stream);
        let watching = async {
            world.until("the upstream is asked", || world.upstream.in_flight(SOURCE) == 1).await;
            world.recorded().await.pop()
        };
        let ((status, body), newest) = tokio::join!(asking, watching);
        assert_eq!(status, StatusCode::OK, "{body}");
        assert!(newest.is_some_and(|kind| kind == "request_admitted" || kind == "attempt_started"));
        // The answer is complete only once its end is in the log.
        assert_eq!(world.recorded().await.last().map(String::as_str), Some("request_finished"));
    }
    assert_eq!(world.metric("waybill_unacknowledged_total"), 0);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_log_away_acked_dispatches_nothing_and_says_so() {
    let world = World::new(acked(), ROOM, slow(0)).await;
    world.log_takes(false);
    let began = Instant::now();
    let (status, body) = world.ask(false).await;
    assert_eq!((status, World::code(&body).as_str()), (StatusCode::SERVICE_UNAVAILABLE, "log_unavailable"));
    assert!(began.elapsed() >= WITHIN && began.elapsed() < WITHIN * 10);
    assert!(world.upstream.calls().is_empty(), "nothing is dispatched");
    assert_eq!(world.metric("waybill_unacknowledged_total{at=\"admission\"}"), 1);
    world.log_takes(true);
    let (status, body) = world.ask(false).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let recorded = world.recorded().await;
    // What was refused is a request without an attempt.
    assert_eq!(recorded[..2], ["request_admitted", "request_finished"]);
    assert_eq!(recorded.iter().filter(|kind| *kind == "attempt_started").count(), 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_there_is_given_though_the_log_went_away_meanwhile() {
    let world = World::new(acked(), ROOM, slow(200)).await;
    for stream in [false, true] {
        let asking = world.ask(stream);
        let cutting = async {
            world.until("the upstream is asked", || world.upstream.in_flight(SOURCE) == 1).await;
            world.log_takes(false);
        };
        let ((status, body), ()) = tokio::join!(asking, cutting);
        assert_eq!(status, StatusCode::OK, "{body}");
        assert!(!stream || body.ends_with("data: [DONE]\n\n"), "{body}");
        world.log_takes(true);
    }
    assert_eq!(world.metric("waybill_unacknowledged_total{at=\"end\"}"), 2);
    world.until("all is in the log", || world.all_acknowledged()).await;
    let recorded = world.recorded().await;
    assert_eq!(recorded.iter().filter(|kind| *kind == "request_finished").count(), 2);
    world.end().await;
}

#[tokio::test]
async fn a_client_that_leaves_before_its_probe_has_begun_leaves_no_outcome() {
    let world = World::new(recording(Durability::Acked, OutboxFull::Refuse), ROOM, slow(0)).await;
    world.half_open();
    tokio::select! {
        biased;
        () = world.until("a permit is asked for", || world.permit_asked.load(Ordering::Acquire)) => {}
        (status, body) = world.ask(false) => panic!("answered without a permit: {status} {body}"),
    }
    world.until("all is in the log", || world.all_acknowledged()).await;
    assert_eq!(world.recorded().await, ["request_admitted", "request_finished"]);
    assert!(world.upstream.calls().is_empty(), "nothing is dispatched");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_does_not_wait_for_the_log() {
    let world = World::new(Recording { acknowledged_within: WITHIN, ..Recording::default() }, ROOM, slow(0)).await;
    world.log_takes(false);
    for stream in [false, true] {
        let (status, body) = world.ask(stream).await;
        assert_eq!(status, StatusCode::OK, "{body}");
    }
    assert_eq!(world.recorded().await, Vec::<String>::new());
    world.end().await;
}

/// Asks until something else happens than that a request is served and recorded; at most 60 times.
async fn until_full(world: &World) -> (StatusCode, String, usize) {
    for served in 0..60 {
        let (status, body) = world.ask(false).await;
        if status != StatusCode::OK || world.metric("waybill_unrecorded_requests_total") > 0 {
            return (status, body, served);
        }
    }
    panic!("the outbox never became full: {:?}", world.replica.outbox().status());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_outbox_refuses_new_requests_and_takes_them_again_later() {
    let world = World::new(Recording::default(), LITTLE, slow(0)).await;
    world.log_takes(false);
    let (status, body, served) = until_full(&world).await;
    assert_eq!((status, World::code(&body).as_str()), (StatusCode::SERVICE_UNAVAILABLE, "outbox_full"));
    assert!(served > 0);
    assert_eq!(world.upstream.calls().len(), served, "what is refused isn't dispatched");
    world.log_takes(true);
    world.until("there is room again", || world.replica.outbox().status().bytes == 0).await;
    assert_eq!(world.ask(false).await.0, StatusCode::OK);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_outbox_may_let_requests_go_unrecorded_and_counts_them() {
    let world = World::new(recording(Durability::Pipelined, OutboxFull::Count), LITTLE, slow(0)).await;
    world.log_takes(false);
    let (status, body, served) = until_full(&world).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(world.ask(true).await.0, StatusCode::OK);
    assert_eq!(world.metric("waybill_unrecorded_requests_total"), 2);
    assert_eq!(world.upstream.calls().len(), served + 2);
    world.log_takes(true);
    world.until("there is room again", || world.replica.outbox().status().bytes == 0).await;
    let recorded = world.recorded().await;
    for kind in ["request_admitted", "request_finished"] {
        assert_eq!(recorded.iter().filter(|one| *one == kind).count(), served, "{kind}");
    }
    assert_eq!(world.replica.metrics().in_flight(), 0);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_cannot_be_recorded_is_not_made_and_the_request_ends() {
    let reply = serde_json::json!({"status": 409, "delay_head_ms": 100, "body": "empty"});
    let conflict = Source::default().then(serde_json::from_value(reply).unwrap());
    let world = World::promising(Recording::default(), 16 << 10, 4 << 10, conflict).await;
    world.log_takes(false);
    let asking = world.ask(false);
    let filling = async {
        world.until("the upstream is asked", || world.upstream.in_flight(SOURCE) == 1).await;
        world.fill_outbox();
    };
    let ((status, body), ()) = tokio::join!(asking, filling);
    assert!(!status.is_success(), "{body}");
    world.log_takes(true);
    world.until("all is in the log", || world.all_acknowledged()).await;
    let recorded = world.recorded().await;
    let count = |kind: &str| recorded.iter().filter(|one| *one == kind).count();
    assert_eq!(recorded.last().map(String::as_str), Some("request_finished"), "{recorded:?}");
    // A conflict is tried three times more when there is room.
    assert!(world.upstream.calls().len() < 4, "{recorded:?}");
    assert_eq!(count("attempt_started"), world.upstream.calls().len());
    assert_eq!((count("attempt_finished"), count("source_outcome")), (count("attempt_started"), 1));
    world.end().await;
}

#[test]
fn nothing_goes_unrecorded_where_the_log_must_have_everything() {
    assert!(!recording(Durability::Acked, OutboxFull::Count).is_consistent());
    assert!(acked().is_consistent() && recording(Durability::Pipelined, OutboxFull::Count).is_consistent());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_must_stop_ends_what_is_open_in_good_order() {
    let endless = serde_json::json!({"delay_per_chunk_ms": 50, "body": {"chat": {"words": 2000}}});
    let limited =
        serde_json::json!({"status": 429, "headers": [["retry-after", "4"]], "body": {"error": {"kind": "rl"}}});
    let scripted = |reply: serde_json::Value| Source::default().then(serde_json::from_value::<Reply>(reply).unwrap());
    for (source, stream, status, says) in [
        // Content has gone out; nothing has gone out; a limit is being waited out.
        (scripted(endless), true, StatusCode::OK, "stream_interrupted"),
        (slow(60_000), false, StatusCode::SERVICE_UNAVAILABLE, "gateway_not_ready"),
        (scripted(limited), true, StatusCode::TOO_MANY_REQUESTS, "rate_limited"),
    ] {
        let world = World::new(acked(), ROOM, source).await;
        let under_way = async || {
            let calls = world.upstream.calls();
            let content = calls.iter().any(|call| call.sent_bytes > 1_000);
            let waits = world.recorded().await.iter().any(|kind| kind == "attempt_finished");
            content || waits || (!stream && calls.len() == 1)
        };
        let stopping = async {
            let until = async {
                while !under_way().await {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), until).await.expect("it is under way");
            world.replica.stopping().cancel();
        };
        let began = Instant::now();
        let ((got, body), ()) = tokio::join!(world.ask(stream), stopping);
        assert_eq!(got, status, "{body}");
        assert!(body.contains(says) && !body.contains("[DONE]"), "{body}");
        assert!(began.elapsed() < Duration::from_secs(4), "it ends at once");
        assert_eq!(world.recorded().await.last().map(String::as_str), Some("request_finished"));
        world.end().await;
    }
}
