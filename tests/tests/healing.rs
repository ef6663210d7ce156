//! Sources that a verdict disables, and how they come back: by probes, by an operator's wish, by checks. And the whole
//! story in one command.

#![expect(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic, reason = "a suite fails by panicking")]

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::process::Command;
use waybill_testkit::upstream::{Reply, Source};
use waybill_testkit::{Fleet, FleetOptions, until, wait_until};
use waybill_tests::Bench;

const KNOWN: Duration = Duration::from_secs(10);

async fn cli(bench: &Bench, args: &[&str]) -> String {
    let mut command = Command::new(Fleet::binary());
    command.args(args).env("WAYBILL_ADMIN_URL", bench.admin().url()).env("WAYBILL_ADMIN_TOKEN", bench.admin().token());
    let output = tokio::time::timeout(Duration::from_secs(30), command.kill_on_drop(true).output()).await;
    let output = output.unwrap_or_else(|_| panic!("{args:?} doesn't end")).unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{args:?}: {text}");
    text
}

fn dead() -> Reply {
    Reply::json(
        401,
        json!({"error": {"message": "Incorrect API key provided", "type": "invalid_request_error",
            "code": "invalid_api_key"}}),
    )
}

fn dead_source() -> Source {
    Source::default().then(dead())
}

async fn is_disabled(bench: &Bench, proxy: usize, source: &str) -> bool {
    bench.fleet.source_state(&format!("proxy-{proxy}"), source).await["disabled"] == true
}

/// All three replicas know a source to be disabled, or not to be.
async fn all_know(bench: &Bench, source: &str, disabled: bool) {
    for proxy in 1..=3 {
        wait_until(KNOWN, format_args!("proxy-{proxy} knows that {source} is disabled: {disabled}"), async || {
            until(is_disabled(bench, proxy, source).await == disabled, || "not yet".to_owned())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_whose_key_dies_is_disabled_everywhere_probed_and_back_once_its_key_is_mended() {
    let interval = Duration::from_millis(700);
    let bench = Bench::start(FleetOptions { proxies: 3, probe_interval: interval, ..FleetOptions::default() }).await;
    let main = bench.channel("main", &["m"], 10, dead_source()).await;
    bench.channel("backup", &["m"], 0, Source::default().saying("from the backup")).await;
    bench.configured().await;

    let answer = bench.chat(1, "m").served().await;
    let died = Instant::now();
    assert_eq!(answer.said(), "from the backup", "the client notices nothing");
    all_know(&bench, &main, true).await;
    println!("known to be disabled at all replicas within {:?} of the answer", died.elapsed());
    wait_until(KNOWN, "it was probed in vain", async || {
        let source = bench.admin().source(&main).await;
        let tries = source["probe"]["tries"].as_u64().unwrap_or(0);
        until(tries >= 1 && source["probe"]["last"] == "auth_invalid", || source.to_string())
    })
    .await;
    let source = bench.admin().source(&main).await;
    assert!(["disabled", "probing"].contains(&source["state"].as_str().unwrap()), "{source:#}");
    let calls = bench.upstream.calls_of("main").len();
    for proxy in 1..=3 {
        assert_eq!(bench.chat(proxy, "m").served().await.said(), "from the backup");
    }
    assert!(bench.upstream.calls_of("main").len() <= calls + 1, "clients' requests don't go there");

    // Mended at the provider: nobody edits anything, a probe finds out.
    bench.upstream.set_source("main", Source::default().saying("from main"));
    all_know(&bench, &main, false).await;
    assert_eq!(bench.admin().source(&main).await["state"], "active");
    for proxy in 1..=3 {
        assert_eq!(bench.chat(proxy, "m").served().await.said(), "from main");
    }

    let story = wait_until(KNOWN, "the story is told", async || {
        let story = cli(&bench, &["source", "story", "main"]).await;
        until(story.contains("enabled again"), || story.clone()).map(|()| story)
    })
    .await;
    for told in [
        "channel created by",
        "disabled because of auth_invalid; comes back by probe",
        &format!("caused by request {}", answer.request()),
        "HTTP 401",
        "said: Incorrect API key provided",
        "probed: doesn't work (auth_invalid)",
        "probed: works (success)",
        "enabled again",
    ] {
        assert!(story.contains(told), "{told:?} is missing:\n{story}");
    }
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_with_every_key_disabled_heals_and_an_operator_need_not_wait() {
    let hour = Duration::from_secs(3_600);
    let bench = Bench::start(FleetOptions { proxies: 3, probe_interval: hour, ..FleetOptions::default() }).await;
    let mut all = Vec::new();
    for name in ["one", "two"] {
        all.push(bench.channel(name, &["m"], 0, dead_source()).await);
    }
    bench.configured().await;
    let answer = bench.chat(1, "m").send().await;
    assert_eq!(answer.status, 502, "{}", answer.text());
    for source in &all {
        all_know(&bench, source, true).await;
    }
    let answer = bench.chat(2, "m").send().await;
    assert_eq!((answer.status, answer.code().as_deref()), (503, Some("no_source_available")), "{}", answer.text());

    for name in ["one", "two"] {
        bench.upstream.set_source(name, Source::default().saying(name));
    }
    let refused = bench.admin().ask(reqwest::Method::POST, "/sources/two/probe", Some(&json!({"model": "m"}))).await;
    assert_eq!(refused.status, 422, "{}", refused.json());
    for name in ["one", "two"] {
        cli(&bench, &["source", "probe", name, "--reason", "paid the bill"]).await;
    }
    for source in &all {
        all_know(&bench, source, false).await;
    }
    for proxy in 1..=3 {
        bench.chat(proxy, "m").served().await;
    }
    let refused = bench.admin().ask(reqwest::Method::POST, "/sources/one/probe", Some(&json!({}))).await;
    assert_eq!((refused.status, refused.json()["code"].as_str()), (409, Some("not_disabled")));
    bench.fleet.stop().await;
}

fn banned() -> Reply {
    Reply::json(403, json!({"error": {"code": "account_deactivated", "message": "The account has been deactivated."}}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_banned_is_never_probed_and_models_that_do_not_chat_hide_no_good_channel() {
    let interval = Duration::from_millis(300);
    let bench = Bench::start(FleetOptions { proxies: 1, probe_interval: interval, ..FleetOptions::default() }).await;
    bench.channel("lost", &["m"], 10, Source::default().then(banned())).await;
    let images = ["gpt-image-1", "retired", "m"];
    let mixed = bench.channel("mixed", &images, 5, dead_source()).await;
    bench.channel("backup", &["m"], 0, Source::default().saying("from the backup")).await;
    bench.configured().await;
    assert_eq!(bench.chat(1, "m").served().await.said(), "from the backup");
    let refused = wait_until(KNOWN, "the ban is known", async || {
        let refused = bench.admin().ask(reqwest::Method::POST, "/sources/lost/probe", Some(&json!({}))).await;
        until(refused.json()["code"] == "operator_only", || refused.json().to_string()).map(|()| refused.json())
    })
    .await;
    assert!(refused["detail"].as_str().unwrap().contains("banned"), "{refused:#}");

    // The key is mended, but the first model that a probe asks for is gone.
    let gone = json!({"error": {"message": "The model `retired` does not exist", "code": "model_not_found"}});
    bench.upstream.forget_calls();
    bench.upstream.set_source(
        "mixed",
        Source::default().then(Reply::json(404, gone)).then(Reply::default()).saying("from mixed"),
    );
    wait_until(KNOWN, "mixed is back", async || {
        let source = bench.admin().source(&mixed).await;
        until(source["state"] == "active", || source.to_string())
    })
    .await;
    let asked: Vec<Value> = bench.upstream.calls_of("mixed").iter().map(|call| call.json()["model"].clone()).collect();
    assert!(!asked.contains(&json!("gpt-image-1")), "{asked:?}");
    assert!(bench.upstream.calls_of("lost").is_empty(), "never probed");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_are_no_evidence_unless_they_are_meant_to_be() {
    let bench = Bench::of(1).await;
    let watched = bench.channel("watched", &["m"], 10, dead_source()).await;
    let counted = bench.channel("counted", &["m"], 10, dead_source()).await;
    bench.admin().edit_channel("watched", json!({"probe": {"check_every_s": 10}})).await;
    bench.admin().edit_channel("counted", json!({"probe": {"check_every_s": 10, "checks_count": true}})).await;
    let state = async |source: &str| bench.admin().source(source).await["state"].clone();
    wait_until(KNOWN, "the check that counts has disabled its channel", async || {
        until(state(&counted).await == "disabled", || "not yet".to_owned())
    })
    .await;
    wait_until(KNOWN, "the other's story tells of the check", async || {
        let story = bench.admin().get(&format!("/sources/{watched}/story")).await;
        until(story.to_string().contains("checked by chat: doesn't work (auth_invalid)"), || story.to_string())
    })
    .await;
    assert_eq!(state(&watched).await, "active", "a check alone disables nothing");
    bench.fleet.stop().await;
}
