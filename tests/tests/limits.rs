//! Limits that upstreams tell of, where nobody else is left: short ones are waited out, long ones are tried again by one
//! request at a time, and nobody is asked in between.

#![expect(clippy::indexing_slicing, reason = "a suite fails by panicking")]

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use waybill_testkit::upstream::{Reply, Source};
use waybill_testkit::{until, wait_until};
use waybill_tests::Bench;

const REPLICAS: [&str; 3] = ["proxy-1", "proxy-2", "proxy-3"];

fn limited(retry_after: &str) -> Reply {
    Reply::error(429, "rate_limit_exceeded").header("retry-after", retry_after)
}

/// Waits until every replica knows so many blocks of a source.
async fn blocks(bench: &Bench, source: &str, count: usize) {
    for replica in REPLICAS {
        wait_until(Duration::from_secs(5), format!("{replica} knows {count} blocks of {source}"), async || {
            let state = bench.fleet.source_state(replica, source).await;
            until(state["blocks"].as_array().map(Vec::len) == Some(count), || state.to_string())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_limit_of_the_last_source_is_waited_out_by_every_replica() {
    let bench = Bench::of(3).await;
    // The first request is told of a limit that it won't wait for; what it learns, all go by.
    let hasty = bench.admin().key("hasty", "default").await;
    bench.admin().policy_of("key:hasty", json!({"request": {"patience_ms": 0}})).await;
    let source = bench.channel("only", &["m"], 0, Source::default().then(limited("2")).then(Reply::default())).await;
    bench.configured().await;
    let chat = |proxy: usize| waybill_testkit::Chat::new(bench.fleet.http(), bench.fleet.proxy(proxy), &hasty, "m");
    let answer = chat(1).send().await;
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("2")), "{}", answer.text());
    blocks(&bench, &source, 1).await;

    // Who has no patience is told at once, without asking; who has, waits: whichever replica it asks, streamed or not.
    let answer = chat(2).send().await;
    assert_eq!(answer.status, 429, "{}", answer.text());
    assert_eq!(bench.upstream.calls().len(), 1);
    let patient = (0..6).map(|n| {
        let chat = bench.chat(n % 3 + 1, "m");
        if n < 3 { chat.streamed() } else { chat }
    });
    let answers = join_all(patient.map(async |chat| chat.served().await)).await;
    for answer in &answers {
        let story = bench.admin().history(answer.request()).await;
        assert_eq!(story.attempts()[0].why, "limit_ended", "{:#}", *story);
    }
    let calls = bench.upstream.calls();
    assert_eq!(calls.len(), 7);
    let told = calls[0].answered.unwrap();
    let waited = calls[1..].iter().map(|call| call.received.duration_since(told)).min().unwrap();
    assert!(waited >= Duration::from_secs(2), "asked {waited:?} after the limit was told");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_limit_of_the_last_source_is_tried_again_by_one_request_of_the_fleet_at_a_time() {
    let bench = Bench::of(3).await;
    bench.admin().policy_of("global", json!({"selector": {"retry_limited_ms": 2000}})).await;
    let days = limited("1587827");
    let slowly = days.clone().delay_head(300);
    let source =
        bench.channel("only", &["m"], 0, Source::default().then(days).then(slowly).then(Reply::default())).await;
    bench.configured().await;
    let answer = bench.chat(1, "m").send().await;
    assert_eq!(answer.status, 429, "{}", answer.text());
    blocks(&bench, &source, 1).await;
    let refused = async |proxy: usize| {
        let answer = bench.chat(proxy, "m").send().await;
        assert_eq!((answer.status, answer.code().as_deref()), (429, Some("rate_limited")), "{}", answer.text());
        answer.header("retry-after").unwrap().parse::<u64>().unwrap()
    };
    let told = join_all((0..9).map(|n| refused(n % 3 + 1))).await;
    assert!(told.iter().all(|seconds| *seconds <= 2), "it may be tried again sooner than in {told:?} s");
    assert_eq!(bench.upstream.calls().len(), 1, "nobody was asked before it may be tried again");

    // All at once: one of the whole fleet tries, and is told again; the others are told to come back soon.
    wait_until(Duration::from_secs(10), "somebody tries again", async || {
        let told = join_all((0..9).map(|n| refused(n % 3 + 1))).await;
        assert!(told.iter().filter(|seconds| **seconds > 2).count() <= 1, "{told:?}");
        until(bench.upstream.calls().len() > 1, || "nobody has".to_owned())
    })
    .await;
    assert_eq!(bench.upstream.calls().len(), 2);
    join_all((0..9).map(|n| refused(n % 3 + 1))).await;
    assert_eq!(bench.upstream.calls().len(), 2, "the next try is due two seconds later");

    // The limit is over long before its time: the next try is served, and with it everybody.
    let served = wait_until(Duration::from_secs(10), "a try is served", async || {
        let answer = bench.chat(2, "m").send().await;
        if answer.status == 200 { Ok(answer) } else { Err(answer.text()) }
    })
    .await;
    blocks(&bench, &source, 0).await;
    for proxy in 1..=3 {
        bench.chat(proxy, "m").served().await;
    }
    let story = bench.admin().history(served.request()).await;
    assert_eq!(story.attempts()[0].why, "limit_retried", "{:#}", *story);
    let lifted = wait_until(Duration::from_secs(5), "the end of the block is announced", async || {
        let events = bench.fleet.events().await;
        events.into_iter().find(|event| event["type"] == "block_lifted").ok_or("it isn't")
    })
    .await;
    assert_eq!(lifted["data"]["strength"], "hint", "{lifted}");
    assert!(lifted["data"]["cause"].is_object() || lifted["data"]["cause"].is_string(), "{lifted}");
    let set: Vec<Value> = bench.fleet.events().await.into_iter().filter(|event| event["type"] == "block_set").collect();
    assert_eq!(lifted["data"]["block"], set.last().unwrap()["data"]["block"], "{set:#?}");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_while_a_limit_is_waited_out_doesnt_lengthen_it_for_others() {
    let bench = Bench::of(3).await;
    let script = Source::default().times(2, &limited("3")).then(Reply::default());
    let source = bench.channel("only", &["m"], 0, script).await;
    bench.configured().await;
    // Both are told of the limit and wait for its end; one of them doesn't stay.
    let leaves = async {
        let chat = bench.chat(1, "m");
        let left = tokio::time::timeout(Duration::from_millis(1_500), chat.send()).await;
        assert!(left.is_err(), "it was answered before it left");
    };
    let stays = async { bench.chat(1, "m").streamed().served().await };
    let ((), answer) = tokio::join!(leaves, stays);
    let story = bench.admin().history(answer.request()).await;
    assert_eq!(story.asked().len(), 2, "{:#}", *story);
    // Nor does it outlast itself: whoever waited tells of it when its time is over.
    blocks(&bench, &source, 0).await;
    for proxy in 1..=3 {
        bench.chat(proxy, "m").served().await;
    }
    bench.fleet.stop().await;
}
