//! The command line, as a person or a script uses it: what it makes, what it shows, and how it ends.

#![expect(clippy::expect_used, clippy::panic, reason = "a suite fails by panicking")]

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use waybill_testkit::Fleet;
use waybill_testkit::upstream::{Reply, Source};
use waybill_tests::Bench;

/// The command line, connected to a fleet by its environment.
struct Cli<'a> {
    bench: &'a Bench,
    folder: &'a Path,
}

impl Cli<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(Fleet::binary());
        command.args(args).current_dir(self.folder).stdin(Stdio::null()).kill_on_drop(true);
        command
            .env("WAYBILL_ADMIN_URL", self.bench.admin().url())
            .env("WAYBILL_ADMIN_TOKEN", self.bench.admin().token());
        command.env("CREDENTIAL_OF_A", "sk-of-a");
        command
    }

    async fn run(&self, args: &[&str]) -> Output {
        let output = tokio::time::timeout(Duration::from_secs(30), self.command(args).output()).await;
        output.unwrap_or_else(|_| panic!("{args:?} doesn't end")).expect("it runs")
    }

    /// Runs it; it must succeed. Gives what it printed.
    async fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args).await;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{args:?}: {}\n{out}\n{err}", output.status);
        out.into_owned()
    }

    async fn json(&self, args: &[&str]) -> Value {
        let args = [args, &["--json"]].concat();
        let text = self.ok(&args).await;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
    }

    /// Runs it; it must end with `code`. Gives what it said of that.
    async fn fails(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args).await;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{args:?}\n{out}\n{err}");
        err.into_owned()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configuration_is_made_shown_and_guarded() {
    let bench = Bench::of(1).await;
    let folder = tempfile::tempdir().expect("a folder");
    let cli = Cli { bench: &bench, folder: folder.path() };
    let url = bench.upstream.base_url("a");
    bench.upstream.set_source("a", Source::default().with_key("sk-of-a"));

    let said = cli
        .ok(&[
            "channel",
            "create",
            "a",
            "--base-url",
            &url,
            "--allow-private",
            "--model",
            "m",
            "--model",
            "n=upstream-n",
            "--group",
            "default",
            "--priority",
            "7",
            "--weight",
            "3",
            "--credential-env",
            "CREDENTIAL_OF_A",
            "--reason",
            "the first one",
        ])
        .await;
    assert!(said.contains("created") && !said.contains("sk-of-a"), "{said}");
    let shown = cli.json(&["channel", "show", "a"]).await;
    assert_eq!((&shown["priority"], &shown["weight"], &shown["version"]), (&json!(7), &json!(3), &json!(1)), "{shown}");
    assert_eq!(shown["models"][1]["upstream"], "upstream-n", "{shown}");
    let listed = cli.ok(&["channel", "list"]).await;
    assert!(listed.contains("a") && listed.contains(&url) && !listed.contains("sk-of-a"), "{listed}");
    let tested = cli.json(&["channel", "test", "a", "--model", "n"]).await;
    assert_eq!((&tested["ok"], &tested["upstream_model"]), (&json!(true), &json!("upstream-n")), "{tested}");
    let fetched = cli.ok(&["channel", "fetch-models", "a"]).await;
    assert!(fetched.contains("demo-small"), "{fetched}");

    cli.ok(&["channel", "edit", "a", "--weight", "5"]).await;
    // Somebody who has seen version 1 only is told so, and nothing changes.
    let refused = cli.fails(1, &["channel", "edit", "a", "--weight", "9", "--expected-version", "1"]).await;
    assert!(refused.contains("version") || refused.contains("409"), "{refused}");
    assert_eq!(cli.json(&["channel", "show", "a"]).await["weight"], 5);
    cli.ok(&["channel", "disable", "a"]).await;
    assert_eq!(cli.json(&["channel", "show", "a"]).await["enabled"], false);
    cli.ok(&["channel", "enable", "a"]).await;

    let issued = cli.ok(&["key", "issue", "ci", "--group", "default"]).await;
    assert!(issued.contains("wb-"), "{issued}");
    let keys = cli.ok(&["key", "list"]).await;
    assert!(keys.contains("ci") && keys.contains("suite"), "{keys}");
    cli.ok(&["group", "create", "team"]).await;
    assert!(cli.ok(&["group", "list"]).await.contains("team"));
    let policy = cli.ok(&["policy", "get"]).await;
    assert!(policy.contains("source_breaker") || policy.contains("source"), "{policy}");
    let edits = cli.json(&["config-history", "--entity", "channel"]).await;
    assert_eq!(edits["edits"].as_array().map(Vec::len), Some(4), "{edits}");
    assert!(edits.to_string().contains("the first one"), "{edits}");

    // Wrong use is told apart from a refusal.
    cli.fails(2, &["channel", "create", "b"]).await;
    cli.fails(2, &["channel", "edit", "a"]).await;
    cli.fails(2, &["no-such-command"]).await;
    let unknown = cli.fails(1, &["channel", "show", "none"]).await;
    assert!(unknown.contains("none"), "{unknown}");
    let mut nowhere = cli.command(&["channel", "list"]);
    let nowhere =
        nowhere.env_remove("WAYBILL_ADMIN_URL").env_remove("WAYBILL_ADMIN_TOKEN").output().await.expect("it runs");
    assert_eq!(nowhere.status.code(), Some(2), "{}", String::from_utf8_lossy(&nowhere.stderr));
    let mut stranger = cli.command(&["channel", "list"]);
    let stranger = stranger.env("WAYBILL_ADMIN_TOKEN", "wb-nobody").output().await.expect("it runs");
    assert_eq!(stranger.status.code(), Some(1), "{}", String::from_utf8_lossy(&stranger.stderr));
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_is_tried_and_applied_as_a_whole() {
    let bench = Bench::of(1).await;
    let folder = tempfile::tempdir().expect("a folder");
    let cli = Cli { bench: &bench, folder: folder.path() };
    let url = bench.upstream.base_url("a");
    let manifest = format!(
        "[[groups]]\nname = \"team\"\n\n[[channels]]\nname = \"a\"\nbase_url = \"{url}\"\nallow_private = true\n\
         models = [\"m\"]\ngroups = [\"team\"]\ncredential_env = \"CREDENTIAL_OF_A\"\n\n[[keys]]\nname = \"ci\"\ngroup = \"team\"\n"
    );
    std::fs::write(folder.path().join("waybill.toml"), &manifest).expect("a file");

    let tried = cli.ok(&["apply", "waybill.toml", "--dry-run"]).await;
    assert!(tried.contains("+ channel a created") && tried.contains("3 changes, not made"), "{tried}");
    assert_eq!(bench.admin().get("/channels").await["channels"], json!([]));
    let applied = cli.json(&["apply", "waybill.toml"]).await;
    assert_eq!(applied["steps"].as_array().map(Vec::len), Some(3), "{applied}");
    let token = applied["tokens"]["ci"].as_str().expect("a token").to_owned();
    bench.configured().await;
    let chat = waybill_testkit::Chat::new(bench.fleet.http(), bench.fleet.proxy(1), &token, "m");
    chat.served().await;

    // The same again changes nothing; one wrong entry changes nothing either.
    let again = cli.ok(&["apply", "waybill.toml"]).await;
    assert!(again.contains("nothing to change"), "{again}");
    let exported = cli.ok(&["export"]).await;
    std::fs::write(folder.path().join("exported.toml"), &exported).expect("a file");
    let again = cli.ok(&["apply", "exported.toml"]).await;
    assert!(again.contains("nothing to change"), "{again}\n{exported}");
    let wrong = manifest.replace("name = \"team\"\n\n", "name = \"new-team\"\n\n[[groups]]\nname = \"team\"\n\n")
        + "\n[[channels]]\nname = \"b\"\nbase_url = \"ftp://nowhere\"\n";
    std::fs::write(folder.path().join("wrong.toml"), wrong).expect("a file");
    let refused = cli.fails(1, &["apply", "wrong.toml"]).await;
    assert!(refused.contains("base_url"), "{refused}");
    assert!(!bench.admin().get("/groups").await.to_string().contains("new-team"));
    std::fs::write(folder.path().join("broken.toml"), "[[channels").expect("a file");
    cli.fails(2, &["apply", "broken.toml"]).await;
    std::fs::write(folder.path().join("unknown.toml"), "[[channels]]\nname = \"a\"\nwieght = 2\n").expect("a file");
    let refused = cli.fails(1, &["apply", "unknown.toml"]).await;
    assert!(refused.contains("wieght"), "{refused}");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_told_and_events_are_shown_as_they_come() {
    let bench = Bench::of(1).await;
    let folder = tempfile::tempdir().expect("a folder");
    let cli = Cli { bench: &bench, folder: folder.path() };
    let failing = bench.channel("failing", &["m"], 10, Source::default().then(Reply::error(500, "server_error"))).await;
    bench.channel("serving", &["m"], 0, Source::default()).await;
    bench.configured().await;

    let mut tail = cli.command(&["tail", "--type", "attempt_finished,request_finished", "--json"]);
    let mut tail = tail.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut lines = BufReader::new(tail.stdout.take().expect("its output")).lines();
    // The feed tells what comes after it was opened, so ask until it has told something.
    let mut told = Vec::new();
    let mut request = String::new();
    while told.is_empty() {
        request = bench.chat(1, "m").served().await.request().to_owned();
        if let Ok(line) = tokio::time::timeout(Duration::from_secs(2), lines.next_line()).await {
            told.push(line.expect("a line").expect("the feed goes on"));
        }
    }
    let story = bench.admin().history(&request).await;
    assert_eq!(story.asked(), ["failing", "serving"], "{:#}", *story);
    let ended = |line: &String| line.contains("request_finished") && line.contains(&request);
    while !told.iter().any(ended) {
        let line = tokio::time::timeout(Duration::from_secs(5), lines.next_line()).await.expect("a line in time");
        told.push(line.expect("a line").expect("the feed goes on"));
    }
    for line in &told {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(event["position"].is_string() && event["event"]["type"].is_string(), "{line}");
    }
    tail.kill().await.expect("it ends");

    let history = cli.ok(&["history", &request]).await;
    for part in ["admitted: m", "failing", "server_error", "code/server", "serving", "finished: succeeded"] {
        assert!(history.contains(part), "{part} in:\n{history}");
    }
    assert!(cli.ok(&["history", "last"]).await.contains(&request));
    assert_eq!(cli.json(&["history", &request]).await["request"]["request_id"], request.as_str());
    let unknown = cli.fails(1, &["history", "00000000-0000-7000-8000-000000000000"]).await;
    assert!(unknown.contains("00000000"), "{unknown}");

    let requests = cli.ok(&["requests", "--state", "succeeded", "--source", &failing]).await;
    assert!(requests.contains(&request), "{requests}");
    assert!(cli.ok(&["requests", "--state", "failed"]).await.contains("no requests"));
    cli.fails(1, &["requests", "--state", "nonsense"]).await;
    let sources = cli.ok(&["sources"]).await;
    assert!(sources.contains("failing") && sources.contains("serving"), "{sources}");
    let listed = cli.json(&["sources"]).await;
    assert_eq!(listed["sources"].as_array().map(Vec::len), Some(2), "{listed}");
    let status = cli.ok(&["status"]).await;
    assert!(status.contains("catalogue") && status.contains("read_model_traffic"), "{status}");
    bench.fleet.stop().await;
}
