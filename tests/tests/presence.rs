//! What replicas learn of each other by their beats: how busy sources are for the whole fleet.

#![expect(clippy::indexing_slicing, reason = "a suite fails by panicking")]

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use waybill_testkit::upstream::{After, Chat, Reply, Source, Then};
use waybill_testkit::{RawClient, source_text, until, wait_until};
use waybill_tests::Bench;

/// Waits until a proxy knows how many attempts the others have under way at a source.
async fn hears(bench: &Bench, proxy: &str, source: &str, elsewhere: u64) {
    let what = format!("{proxy} has heard of {elsewhere} attempts elsewhere");
    wait_until(Duration::from_secs(15), what, async || {
        let state = bench.fleet.source_state(proxy, source).await;
        until(state["in_flight_elsewhere"].as_u64() == Some(elsewhere), || state.to_string())
    })
    .await;
}

/// Waits until proxy 2 plans by such a load factor of a source.
async fn plans_by(bench: &Bench, source: &str, load: u64) {
    wait_until(Duration::from_secs(15), format!("{source} has the load factor {load}"), async || {
        let answer = bench.chat(2, "m").served().await;
        let story = bench.admin().history(answer.request()).await;
        let rows = story["selection_table"]["content"].as_array().cloned().unwrap_or_default();
        let of = |row: &&Value| source_text(&row["source"]) == source;
        let factor = rows.iter().find(of).and_then(|row| row["factors"]["load"].as_u64());
        until(factor == Some(load), || story["selection_table"].to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_busy_for_one_replica_gets_less_from_all() {
    let bench = Bench::of(3).await;
    bench.upstream.set_source("small", Source::default());
    bench.upstream.set_source("large", Source::default());
    let limited = |name: &str, most: u32| bench.spec(name).with("limits", json!({"max_concurrent": most}));
    let small = bench.admin().channel(limited("small", 4).models(["m", "hangs"])).await;
    bench.admin().channel(limited("large", 400).models(["m"])).await;
    bench.configured().await;
    for proxy in ["proxy-1", "proxy-2", "proxy-3"] {
        wait_until(Duration::from_secs(10), format!("{proxy} knows the others"), async || {
            let state = bench.fleet.state(proxy).await;
            until(state["replicas"] == 3, || state["replicas"].to_string())
        })
        .await;
    }
    plans_by(&bench, &small, 100).await;

    // Three of four places are taken by streams through the first replica.
    let hang = Reply::chat(Chat::words(5)).fault(After::Frames(3), Then::Hang);
    bench.upstream.set_source("small", Source::default().times(3, &hang));
    let streams = join_all((0..3).map(async |_| {
        let mut client = RawClient::connect(bench.fleet.proxy(1)).await;
        client.chat(&bench.key, br#"{"model":"hangs","stream":true,"messages":[{"role":"user","content":"x"}]}"#).await;
        client.see("word2").await;
        client
    }))
    .await;
    bench.upstream.set_source("small", Source::default());
    hears(&bench, "proxy-2", &small, 3).await;
    hears(&bench, "proxy-3", &small, 3).await;
    hears(&bench, "proxy-1", &small, 0).await;
    plans_by(&bench, &small, 20).await;
    bench.upstream.forget_calls();
    for n in 0..24 {
        bench.chat(2 + n % 2, "m").served().await;
    }
    let to_small = bench.upstream.calls_of("small").len();
    assert!((2..=6).contains(&to_small), "a sixth of 24 was due: {to_small}");

    // What a dead replica had under way counts until its last beat has expired.
    let dead = bench.fleet.kill9("proxy-1");
    hears(&bench, "proxy-2", &small, 0).await;
    hears(&bench, "proxy-3", &small, 0).await;
    plans_by(&bench, &small, 100).await;
    bench.fleet.restarted("proxy-1", dead).await;
    drop(streams);
    bench.fleet.stop().await;
}
