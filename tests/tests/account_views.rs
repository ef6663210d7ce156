//! What operators see of a pool over a real fleet: of an account that is full, one that its upstream told to wait, one
//! whose login is gone and one that serves, `waybill accounts` and `waybill why` say the truth.

#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a suite fails by panicking")]

use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::process::Command;
use waybill_testkit::upstream::{Reply, Source, Terms};
use waybill_testkit::{Chat, Fleet, FleetOptions, until, wait_until};
use waybill_tests::Bench;

const MODEL: &str = "m";
const SOON: Duration = Duration::from_secs(20);
/// How long the request lasts that makes an account full.
const HELD_MS: u64 = 200_000;
/// When the window begins anew that is used up.
const RESETS_IN_S: u64 = 10_800;

async fn account(bench: &Bench, name: &str, priority: i32, credential: Value, source: Source) {
    bench.upstream.set_source(name, source);
    let body = json!({
        "name": name, "base_url": bench.upstream.base_url(name), "credential": credential, "models": [MODEL],
        "groups": ["default"], "priority": priority, "limits": {"max_concurrent": 1, "requests_per_minute": 30},
        "allow_private": true,
    });
    bench.admin().post("/accounts", body).await;
}

/// A request of a conversation of its own.
fn chat(bench: &Bench, proxy: usize, words: &str) -> Chat {
    bench.chat(proxy, MODEL).with("messages", json!([{"role": "user", "content": words}]))
}

async fn cli(bench: &Bench, args: &[&str]) -> String {
    let mut command = Command::new(Fleet::binary());
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    command.env("WAYBILL_ADMIN_URL", bench.admin().url()).env("WAYBILL_ADMIN_TOKEN", bench.admin().token());
    let output = tokio::time::timeout(SOON, command.output()).await.unwrap().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{args:?}: {out}\n{err}");
    out.into_owned()
}

/// Why a source is as it is, once that is as expected.
async fn why(bench: &Bench, name: &str, expected: impl Fn(&Value) -> bool) -> Value {
    wait_until(SOON, format_args!("{name} is as expected"), async || {
        let why = bench.admin().get(&format!("/sources/{name}/why")).await;
        until(expected(&why), || format!("{why:#}")).map(|()| why)
    })
    .await
}

async fn pool(bench: &Bench) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    account(bench, "full", 30, json!("token-full"), Source::default().then(Reply::default().delay_head(HELD_MS))).await;
    let error = json!({"type": "usage_limit_reached", "message": "The usage limit has been reached",
        "plan_type": "plus", "resets_in_seconds": RESETS_IN_S});
    let used_up = Reply::json(429, json!({ "error": error }))
        .header("x-codex-primary-used-percent", "100")
        .header("x-codex-primary-window-minutes", "300")
        .header("x-codex-primary-reset-after-seconds", RESETS_IN_S.to_string());
    account(bench, "told", 20, json!("token-told"), Source::default().then(used_up)).await;
    let tokens = bench.upstream.issuer().login("dead", Terms::default());
    bench.upstream.issuer().revoke("dead");
    let file = json!({"access_token": tokens.access, "refresh_token": tokens.refresh, "expires_in": 1,
        "token_endpoint": bench.upstream.token_endpoint(), "scope": "chat"});
    account(bench, "dead", 10, file, Source::default().with_login("dead")).await;
    let served = Reply::default()
        .header("anthropic-ratelimit-unified-5h-status", "allowed")
        .header("anthropic-ratelimit-unified-5h-utilization", "0.42")
        .header("anthropic-ratelimit-unified-5h-reset", (now + 7_200).to_string());
    account(bench, "well", 0, json!("token-well"), Source::default().then(served).over_again()).await;
}

async fn looked_at(bench: &Bench) {
    wait_until(SOON, "the first is full", async || {
        until(bench.upstream.in_flight("full") == 1, || "not yet".to_owned())
    })
    .await;
    let moved = chat(bench, 2, "the one that moves").served().await.request().to_owned();

    let full = why(bench, "full", |why| why["standing"] == "full" && !why["moved"][0]["last"].is_null()).await;
    assert_eq!((&full["serving"], &full["limits"]["in_flight"]), (&json!(false), &json!(1)), "{full:#}");
    assert!(full["says"].to_string().contains("it is full: 1 of 1 in flight"), "{full:#}");
    let of_it = &full["moved"][0];
    assert_eq!((&of_it["why"], &of_it["last"][0]), (&json!("concurrency"), &json!(moved)), "{full:#}");

    let caused = |why: &Value| why["reasons"][0]["evidence"][0]["cause"]["request"] == moved.as_str();
    let told = why(bench, "told", |why| why["standing"] == "out" && caused(why)).await;
    let reason = &told["reasons"][0];
    assert_eq!(reason["evidence"][0]["cause"]["status"], 429, "{told:#}");
    // The block lasts until the window begins anew.
    let left = reason["left_s"].as_u64().unwrap();
    assert!((RESETS_IN_S - 120..=RESETS_IN_S).contains(&left), "{told:#}");
    assert_eq!((&reason["why"], &reason["kind"]), (&json!("hard_blocked"), &json!("window_exhausted")), "{told:#}");
    let told =
        why(bench, "told", |why| why["headroom"][0]["exhausted"] == true && why["moved"][0]["why"] == "429").await;
    assert_eq!((&told["headroom"][0]["name"], &told["headroom"][0]["minutes"]), (&json!("primary"), &json!(300)));

    let dead = why(bench, "dead", |why| why["reasons"].to_string().contains("invalid_grant")).await;
    let reason = &dead["reasons"][0];
    assert_eq!(
        (&dead["standing"], &reason["why"], &reason["ends"]),
        (&json!("out"), &json!("disabled_by_verdict"), &json!("login"))
    );
    assert!(dead["says"].to_string().contains("`waybill account edit dead --token-file FILE`"), "{dead:#}");
    assert!(!dead["says"].to_string().contains("upkeep's next refresh"), "it isn't refreshed any more: {dead:#}");
    let well = why(bench, "well", |why| !why["headroom"][0].is_null()).await;
    assert_eq!((&well["serving"], &well["headroom"][0]["used_percent"]), (&json!(true), &json!(42.0)), "{well:#}");
    assert_eq!(well["reasons"], json!([]), "{well:#}");

    let pools = bench.admin().get("/pools").await;
    let pool = &pools["pools"][0];
    assert_eq!(pool["standing"], json!({"full": 1, "out": 2, "serving": 1}), "{pools:#}");
    assert_eq!(pool["max_concurrent"], 4, "{pool:#}");
    let account = |name: &str| -> Value {
        pools["accounts"].as_array().unwrap().iter().find(|account| account["name"] == name).unwrap().clone()
    };
    assert_eq!(account("well")["last"][0]["kind"], "success", "{pools:#}");
    assert_eq!((&account("told")["last"][0]["status"], &account("full")["rpm_used"]), (&json!(429), &json!(1)));
    let told = cli(bench, &["accounts"]).await;
    for part in
        ["1/1", "primary 100%", "5h 42%", "invalid_grant", "pool default: 4 accounts (1 full, 2 out, 1 serving)"]
    {
        assert!(told.contains(part), "{part} in:\n{told}");
    }
    let told = cli(bench, &["why", "told"]).await;
    for part in [
        "told doesn't serve.",
        "because of window_exhausted",
        "HTTP 429",
        &moved,
        "1 request of the last 15 min went elsewhere because of 429",
        "it ends by itself, or `waybill source lift account:",
    ] {
        assert!(told.contains(part), "{part} in:\n{told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_see_why_each_account_of_a_pool_serves_or_does_not() {
    let bench = Bench::start(FleetOptions { proxies: 2, ..FleetOptions::default() }).await;
    pool(&bench).await;
    wait_until(SOON, "the login is known to be gone", async || {
        let events = bench.fleet.events().await;
        until(events.iter().any(|event| event["type"] == "source_disabled"), || "not yet".to_owned())
    })
    .await;
    bench.configured().await;
    let holding = chat(&bench, 1, "the one that holds");
    tokio::select! {
        answer = holding.send() => panic!("it ended too early: {}", answer.text()),
        () = looked_at(&bench) => {}
    }
    // The client that held it has left: it serves again.
    let full = why(&bench, "full", |why| why["serving"] == true).await;
    assert_eq!(full["limits"]["in_flight"], 0, "{full:#}");
    bench.fleet.stop().await;
}
