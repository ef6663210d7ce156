//! What has a bound and reaches it: the traffic stream, and the outboxes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use reqwest::Method;
use serde_json::Value;
use waybill_testkit::upstream::{Reply, Source};
use waybill_testkit::{FleetOptions, until, wait_until};
use waybill_tests::Bench;

/// Clients that ask at once.
const AT_ONCE: usize = 12;

async fn with(arguments: &[(&str, String)]) -> Bench {
    let arguments = arguments.iter().flat_map(|(name, value)| [(*name).to_owned(), value.clone()]).collect();
    let bench = Bench::start(FleetOptions { proxies: 2, arguments, ..FleetOptions::default() }).await;
    bench.channel("a", &["m"], 0, Source::default()).await;
    bench.configured().await;
    bench
}

/// Value of a metric of a process.
async fn metric(bench: &Bench, process: &str, name: &str) -> u64 {
    let text = bench.fleet.metrics(process).await;
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.and_then(|value| value.parse().ok()).unwrap_or_default()
}

/// All requests in the read model that are in this state, page by page.
async fn all_in_state(bench: &Bench, state: &str) -> BTreeSet<String> {
    let (mut found, mut cursor) = (BTreeSet::new(), String::new());
    loop {
        let page = bench.admin().get(&format!("/requests?state={state}&limit=500{cursor}")).await;
        let rows = page.get("requests").and_then(Value::as_array).into_iter().flatten();
        let ids = rows.filter_map(|row| row.get("request_id")?.as_str());
        found.extend(ids.map(str::to_owned));
        match page.get("next_cursor").and_then(Value::as_str) {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_traffic_stream_that_is_full_refuses_nothing_and_loses_nothing() {
    let size = 1_500_000;
    let bench = with(&[("--traffic-max-bytes", size.to_string())]).await;
    let asking = (0..1_500).map(|n| {
        let chat = bench.chat(n % 2 + 1, "m");
        async move { chat.served().await.request().to_owned() }
    });
    let asked: BTreeSet<String> = stream::iter(asking).buffer_unordered(AT_ONCE).collect().await;
    assert_eq!(asked.len(), 1_500);
    wait_until(Duration::from_secs(60), "every request has a history that ends", async || {
        let found = all_in_state(&bench, "succeeded").await;
        until(found == asked, || format!("{} of {}", found.len(), asked.len()))
    })
    .await;
    assert!(metric(&bench, "upkeep-1", "waybill_upkeep_traffic_purged_messages").await > 0, "it was filled");
    assert_eq!(metric(&bench, "upkeep-1", "waybill_upkeep_traffic_max_bytes").await, size);
    for proxy in ["proxy-1", "proxy-2"] {
        assert!(!bench.fleet.metrics(proxy).await.contains("waybill_refusals_total{"), "{proxy} refused something");
    }
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_outbox_refuses_new_requests_cleanly_and_finishes_the_open_ones() {
    let bench = with(&[("--outbox-max-bytes", (128 << 10).to_string())]).await;
    let dripping: Reply = serde_json::from_value(serde_json::json!({
        "body": {"chat": {"words": 40}}, "delay_per_chunk_ms": 150,
    }))
    .expect("a reply");
    bench.channel("slow", &["slow"], 0, Source::default().then(dripping)).await;
    bench.configured().await;
    let open = bench.chat(1, "slow").streamed();
    let filling = async {
        wait_until(Duration::from_secs(5), "the open request is under way", async || {
            until(bench.upstream.in_flight("slow") == 1, || "not yet")
        })
        .await;
        bench.fleet.sigstop("nats-server");
        let mut served = Vec::new();
        let refused = loop {
            let answer = bench.chat(1, "m").send().await;
            match answer.status {
                200 => served.push(answer.request().to_owned()),
                _ => break answer,
            }
            assert!(served.len() < 500, "the outbox never became full");
        };
        (served, refused)
    };
    let (finished, (mut served, refused)) = tokio::join!(open.served(), filling);
    assert_eq!((refused.status, refused.code().as_deref()), (503, Some("outbox_full")), "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    assert!(finished.text().ends_with("data: [DONE]\n\n"), "what was open goes on to its end");
    assert!(!served.is_empty());
    let calls = bench.upstream.calls_of("a").len();
    assert_eq!(calls, served.len(), "what is refused isn't dispatched");
    // The other replica has room of its own.
    served.push(bench.chat(2, "m").served().await.request().to_owned());
    served.push(finished.request().to_owned());

    bench.fleet.sigcont("nats-server");
    for request in &served {
        assert_eq!(bench.admin().history(request).await.state(), "succeeded", "{request}");
    }
    wait_until(Duration::from_secs(30), "there is room again", async || {
        let answer = bench.chat(1, "m").send().await;
        until(answer.status == 200, || answer.text())
    })
    .await;
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_log_must_have_it_nothing_is_begun_without_the_log() {
    let bench = with(&[("--durability", "acked".to_owned())]).await;
    let first = bench.chat(1, "m").served().await.request().to_owned();
    bench.fleet.sigstop("nats-server");
    let begun = Instant::now();
    let refused = bench.chat(1, "m").send().await;
    assert_eq!((refused.status, refused.code().as_deref()), (503, Some("log_unavailable")), "{}", refused.text());
    assert!(begun.elapsed() < Duration::from_secs(5), "after {:?}", begun.elapsed());
    assert_eq!(bench.upstream.calls_of("a").len(), 1, "nothing was dispatched");
    bench.fleet.sigcont("nats-server");
    let story = bench.admin().history(refused.request()).await;
    assert_eq!(story.state(), "failed");
    let reply = bench.admin().ask(Method::GET, &format!("/requests/{}", refused.request()), None).await;
    assert_eq!(reply.json()["attempts"].as_array().map(Vec::len), Some(0), "{}", reply.text);
    assert_eq!(bench.admin().history(&first).await.state(), "succeeded");
    wait_until(Duration::from_secs(30), "requests are served again", async || {
        let answer = bench.chat(1, "m").send().await;
        until(answer.status == 200, || answer.text())
    })
    .await;
    let none: Option<Value> = bench.admin().requests("state=open").await.pop();
    assert_eq!(none, None);
    bench.fleet.stop().await;
}
