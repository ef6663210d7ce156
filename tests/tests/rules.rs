//! Rules of verdicts that operators publish: in force at every replica, recorded, compared first, taken back by one edit.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a suite fails by panicking")]

use std::time::Duration;

use serde_json::json;
use tokio::process::Command;
use waybill_testkit::upstream::{Reply, Source};
use waybill_testkit::{Fleet, until, wait_until};
use waybill_tests::Bench;

const KNOWN: Duration = Duration::from_secs(10);

/// Runs the command line with a document on standard input; gives its exit code and what it printed.
async fn cli(bench: &Bench, args: &[&str], document: Option<&serde_json::Value>) -> (i32, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("layer.json");
    let mut command = Command::new(Fleet::binary());
    command.args(args).env("WAYBILL_ADMIN_URL", bench.admin().url()).env("WAYBILL_ADMIN_TOKEN", bench.admin().token());
    if let Some(document) = document {
        std::fs::write(&file, document.to_string()).unwrap();
        command.arg(&file);
    }
    let output = tokio::time::timeout(Duration::from_secs(30), command.kill_on_drop(true).output()).await;
    let output = output.unwrap_or_else(|_| panic!("{args:?} doesn't end")).unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.code().unwrap_or(-1), text)
}

async fn done(bench: &Bench, args: &[&str], document: Option<&serde_json::Value>) -> String {
    let (code, text) = cli(bench, args, document).await;
    assert_eq!(code, 0, "{args:?}: {text}");
    bench.configured().await;
    text
}

/// A refusal that no shipped rule knows: the caller's fault by its status.
fn odd() -> Reply {
    Reply::json(418, json!({"error": {"message": "Tea only on this plan", "code": "house_plan"}}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_layer_is_compared_promoted_in_force_everywhere_and_reverted_by_one_edit() {
    let bench = Bench::of(3).await;
    let main = bench.channel("main", &["m"], 10, Source::default().then(odd())).await;
    bench.channel("backup", &["m"], 0, Source::default().saying("from the backup")).await;
    bench.configured().await;
    let refused = bench.chat(1, "m").send().await;
    assert_eq!(refused.status, 418, "{}", refused.text());

    // The candidate looks on: clients see the old verdict, the record says what would have been.
    let layer =
        json!({"rules": [{"id": "house/plan", "when": {"codes": ["house_plan"]}, "kind": "model_unavailable"}]});
    done(&bench, &["rules", "set", "--scope", "channel:main", "--candidate"], Some(&layer)).await;
    for proxy in 1..=3 {
        assert_eq!(bench.chat(proxy, "m").send().await.status, 418);
    }
    let story = bench.admin().history(bench.chat(2, "m").send().await.request()).await;
    let shadow = &story["attempts"][0]["shadow"];
    assert_eq!(
        (shadow["kind"].as_str(), shadow["rule"].as_str()),
        (Some("model_unavailable"), Some("channel:1/house/plan@v1"))
    );
    let report = wait_until(KNOWN, "all differences are summed up", async || {
        let report = bench.admin().get("/rules/shadow").await;
        until(report["differences"][0]["attempts"] == 4, || report.to_string()).map(|()| report)
    })
    .await;
    assert_eq!(report["differences"][0]["kind"], "invalid_request", "{report:#}");
    let (_, told) = cli(&bench, &["rules", "shadow"], None).await;
    assert!(told.contains("channel:1/house/plan@v1"), "{told}");

    // Promoted, it holds at every replica, and the label names it.
    done(&bench, &["rules", "promote", "--scope", "channel:main", "--reason", "as compared"], None).await;
    for proxy in 1..=3 {
        bench.upstream.set_source("main", Source::default().then(odd()));
        bench.admin().post(&format!("/sources/{main}/reset"), json!({})).await;
        bench.configured().await;
        let served = bench.chat(proxy, "m").served().await;
        assert_eq!(served.said(), "from the backup");
        let story = bench.admin().history(served.request()).await;
        assert_eq!(story["attempts"][0]["rule"], "channel:1/house/plan@v1", "{:#}", *story);
        assert!(story["attempts"][0]["shadow"].is_null());
    }

    // What can't be used changes nothing; taking it back is one edit.
    let before = bench.admin().config_position().await;
    let (code, text) = cli(&bench, &["rules", "set"], Some(&json!({"rules": [{"id": "x", "kind": "nothing"}]}))).await;
    assert_ne!(code, 0);
    assert!(text.contains("rule x"), "{text}");
    assert_eq!(bench.admin().config_position().await, before);
    let text = done(&bench, &["rules", "revert", "--scope", "channel:main"], None).await;
    assert!(text.contains("reverted"), "{text}");
    bench.admin().post(&format!("/sources/{main}/reset"), json!({})).await;
    bench.configured().await;
    for proxy in 1..=3 {
        assert_eq!(bench.chat(proxy, "m").send().await.status, 418);
    }
    let (_, told) = cli(&bench, &["rules", "show"], None).await;
    assert!(told.contains("channel:1"), "{told}");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_follows_from_a_kind_can_be_set_for_a_provider() {
    let bench = Bench::of(1).await;
    bench.channel("main", &["m"], 10, Source::default().then(Reply::error(413, "too_large"))).await;
    bench.channel("backup", &["m"], 0, Source::default().saying("from the backup")).await;
    bench.configured().await;
    assert_eq!(bench.chat(1, "m").send().await.status, 413, "nobody else is asked");
    let layer = json!({"kinds": {"payload_too_large": {"elsewhere": "anyone"}}});
    done(&bench, &["rules", "set", "--scope", "provider:openai", "--reason", "its edge caps bodies"], Some(&layer))
        .await;
    let served = bench.chat(1, "m").served().await;
    assert_eq!(served.said(), "from the backup");
    let story = bench.admin().history(served.request()).await;
    let rule = story["attempts"][0]["rule"].as_str().unwrap();
    assert!(rule.ends_with("+provider:openai@v1"), "{rule}");
    bench.fleet.stop().await;
}
