//! The metrics that operators watch: each is there, counts what it says, and has few labels.

#![expect(clippy::unwrap_used, reason = "a suite fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::json;
use waybill_testkit::upstream::{Reply, Source};
use waybill_testkit::{until, wait_until};
use waybill_tests::Bench;

/// All samples, by their names with their labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

/// Every label that there may be, with the most values that each may have.
const LABELS: [(&str, usize); 17] = [
    ("state", 6),
    ("stream", 2),
    ("code", 40),
    ("kind", 40),
    ("reason", 16),
    ("at", 2),
    ("le", 24),
    ("fold", 3),
    ("to", 6),
    ("of", 2),
    ("scope", 2),
    ("limit", 8),
    ("gate", 3),
    ("from", 4),
    ("outcome", 3),
    ("strength", 3),
    ("phase", 2),
];

fn labels(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for name in samples(text).keys() {
        let Some((_, inner)) = name.split_once('{') else { continue };
        for pair in inner.trim_end_matches('}').split("\",") {
            let (label, value) = pair.split_once("=\"").unwrap();
            found.entry(label.to_owned()).or_default().insert(value.trim_end_matches('"').to_owned());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_counts_what_it_says_and_has_few_labels() {
    let bench = Bench::of(1).await;
    let breaker = json!({"consecutive_fails": 2, "open_ms": 600_000, "open_max_ms": 600_000});
    bench.admin().policy(json!({"source_breaker": breaker, "model_breaker": {"consecutive_fails": 0}})).await;
    let ill = || Source::default().then(Reply::error(500, "server_error"));
    let refuses = Source::default().then(Reply::error(400, "content_policy_violation"));
    bench.channel("name-of-ill", &["model-of-two"], 10, ill()).await;
    bench.channel("name-of-well", &["model-of-two", "model-of-last"], 0, Source::default()).await;
    bench.channel("name-of-down", &["model-of-first"], 0, ill()).await;
    bench.channel("name-of-refusing", &["model-of-refused"], 0, refuses).await;
    bench
        .admin()
        .post("/routes", json!({"name": "name-of-route", "targets": ["model-of-first", "model-of-last"]}))
        .await;
    bench.configured().await;

    for streamed in [false, true] {
        bench.chat(1, "model-of-two").with("stream", streamed).served().await;
    }
    for _ in 0..3 {
        bench.chat(1, "model-of-last").served().await;
    }
    bench.chat(1, "name-of-route").served().await;
    assert_eq!(bench.chat(1, "model-of-refused").send().await.status, 400);
    assert_eq!(bench.chat(1, "model-of-nobody").send().await.status, 404);

    let text = wait_until(Duration::from_secs(5), "all requests have ended", async || {
        let text = bench.fleet.metrics("proxy-1").await;
        until(samples(&text).get("waybill_requests_in_flight") == Some(&0.0), || text.clone()).map(|()| text)
    })
    .await;
    let counted = samples(&text);
    let check = |name: &str, expected: f64| assert_eq!(counted.get(name), Some(&expected), "{name} in\n{text}");
    check("waybill_requests_total{state=\"succeeded\",stream=\"false\"}", 5.0);
    check("waybill_requests_total{state=\"succeeded\",stream=\"true\"}", 1.0);
    check("waybill_requests_total{state=\"refused\",stream=\"false\"}", 1.0);
    check("waybill_refusals_total{code=\"model_not_found\"}", 1.0);
    // Two failed over; the route's first source was tried once more, since it had no sibling, before the next target.
    check("waybill_attempts_per_request_count", 7.0);
    check("waybill_attempts_per_request_bucket{le=\"1.0\"}", 4.0);
    check("waybill_attempts_per_request_bucket{le=\"2.0\"}", 6.0);
    check("waybill_attempts_per_request_sum", 11.0);
    check("waybill_fallbacks_total{reason=\"upstream_5xx\"}", 3.0);
    check("waybill_attempt_failures_total{kind=\"server_error\"}", 4.0);
    check("waybill_attempt_failures_total{kind=\"policy_refusal\"}", 1.0);
    check("waybill_degraded_total", 1.0);
    check("waybill_request_duration_seconds_count", 7.0);
    check("waybill_added_latency_seconds_count", 7.0);
    let there = [
        "waybill_retries_suppressed_total",
        "waybill_sources_disabled",
        "waybill_permits_total{from=\"store\"}",
        "waybill_sticky_total{outcome=\"rebind\"}",
    ];
    assert!(there.iter().all(|name| counted.contains_key(*name)), "{text}");

    let folded = wait_until(Duration::from_secs(10), "the opening is announced", async || {
        let text = bench.fleet.metrics("projector-1").await;
        let opened = samples(&text).get("waybill_transitions_total{to=\"breaker_opened\",of=\"source\"}").copied();
        until(opened >= Some(1.0), || text.clone()).map(|()| text)
    })
    .await;

    for text in [text, folded, bench.fleet.metrics("upkeep-1").await, bench.fleet.metrics("admin-1").await] {
        for (label, values) in labels(&text) {
            let most = LABELS.iter().find(|(name, _)| *name == label).map(|(_, most)| *most);
            assert!(most.is_some_and(|most| values.len() <= most), "{label}: {values:?}");
        }
        assert!(!text.contains("name-of-") && !text.contains("model-of-"), "names are for events and traces:\n{text}");
    }
    bench.fleet.stop().await;
}
