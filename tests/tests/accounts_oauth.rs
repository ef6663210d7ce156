//! Accounts whose tokens expire, over real fleets and an OAuth server that counts, rotates and fails: refreshed once by the
//! fleet, lost by no kill, served through outages as long as they hold, given up with a reason when the login is gone.

#![expect(clippy::expect_used, reason = "a suite fails by panicking")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use waybill_testkit::upstream::{Issuer, Source, Terms, Tokens, Trouble};
use waybill_testkit::{Chat, Fleet, FleetOptions, Stream, until, wait_until};
use waybill_tests::Bench;

const SOON: Duration = Duration::from_secs(20);
const ACCOUNT: &str = "account:1";
const MODEL: &str = "m";

async fn bench(upkeeps: u16) -> Bench {
    let arguments = vec!["--upkeeps".to_owned(), upkeeps.to_string()];
    Bench::start(FleetOptions { proxies: 3, arguments, ..FleetOptions::default() }).await
}

/// Tokens as a login tool would have written them; they say of themselves that they live so long.
fn token_file(bench: &Bench, tokens: &Tokens, seconds: u64) -> Value {
    json!({
        "access_token": tokens.access, "refresh_token": tokens.refresh, "expires_in": seconds,
        "token_endpoint": bench.upstream.token_endpoint(), "scope": "chat",
    })
}

/// Creates the account `plan`, whose upstream takes nothing but valid tokens of that login.
async fn account(bench: &Bench, tokens: &Tokens, seconds: u64) {
    bench.upstream.set_source("plan", Source::default().with_login("plan").saying("from the plan"));
    let body = json!({
        "name": "plan", "base_url": bench.upstream.base_url("plan"), "credential": token_file(bench, tokens, seconds),
        "models": [MODEL], "groups": ["default"], "priority": 10, "allow_private": true,
    });
    bench.admin().post("/accounts", body).await;
}

/// Creates another account of lower priority, whose token never expires.
async fn spare(bench: &Bench) {
    bench.upstream.set_source("spare", Source::default().with_key("spare-token").saying("from the spare"));
    let body = json!({
        "name": "spare", "base_url": bench.upstream.base_url("spare"), "credential": "spare-token",
        "models": [MODEL], "groups": ["default"], "priority": 0, "allow_private": true,
    });
    bench.admin().post("/accounts", body).await;
}

fn issuer(bench: &Bench) -> &Issuer {
    bench.upstream.issuer()
}

/// A request of a conversation of its own: one that goes on stays where it was served.
fn chat(bench: &Bench, proxy: usize) -> Chat {
    static CONVERSATIONS: AtomicU64 = AtomicU64::new(0);
    let words = format!("conversation {}", CONVERSATIONS.fetch_add(1, Ordering::Relaxed));
    bench.chat(proxy, MODEL).with("messages", json!([{"role": "user", "content": words}]))
}

/// Who served a request: the scripted sources say it.
async fn said(bench: &Bench, proxy: usize) -> String {
    let answer = chat(bench, proxy).send().await;
    match answer.status {
        200 => answer.said(),
        status => format!("status {status}: {}", String::from_utf8_lossy(&answer.body)),
    }
}

async fn events_of(bench: &Bench, kind: &str) -> Vec<Value> {
    bench.fleet.events().await.into_iter().filter(|event| event["type"] == kind).collect()
}

async fn told(bench: &Bench, kind: &str) -> Value {
    wait_until(SOON, format_args!("{kind} is told"), async || {
        events_of(bench, kind).await.into_iter().next().ok_or_else(|| "not yet".to_owned())
    })
    .await
}

/// Waits until the OAuth server has given so many further tokens.
async fn refreshed(bench: &Bench, times: usize) {
    wait_until(SOON, format_args!("{times} refreshes"), async || {
        let calls = issuer(bench).calls();
        until(issuer(bench).refreshed("plan") >= times, || format!("{calls:?}"))
    })
    .await;
}

/// Where an upkeep process keeps what it got and couldn't store.
fn kept(bench: &Bench, upkeep: &str) -> PathBuf {
    bench.fleet.dir().join(format!("data/{upkeep}/refreshed/1.json"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_token_is_refreshed_once_by_the_fleet_and_requests_wait_for_it() {
    let bench = bench(2).await;
    let tokens = issuer(&bench).login("plan", Terms { access_life: Duration::from_secs(8), ..Terms::default() });
    account(&bench, &tokens, 8).await;
    bench.configured().await;
    assert_eq!(said(&bench, 1).await, "from the plan");
    // Nobody refreshes ahead while the token expires.
    for upkeep in ["upkeep-1", "upkeep-2"] {
        bench.fleet.sigstop(upkeep);
    }
    tokio::time::sleep(Duration::from_secs(8)).await;
    let begun = Instant::now();
    let asked = futures_util::future::join_all((0..30).map(|n| said(&bench, 1 + n % 3)));
    let awake = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        for upkeep in ["upkeep-1", "upkeep-2"] {
            bench.fleet.sigcont(upkeep);
        }
    };
    let (answers, ()) = tokio::join!(asked, awake);
    assert!(answers.iter().all(|said| said == "from the plan"), "{answers:?}");
    assert!(begun.elapsed() > Duration::from_millis(700), "they have waited");
    assert_eq!(issuer(&bench).turned_away(), Vec::<String>::new(), "none met a 401");
    assert_eq!(issuer(&bench).refreshed("plan"), 1, "{:?}", issuer(&bench).calls());
    let metrics = bench.fleet.metrics("proxy-1").await;
    assert!(!metrics.contains("waybill_token_waits_total 0\n"), "{metrics}");
    assert!(metrics.contains("waybill_token_waits_in_vain_total 0\n"), "{metrics}");
    let event = told(&bench, "credential_refreshed").await;
    assert_eq!(event["data"]["scope"]["source"], json!({"kind": "account", "id": 1}));
    let token = bench.admin().source(ACCOUNT).await["token"].clone();
    assert!(token["revision"].as_u64() >= event["data"]["credential_revision"].as_u64(), "{token}");
    assert_eq!((&token["refreshable"], &token["expired"]), (&json!(true), &json!(false)), "{token}");
    // And so on, ahead of the end now, with requests all the time.
    let begun = Instant::now();
    let mut served = 0;
    while begun.elapsed() < Duration::from_secs(12) {
        assert_eq!(said(&bench, 1 + served % 3).await, "from the plan");
        served += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(issuer(&bench).turned_away(), Vec::<String>::new());
    let calls = issuer(&bench).calls();
    assert!(calls.iter().all(|call| call.outcome == "refreshed") && (2..=4).contains(&calls.len()), "{calls:?}");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upkeep_killed_between_getting_a_rotated_token_and_storing_it_does_not_lose_the_account() {
    let bench = bench(2).await;
    let tokens = issuer(&bench).login("plan", Terms::default());
    issuer(&bench).trouble(Trouble::SlowAnswer(Duration::from_secs(3)));
    // It says that it has nearly expired, so that it is refreshed at once.
    account(&bench, &tokens, 1).await;
    bench.configured().await;
    refreshed(&bench, 1).await;
    // The log goes away before the answer comes: what was got can be stored nowhere but on disk.
    bench.fleet.take_away("nats-server");
    let holder = wait_until(SOON, "the next tokens are on somebody's disk", async || {
        let holds = |upkeep: &&str| kept(&bench, upkeep).exists();
        ["upkeep-1", "upkeep-2"].into_iter().find(holds).ok_or("nobody's")
    })
    .await;
    let before = bench.fleet.kill9(holder);
    let meanwhile = said(&bench, 1).await;
    assert!(meanwhile.starts_with("status 503"), "there is nothing valid to ask with: {meanwhile}");
    // Both come back, and the other one may be the first that sees an expired token: somebody has begun, so that it uses
    // nothing that is used up.
    bench.fleet.give_back();
    bench.fleet.restarted(holder, before).await;
    let event = told(&bench, "credential_refreshed").await;
    assert_eq!((&event["producer"], &event["data"]["why"]), (&json!(holder), &json!("recovered")));
    for proxy in 1..=3 {
        wait_until(SOON, format_args!("proxy-{proxy} serves again"), async || {
            let said = said(&bench, proxy).await;
            until(said == "from the plan", || said.clone())
        })
        .await;
    }
    assert!(!kept(&bench, holder).exists(), "it is in the log now");
    assert_eq!(issuer(&bench).calls().len(), 1, "nobody asked again");
    assert!(events_of(&bench, "credential_refresh_failed").await.is_empty());
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_an_outage_of_the_oauth_server_the_account_serves_as_long_as_its_token_holds() {
    let bench = bench(1).await;
    let tokens = issuer(&bench).login("plan", Terms { access_life: Duration::from_secs(10), ..Terms::default() });
    issuer(&bench).trouble(Trouble::Status(503));
    account(&bench, &tokens, 10).await;
    spare(&bench).await;
    let created = Instant::now();
    bench.configured().await;
    while created.elapsed() < Duration::from_secs(7) {
        assert_eq!(said(&bench, 1).await, "from the plan");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    // The first ones wait for what doesn't come; then nobody does.
    let waited = futures_util::future::join_all((1..=3).map(|proxy| said(&bench, proxy))).await;
    assert!(waited.iter().all(|said| said == "from the spare"), "{waited:?}");
    let begun = Instant::now();
    for proxy in 1..=3 {
        assert_eq!(said(&bench, proxy).await, "from the spare");
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let failed = told(&bench, "credential_refresh_failed").await;
    assert_eq!(failed["data"]["final"], false);
    issuer(&bench).trouble(Trouble::None);
    wait_until(SOON, "the account serves again", async || {
        let said = said(&bench, 1).await;
        until(said == "from the plan", || said.clone())
    })
    .await;
    assert_eq!(issuer(&bench).turned_away(), Vec::<String>::new(), "an expired token is never sent");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_refused_before_its_time_is_refreshed_and_the_request_goes_on_with_the_next() {
    let bench = bench(1).await;
    let tokens = issuer(&bench).login("plan", Terms::default());
    account(&bench, &tokens, 3_600).await;
    bench.configured().await;
    assert_eq!(said(&bench, 1).await, "from the plan");
    issuer(&bench).expire("plan");
    // There is nobody else to ask: the same account serves it, and nobody notices.
    let answer = chat(&bench, 2).send().await;
    assert_eq!((answer.status, answer.said().as_str()), (200, "from the plan"));
    let story = bench.admin().history(answer.request()).await;
    assert_eq!(story.kinds(), ["auth_refreshable", "success"], "{story:?}");
    wait_until(SOON, "all replicas have the next token", async || {
        let said = futures_util::future::join_all((1..=3).map(|proxy| said(&bench, proxy))).await;
        until(said.iter().all(|said| said == "from the plan"), || format!("{said:?}"))
    })
    .await;
    assert_eq!(issuer(&bench).refreshed("plan"), 1);
    assert!(events_of(&bench, "block_set").await.is_empty(), "the request served says that all is well");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_token_whose_next_one_does_not_come_is_a_block_until_it_does() {
    let bench = bench(1).await;
    let tokens = issuer(&bench).login("plan", Terms::default());
    account(&bench, &tokens, 3_600).await;
    spare(&bench).await;
    bench.configured().await;
    assert_eq!(said(&bench, 1).await, "from the plan");
    issuer(&bench).trouble(Trouble::Status(503));
    issuer(&bench).expire("plan");
    assert_eq!(said(&bench, 3).await, "from the spare", "the refused attempt isn't the client's");
    issuer(&bench).trouble(Trouble::None);
    wait_until(SOON, "it serves again", async || {
        let said = said(&bench, 1).await;
        until(said == "from the plan", || said.clone())
    })
    .await;
    let lifted = told(&bench, "block_lifted").await;
    assert_eq!(lifted["data"]["scope"]["source"], json!({"kind": "account", "id": 1}));
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_is_gone_takes_the_account_out_with_its_reason_until_the_next_login() {
    let bench = bench(1).await;
    let tokens = issuer(&bench).login("plan", Terms::default());
    issuer(&bench).revoke("plan");
    account(&bench, &tokens, 1).await;
    spare(&bench).await;
    let failed = told(&bench, "credential_refresh_failed").await;
    assert_eq!((&failed["data"]["final"], &failed["data"]["code"]), (&json!(true), &json!("invalid_grant")));
    let disabled = told(&bench, "source_disabled").await;
    assert_eq!(disabled["data"]["recovery"], "operator");
    wait_until(SOON, "every replica knows it", async || {
        let mut states = Vec::new();
        for proxy in 1..=3 {
            states.push(bench.fleet.source_state(&format!("proxy-{proxy}"), ACCOUNT).await);
        }
        until(states.iter().all(|state| state["disabled"] == true), || format!("{states:?}"))
    })
    .await;
    let begun = Instant::now();
    assert_eq!(said(&bench, 1).await, "from the spare");
    assert!(begun.elapsed() < Duration::from_secs(2), "nobody waits for what won't come");
    let story = wait_until(SOON, "the story has it", async || {
        let story = bench.admin().get(&format!("/sources/{ACCOUNT}/story")).await.to_string();
        until(story.contains("invalid_grant"), || story.clone()).map(|()| story)
    })
    .await;
    assert!(story.contains("it takes another login"), "{story}");
    assert_eq!(issuer(&bench).calls().len(), 1, "it is asked no more");

    let tokens = issuer(&bench).login("plan", Terms::default());
    let version = bench.admin().get("/accounts/plan").await["version"].clone();
    let edit = json!({"expected_version": version, "credential": token_file(&bench, &tokens, 3_600)});
    bench.admin().patch("/accounts/plan", edit).await;
    wait_until(SOON, "the account serves again", async || {
        let said = said(&bench, 2).await;
        until(said == "from the plan", || said.clone())
    })
    .await;
    // Of the tokens only the sealed ones are in the log.
    for stream in Stream::ALL {
        for message in bench.fleet.messages(stream).await {
            let text = String::from_utf8_lossy(&message.payload).into_owned();
            assert!(!text.contains("accessCanary") && !text.contains("refreshCanary"), "{}: {text}", message.subject);
        }
    }
    bench.fleet.stop().await;
}

/// Runs the command line on a fleet; it must succeed. Gives what it printed.
async fn cli(bench: &Bench, args: &[&str]) -> String {
    let mut command = tokio::process::Command::new(Fleet::binary());
    command.args(args).stdin(std::process::Stdio::null()).kill_on_drop(true);
    command.env("WAYBILL_ADMIN_URL", bench.admin().url()).env("WAYBILL_ADMIN_TOKEN", bench.admin().token());
    let output = tokio::time::timeout(SOON, command.output()).await.expect("it ends").expect("it runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{args:?}: {out}\n{err}");
    out.into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_makes_a_pool_and_leaves_the_tokens_alone_that_an_account_was_refreshed_to() {
    let bench = bench(1).await;
    let folder = tempfile::tempdir().expect("a folder");
    let (login, file) = (folder.path().join("plan.json"), folder.path().join("pool.toml"));
    // It says that it has nearly expired, so that it is refreshed at once.
    let tokens = issuer(&bench).login("plan", Terms::default());
    std::fs::write(&login, token_file(&bench, &tokens, 1).to_string()).expect("a file");
    bench.upstream.set_source("plan", Source::default().with_login("plan").saying("from the plan"));
    let url = bench.upstream.base_url("plan");
    let manifest = |weight: u32| {
        format!(
            "[[accounts]]\nname = \"plan\"\nbase_url = \"{url}\"\nallow_private = true\ncredential_file = \"plan.json\"\n\
             models = [\"{MODEL}\"]\ngroups = [\"default\"]\npriority = 10\nweight = {weight}\n\
             limits = {{ max_concurrent = 5 }}\nsession_window = {{ usd = 5 }}\n\n\
             [[prices]]\nmodel = \"{MODEL}\"\ninput_usd = 3\noutput_usd = 15\n"
        )
    };
    let write = |text: String| std::fs::write(&file, text).expect("a file");
    let path = file.to_str().expect("a path");
    write(manifest(1));
    let tried = cli(&bench, &["apply", path, "--dry-run"]).await;
    assert!(tried.contains("+ account plan created") && tried.contains("+ price m created"), "{tried}");
    assert!(!tried.contains(&tokens.access), "a login is never shown: {tried}");
    let applied = cli(&bench, &["apply", path]).await;
    assert!(applied.contains("2 changes made"), "{applied}");
    bench.configured().await;
    refreshed(&bench, 1).await;
    told(&bench, "credential_refreshed").await;
    wait_until(SOON, "the refreshed token serves", async || {
        let said = said(&bench, 1).await;
        until(said == "from the plan", || said.clone())
    })
    .await;
    let present = || async { bench.admin().source(ACCOUNT).await["token"].clone() };
    let kept = wait_until(SOON, "the admin role has it, too", async || {
        let token = present().await;
        until(token["expired"] == false, || format!("{token}")).map(|()| token)
    })
    .await;

    // The same file is the same login, whatever became of it; what else changes leaves it alone.
    let again = cli(&bench, &["apply", path]).await;
    assert!(again.contains("nothing to change"), "{again}");
    write(manifest(2));
    let edited = cli(&bench, &["apply", path]).await;
    assert!(edited.contains("weight: 1 → 2") && !edited.contains("credential"), "{edited}");
    bench.configured().await;
    assert_eq!(present().await, kept);
    assert_eq!(said(&bench, 2).await, "from the plan");

    let exported = cli(&bench, &["export"]).await;
    assert!(exported.contains("session_window") && !exported.contains(&tokens.access), "{exported}");
    write(exported);
    let again = cli(&bench, &["apply", path]).await;
    assert!(again.contains("nothing to change"), "what is exported is what is there: {again}");
    write(manifest(2));

    // Another login is another one.
    let other = issuer(&bench).login("plan", Terms::default());
    std::fs::write(&login, token_file(&bench, &other, 3_600).to_string()).expect("a file");
    let edited = cli(&bench, &["apply", path]).await;
    assert!(edited.contains("credential:") && !edited.contains(&other.access), "{edited}");
    wait_until(SOON, "the new login is there", async || {
        let token = present().await;
        until(token["revision"].as_u64() > kept["revision"].as_u64(), || format!("{token}"))
    })
    .await;
    wait_until(SOON, "it serves", async || {
        let said = said(&bench, 3).await;
        until(said == "from the plan", || said.clone())
    })
    .await;

    // Pruning reaches accounts and prices where the manifest has such a part, and only there.
    let pruning = "prune = true\n[[groups]]\nname = \"default\"\n";
    write(pruning.to_owned());
    let tried = cli(&bench, &["apply", path, "--dry-run"]).await;
    assert!(!tried.contains("account") && !tried.contains("price"), "{tried}");
    write(format!("accounts = []\nprices = []\n{pruning}"));
    let pruned = cli(&bench, &["apply", path]).await;
    assert!(pruned.contains("- account plan deleted") && pruned.contains("- price m deleted"), "{pruned}");
    bench.fleet.stop().await;
}
