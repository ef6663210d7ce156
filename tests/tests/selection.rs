//! Which source serves: tiers, weights over three replicas, last resorts, what is disabled, and who may use which model.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use reqwest::Method;
use serde_json::json;
use waybill_testkit::Chat;
use waybill_testkit::upstream::Source;
use waybill_tests::Bench;

/// Sends `count` requests for `model`, in turn to all replicas, some at once; all must be served. Says how many calls
/// each source got.
async fn spread(bench: &Bench, model: &str, count: usize) -> BTreeMap<String, usize> {
    bench.upstream.forget_calls();
    let replicas = bench.fleet.proxies().len();
    let sent = (0..count).map(|n| {
        let chat = bench.chat(n % replicas + 1, model);
        async move { chat.served().await }
    });
    futures_util::stream::iter(sent).buffer_unordered(9).for_each(async |_| {}).await;
    let mut calls = BTreeMap::new();
    for call in bench.upstream.calls() {
        *calls.entry(call.source).or_default() += 1;
    }
    calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiers_and_weights_hold_over_the_fleet() {
    let bench = Bench::of(3).await;
    let weighted = async |name: &str, priority: i32, weight: u32| {
        bench.upstream.set_source(name, Source::default());
        bench.admin().channel(bench.spec(name).models(["m"]).priority(priority).weight(weight)).await
    };
    weighted("one", 10, 1).await;
    weighted("three", 10, 3).await;
    weighted("never-first", 10, 0).await;
    weighted("lower", 0, 100).await;
    bench.configured().await;

    // 1:3, within 3 % of the whole, though every replica counts for itself.
    let calls = spread(&bench, "m", 240).await;
    let (one, three) = (calls["one"], calls["three"]);
    assert_eq!((one + three, calls.len()), (240, 2), "{calls:?}");
    assert!((53..=67).contains(&one), "60 of 240 were due: {calls:?}");

    // What is disabled isn't asked by any replica, from the moment that all have the edit.
    bench.admin().post("/channels/three/disable", json!({})).await;
    bench.configured().await;
    assert_eq!(spread(&bench, "m", 30).await, BTreeMap::from([("one".to_owned(), 30)]));

    // A tier comes before the next one, and weight 0 is the last resort behind all of them.
    bench.admin().post("/channels/one/disable", json!({})).await;
    bench.configured().await;
    assert_eq!(spread(&bench, "m", 30).await, BTreeMap::from([("lower".to_owned(), 30)]));
    bench.admin().post("/channels/lower/disable", json!({})).await;
    bench.configured().await;
    assert_eq!(spread(&bench, "m", 30).await, BTreeMap::from([("never-first".to_owned(), 30)]));

    // Nobody is left: 503, and the history says why.
    bench.admin().post("/channels/never-first/disable", json!({})).await;
    bench.configured().await;
    let answer = bench.chat(1, "m").send().await;
    assert_eq!((answer.status, answer.code().as_deref()), (503, Some("no_source_available")), "{}", answer.text());
    let story = bench.admin().history(answer.request()).await;
    assert_eq!((story.state(), story.asked().len()), ("failed", 0), "{:#}", *story);
    assert!(story["selection_table"].to_string().contains("disabled"), "{:#}", *story);

    // Back again, with its old share.
    for name in ["one", "three"] {
        bench.admin().post(&format!("/channels/{name}/enable"), json!({})).await;
    }
    bench.configured().await;
    let calls = spread(&bench, "m", 120).await;
    assert!((24..=36).contains(&calls["one"]) && calls["one"] + calls["three"] == 120, "30 of 120 were due: {calls:?}");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_hold_on_every_replica() {
    let bench = Bench::of(3).await;
    bench.channel("a", &["m", "n"], 10, Source::default()).await;
    bench.channel("b", &["m"], 0, Source::default()).await;
    bench.configured().await;
    assert_eq!(spread(&bench, "m", 6).await, BTreeMap::from([("a".to_owned(), 6)]));

    // Other models, another priority, another address: each is what all replicas go by.
    bench.admin().edit_channel("a", json!({"models": ["n"]})).await;
    bench.configured().await;
    assert_eq!(spread(&bench, "m", 6).await, BTreeMap::from([("b".to_owned(), 6)]));
    bench.admin().edit_channel("a", json!({"models": ["m", "n"], "priority": -5})).await;
    bench.configured().await;
    assert_eq!(spread(&bench, "m", 6).await, BTreeMap::from([("b".to_owned(), 6)]));
    bench.admin().edit_channel("b", json!({"base_url": bench.upstream.base_url("elsewhere")})).await;
    bench.configured().await;
    assert_eq!(spread(&bench, "m", 6).await, BTreeMap::from([("elsewhere".to_owned(), 6)]));
    bench.admin().delete("/channels/b").await;
    bench.configured().await;
    assert_eq!(spread(&bench, "m", 6).await, BTreeMap::from([("a".to_owned(), 6)]));

    // Who edits what somebody else has edited meanwhile is refused, and nothing changes.
    let stale = json!({"expected_version": 1, "priority": 7});
    let reply = bench.admin().ask(Method::PATCH, "/channels/a", Some(&stale)).await;
    assert_eq!(reply.status, 409, "{}", reply.text);
    assert_eq!(reply.json()["actual_version"], 3, "{}", reply.text);
    assert_eq!(bench.admin().get("/channels/a").await["priority"], -5);

    // Every edit is remembered, with who made it and what changed.
    let edits = bench.admin().get("/config-history?entity=channel&limit=100").await;
    let edits = edits["edits"].as_array().unwrap().clone();
    assert_eq!(edits.len(), 2 + 4, "{edits:#?}");
    assert!(edits.iter().all(|edit| edit.to_string().contains("dev")), "the actor: {edits:#?}");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_groups_open_what_they_name_on_every_replica() {
    let bench = Bench::of(3).await;
    bench.admin().group("other").await;
    bench.upstream.set_source("a", Source::default());
    bench.admin().channel(bench.spec("a").models(["m", "n"])).await;
    bench.admin().channel(bench.spec("a").with("name", "b").models(["only-other"]).groups(["other"])).await;
    let narrow = bench.admin().key_with(json!({"name": "narrow", "group": "default", "models": ["m"]})).await;
    let other = bench.admin().key("other", "other").await;
    let expired =
        bench.admin().key_with(json!({"name": "old", "group": "default", "expires_at": "2020-01-01T00:00:00Z"})).await;
    bench.configured().await;

    let check = async |key: &str, model: &str, status: u16, code: Option<&str>| {
        for proxy in bench.fleet.proxies() {
            let answer = Chat::new(bench.fleet.http(), proxy, key, model).send().await;
            assert_eq!(
                (answer.status, answer.code().as_deref()),
                (status, code),
                "{model} at {proxy}: {}",
                answer.text()
            );
        }
    };
    let unknown = Some("model_not_found");
    check(&bench.key, "m", 200, None).await;
    check(&bench.key, "n", 200, None).await;
    check(&bench.key, "only-other", 404, unknown).await;
    check(&narrow, "m", 200, None).await;
    check(&narrow, "n", 404, unknown).await;
    check(&other, "only-other", 200, None).await;
    check(&other, "m", 404, unknown).await;
    check(&expired, "m", 401, Some("invalid_api_key")).await;

    bench.admin().post("/keys/narrow/disable", json!({})).await;
    bench.admin().post("/groups/other/disable", json!({})).await;
    bench.configured().await;
    check(&narrow, "m", 401, Some("invalid_api_key")).await;
    check(&other, "only-other", 403, Some("permission_denied")).await;
    bench.admin().post("/keys/narrow/enable", json!({})).await;
    bench.admin().post("/groups/other/enable", json!({})).await;
    bench.configured().await;
    check(&narrow, "m", 200, None).await;
    check(&other, "only-other", 200, None).await;
    bench.admin().delete("/keys/narrow").await;
    bench.configured().await;
    check(&narrow, "m", 401, Some("invalid_api_key")).await;
    bench.fleet.stop().await;
}
