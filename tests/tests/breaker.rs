//! What one replica learns, all go by: breakers, half-open probes, disabled sources, and what heals them.

#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a suite fails by panicking")]

use std::time::Duration;

use serde_json::{Value, json};
use waybill_testkit::upstream::{Chat as Script, Reply, Source};
use waybill_testkit::{FleetOptions, until, wait_until};
use waybill_tests::Bench;

/// How long the fleet may take to go by what one replica has seen. The figure itself is measured elsewhere.
const KNOWN_EVERYWHERE: Duration = Duration::from_secs(3);
const REPLICAS: [&str; 3] = ["proxy-1", "proxy-2", "proxy-3"];

/// Waits until every replica's own view shows this of a source.
async fn everywhere(bench: &Bench, source: &str, what: &str, deadline: Duration, holds: impl Fn(&Value) -> bool) {
    for replica in REPLICAS {
        wait_until(deadline, format_args!("{replica} has {source} {what}"), async || {
            let state = bench.fleet.source_state(replica, source).await;
            until(holds(&state), || state.to_string())
        })
        .await;
    }
}

async fn breaker(bench: &Bench, source: &str, phase: &str, deadline: Duration) {
    everywhere(bench, source, phase, deadline, |state| state["breaker"] == phase).await;
}

/// A policy whose source breaker opens at the fourth failure for `open_ms`, and whose model breakers never do.
async fn policy(bench: &Bench, open_ms: u64) {
    let source = json!({
        "min_outcomes": 4, "max_fail_milli": 500, "open_ms": open_ms, "open_max_ms": open_ms, "slow_start_ms": 1000,
    });
    bench.admin().policy(json!({"source_breaker": source, "model_breaker": {"consecutive_fails": 0}})).await;
}

/// Events of these types about a source, in the order of the log.
async fn events(bench: &Bench, source: &str, types: &[&str]) -> Vec<Value> {
    let id: u64 = source.trim_start_matches("channel:").parse().unwrap();
    let all = bench.fleet.events().await;
    let about = |event: &Value| event["data"]["scope"]["source"]["id"] == id;
    all.into_iter().filter(|event| types.contains(&event["type"].as_str().unwrap()) && about(event)).collect()
}

/// Asks every replica a few times; all must be served by `backup`, and `bad` must not be asked.
async fn avoided(bench: &Bench, proxies: impl IntoIterator<Item = usize>) {
    bench.upstream.forget_calls();
    for proxy in proxies {
        for _ in 0..3 {
            let answer = bench.chat(proxy, "m").served().await;
            assert_eq!(answer.said(), "from the backup", "proxy-{proxy}");
        }
    }
    assert!(bench.upstream.calls_of("bad").is_empty(), "{:?}", bench.upstream.calls_of("bad"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_breaker_opened_by_one_replica_is_honoured_by_all_also_after_a_restart() {
    let bench = Bench::of(3).await;
    policy(&bench, 600_000).await;
    let bad = bench.channel("bad", &["m"], 10, Source::default().then(Reply::error(500, "server_error"))).await;
    bench.channel("backup", &["m"], 0, Source::default().saying("from the backup")).await;
    bench.configured().await;

    for _ in 0..4 {
        let answer = bench.chat(1, "m").served().await;
        assert_eq!(answer.said(), "from the backup");
    }
    assert_eq!(bench.upstream.calls_of("bad").len(), 4, "asked until the fourth failure");
    // The replica that has seen it needn't wait for anybody.
    avoided(&bench, [1]).await;
    breaker(&bench, &bad, "open", KNOWN_EVERYWHERE).await;
    avoided(&bench, [1, 2, 3]).await;

    // A replica that starts knows it as soon as it is ready.
    for replica in ["proxy-2", "proxy-1"] {
        let before = bench.fleet.kill9(replica);
        bench.fleet.restarted(replica, before).await;
        let number = replica.trim_start_matches("proxy-").parse().unwrap();
        avoided(&bench, [number]).await;
    }

    // The history of a request says why it wasn't asked; the sources' list shows it; the log holds one opening.
    let story = bench.admin().history(bench.chat(3, "m").served().await.request()).await;
    assert_eq!(story.asked(), ["backup"], "{:#}", *story);
    assert!(story["selection_table"].to_string().contains("source_breaker_open"), "{:#}", *story);
    let live = bench.admin().source(&bad).await;
    assert_eq!((&live["live"]["scope"]["breaker"], &live["available"]), (&json!("open"), &json!(false)), "{live:#}");
    let opened = events(&bench, &bad, &["breaker_opened", "breaker_closed"]).await;
    assert_eq!(opened.len(), 1, "{opened:#?}");
    assert_eq!((&opened[0]["data"]["fail"], &opened[0]["data"]["ok"]), (&json!(4), &json!(0)), "{opened:#?}");

    // A projector that starts anew announces nothing twice and forgets nothing.
    let before = bench.fleet.kill9("projector-1");
    bench.fleet.restarted("projector-1", before).await;
    avoided(&bench, [1, 2, 3]).await;
    let opened = events(&bench, &bad, &["breaker_opened", "breaker_closed"]).await;
    assert_eq!(opened.len(), 1, "{opened:#?}");

    // An edit of the credential makes what was seen before worthless.
    bench.upstream.set_source("bad", Source::default().saying("healed"));
    bench.admin().edit_channel("bad", json!({"credential": "sk-new"})).await;
    bench.configured().await;
    for proxy in 1..=3 {
        assert_eq!(bench.chat(proxy, "m").served().await.said(), "healed", "proxy-{proxy}");
    }
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_breaker_is_probed_by_one_request_of_the_whole_fleet() {
    let bench = Bench::of(3).await;
    policy(&bench, 1_500).await;
    let bad = bench.channel("bad", &["m"], 10, Source::default().then(Reply::error(500, "server_error"))).await;
    bench.channel("backup", &["m"], 0, Source::default().saying("from the backup")).await;
    bench.configured().await;
    for _ in 0..4 {
        bench.chat(1, "m").served().await;
    }
    breaker(&bench, &bad, "half_open", Duration::from_secs(10)).await;

    // It works again, but slowly, so that many requests come while the probe is under way.
    let slow = Reply::chat(Script::saying("healed")).delay_head(1_500);
    bench.upstream.set_source("bad", Source::default().then(slow).then(Reply::chat(Script::saying("healed"))));
    bench.upstream.forget_calls();
    let burst = (0..30).map(|n| {
        let chat = bench.chat(n % 3 + 1, "m");
        async move { chat.served().await }
    });
    let answers = futures_util::future::join_all(burst).await;
    let calls = bench.upstream.calls_of("bad");
    let probe = calls.first().unwrap_or_else(|| panic!("nobody probed it"));
    let decided = probe.answered.expect("the probe was answered");
    let meanwhile = calls.iter().filter(|call| call.received < decided).count();
    assert_eq!(meanwhile, 1, "one probe for the whole fleet: {calls:?}");
    let by_probe: Vec<&str> =
        answers.iter().filter(|answer| answer.said() == "healed").map(|answer| answer.request()).collect();
    assert!(!by_probe.is_empty(), "the probe's own client got its answer");

    breaker(&bench, &bad, "closed", KNOWN_EVERYWHERE).await;
    for proxy in 1..=3 {
        assert_eq!(bench.chat(proxy, "m").served().await.said(), "healed", "proxy-{proxy}");
    }
    let told = wait_until(Duration::from_secs(10), "the breaker's story is in the log", async || {
        let types = ["breaker_opened", "breaker_half_opened", "probe_finished", "breaker_closed"];
        let told = events(&bench, &bad, &types).await;
        until(told.iter().any(|event| event["type"] == "breaker_closed"), || format!("{told:#?}")).map(|()| told)
    })
    .await;
    let types: Vec<&str> = told.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["breaker_opened", "breaker_half_opened", "probe_finished", "breaker_closed"], "{told:#?}");
    let openings: Vec<&Value> =
        told.iter().map(|e| e["data"].get("opening").unwrap_or(&e["data"]["probe"]["opening"])).collect();
    assert!(openings.iter().all(|opening| *opening == openings[0]), "{told:#?}");
    let story = bench.admin().history(by_probe[0]).await;
    assert_eq!(story.attempts()[0].why, "probe", "{:#}", *story);
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_probe_opens_again() {
    let bench = Bench::of(3).await;
    policy(&bench, 1_000).await;
    let bad = bench.channel("bad", &["m"], 10, Source::default().then(Reply::error(500, "server_error"))).await;
    bench.channel("backup", &["m"], 0, Source::default().saying("from the backup")).await;
    bench.configured().await;
    for _ in 0..4 {
        bench.chat(2, "m").served().await;
    }
    for round in 1..=2 {
        breaker(&bench, &bad, "half_open", Duration::from_secs(10)).await;
        bench.upstream.forget_calls();
        // The client of a failed probe is served all the same.
        assert_eq!(bench.chat(3, "m").served().await.said(), "from the backup");
        assert_eq!(bench.upstream.calls_of("bad").len(), 1, "round {round}");
    }
    let opened = wait_until(Duration::from_secs(10), "three openings", async || {
        let opened = events(&bench, &bad, &["breaker_opened"]).await;
        until(opened.len() == 3, || format!("{opened:#?}")).map(|()| opened)
    })
    .await;
    let times: Vec<&Value> = opened.iter().map(|event| &event["data"]["times"]).collect();
    assert_eq!(times, [1, 2, 3], "{opened:#?}");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_credential_disables_everywhere_until_a_probe_or_an_edit_heals() {
    let options = FleetOptions { probe_interval: Duration::from_millis(500), ..FleetOptions::default() };
    let bench = Bench::start(options).await;
    let wants = |key: &str| Source::default().with_key(key).saying("healed");
    let bad = bench.channel("bad", &["m"], 10, wants("sk-right")).await;
    bench.channel("backup", &["m"], 0, Source::default().saying("from the backup")).await;
    bench.configured().await;

    assert_eq!(bench.chat(1, "m").served().await.said(), "from the backup");
    everywhere(&bench, &bad, "disabled", KNOWN_EVERYWHERE, |state| state["disabled"] == true).await;
    for proxy in 1..=3 {
        let answer = bench.chat(proxy, "m").served().await;
        let story = bench.admin().history(answer.request()).await;
        assert_eq!(story.asked(), ["backup"], "proxy-{proxy}: {:#}", *story);
    }
    let live = bench.admin().source(&bad).await;
    assert_eq!(live["live"]["disabled"]["kind"], "auth_invalid", "{live:#}");

    // The upstream takes the key after all: a probe finds out, without any client's request.
    bench.upstream.set_source("bad", wants("sk-of-bad"));
    everywhere(&bench, &bad, "enabled", Duration::from_secs(30), |state| state["disabled"] == false).await;
    for proxy in 1..=3 {
        assert_eq!(bench.chat(proxy, "m").served().await.said(), "healed", "proxy-{proxy}");
    }
    let told = events(&bench, &bad, &["source_disabled", "source_enabled"]).await;
    let types: Vec<&str> = told.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["source_disabled", "source_enabled"], "{told:#?}");

    // And again, but now a human gives it another key: it serves from the moment the edit is known.
    bench.upstream.set_source("bad", wants("sk-newest"));
    assert_eq!(bench.chat(2, "m").served().await.said(), "from the backup");
    everywhere(&bench, &bad, "disabled", KNOWN_EVERYWHERE, |state| state["disabled"] == true).await;
    bench.admin().edit_channel("bad", json!({"credential": "sk-newest"})).await;
    bench.configured().await;
    for proxy in 1..=3 {
        assert_eq!(bench.chat(proxy, "m").served().await.said(), "healed", "proxy-{proxy}");
    }
    bench.fleet.stop().await;
}
