//! What operators do: steer by hand, set routes and numbers on the command line; and what their clients see of it.

#![expect(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic, reason = "a suite fails by panicking")]

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::process::Command;
use waybill_testkit::upstream::{After, Reply, Source, Then};
use waybill_testkit::{Fleet, until, wait_until};
use waybill_tests::Bench;

const KNOWN: Duration = Duration::from_secs(5);
const LONG_MS: u64 = 600_000;

/// Runs the command line; gives its exit code and what it printed.
async fn cli(bench: &Bench, args: &[&str]) -> (i32, String) {
    let mut command = Command::new(Fleet::binary());
    command.args(args).env("WAYBILL_ADMIN_URL", bench.admin().url()).env("WAYBILL_ADMIN_TOKEN", bench.admin().token());
    let output = tokio::time::timeout(Duration::from_secs(30), command.kill_on_drop(true).output()).await;
    let output = output.unwrap_or_else(|_| panic!("{args:?} doesn't end")).unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.code().unwrap_or(-1), text)
}

/// The same; it must succeed, and what it sets is in force everywhere.
async fn done(bench: &Bench, args: &[&str]) -> String {
    let (code, text) = cli(bench, args).await;
    assert_eq!(code, 0, "{args:?}: {text}");
    bench.configured().await;
    text
}

fn says(text: &str) -> Source {
    Source::default().saying(text)
}

fn ill() -> Source {
    Source::default().then(Reply::error(500, "server_error"))
}

/// Every replica is served by this source.
async fn all_served(bench: &Bench, model: &str, by: &str) {
    for proxy in 1..=3 {
        wait_until(KNOWN, format_args!("proxy-{proxy} is served by {by}"), async || {
            let answer = bench.chat(proxy, model).send().await;
            until(answer.said() == by, || answer.text())
        })
        .await;
        for _ in 0..3 {
            assert_eq!(bench.chat(proxy, model).served().await.said(), by, "proxy-{proxy}");
        }
    }
}

/// What the log announces about a source, once all of these are there.
async fn announced(bench: &Bench, source: &str, types: &[&str]) {
    let id: u64 = source.trim_start_matches("channel:").parse().unwrap();
    wait_until(Duration::from_secs(10), format_args!("{types:?} of {source} are in the log"), async || {
        let all = bench.fleet.events().await;
        let about = |event: &&Value| event["data"]["scope"]["source"]["id"] == id;
        let told: Vec<&str> = all.iter().filter(about).filter_map(|event| event["type"].as_str()).collect();
        until(types.iter().all(|wanted| told.contains(wanted)), || format!("{told:?}"))
    })
    .await;
}

async fn breakers(bench: &Bench) {
    let breaker = json!({"consecutive_fails": 2, "open_ms": LONG_MS, "open_max_ms": LONG_MS, "slow_start_ms": 0});
    bench.admin().policy(json!({"source_breaker": breaker, "model_breaker": {"consecutive_fails": 0}})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_done_by_hand_acts_at_all_replicas_outlives_them_and_is_told_with_its_author() {
    let bench = Bench::of(3).await;
    breakers(&bench).await;
    let main = bench.channel("main", &["m", "other"], 10, says("from main")).await;
    bench.channel("backup", &["m", "other"], 0, says("from the backup")).await;
    bench.configured().await;
    all_served(&bench, "m", "from main").await;

    // Held open, also for replicas and a fold that begin anew.
    let text = done(&bench, &["source", "open", "main", "--reason", "provider maintenance"]).await;
    assert!(text.contains("held open"), "{text}");
    bench.upstream.forget_calls();
    all_served(&bench, "m", "from the backup").await;
    for role in ["proxy-2", "projector-1", "proxy-1"] {
        let before = bench.fleet.kill9(role);
        bench.fleet.restarted(role, before).await;
    }
    all_served(&bench, "m", "from the backup").await;
    assert!(bench.upstream.calls_of("main").is_empty(), "not asked while it is held open");
    let live = bench.admin().source(&main).await;
    assert_eq!(live["available"], false, "{live:#}");
    bench.admin().post(&format!("/sources/{main}/close"), json!({"reason": "all is well again"})).await;
    bench.configured().await;
    all_served(&bench, "m", "from main").await;

    // One of its models alone, for a while.
    done(&bench, &["source", "open", "main", "--model", "other", "--for", "2"]).await;
    bench.upstream.forget_calls();
    let answer = bench.chat(3, "other").served().await;
    assert_eq!(answer.said(), "from the backup");
    all_served(&bench, "m", "from main").await;
    let story = bench.admin().history(answer.request()).await;
    assert!(story["selection_table"].to_string().contains("held_open"), "{:#}", *story);
    wait_until(KNOWN, "the while is over", async || {
        let answer = bench.chat(1, "other").served().await;
        until(answer.said() == "from main", || answer.said())
    })
    .await;

    // A breaker that tripped.
    bench.adopted().await;
    bench.upstream.set_source("main", ill());
    for proxy in [1, 2] {
        assert_eq!(bench.chat(proxy, "m").served().await.said(), "from the backup");
    }
    announced(&bench, &main, &["breaker_opened"]).await;
    bench.upstream.set_source("main", says("from main"));
    all_served(&bench, "m", "from the backup").await;
    done(&bench, &["source", "reset", "main", "--reason", "repaired"]).await;
    all_served(&bench, "m", "from main").await;
    announced(&bench, &main, &["breaker_closed"]).await;

    // A hint of an hour, and a dead key.
    let hour = Reply::error(429, "rate_limit_exceeded").header("retry-after", "3600");
    bench.upstream.set_source("main", Source::default().then(hour).then(Reply::default()).saying("from main"));
    assert_eq!(bench.chat(2, "m").served().await.said(), "from the backup");
    announced(&bench, &main, &["block_set"]).await;
    all_served(&bench, "m", "from the backup").await;
    bench.admin().post("/sources/main/lift", json!({"reason": "they raised our limit"})).await;
    bench.configured().await;
    all_served(&bench, "m", "from main").await;
    announced(&bench, &main, &["block_lifted"]).await;
    let banned = Reply::json(403, json!({"error": {"code": "account_deactivated", "message": "deactivated"}}));
    bench.upstream.set_source("main", Source::default().then(banned).then(Reply::default()).saying("from main"));
    assert_eq!(bench.chat(3, "m").served().await.said(), "from the backup");
    announced(&bench, &main, &["source_disabled"]).await;
    all_served(&bench, "m", "from the backup").await;
    done(&bench, &["source", "lift", &main, "--reason", "talked to them"]).await;
    all_served(&bench, "m", "from main").await;
    announced(&bench, &main, &["source_enabled"]).await;

    // All of it stands in the history, with who did it and why.
    let reasons = ["provider maintenance", "all is well again", "repaired", "they raised our limit", "talked to them"];
    let history = wait_until(Duration::from_secs(10), "the edits are readable", async || {
        let history = bench.admin().get("/config-history?entity=intervention&limit=50").await;
        let text = history.to_string();
        until(reasons.iter().all(|reason| text.contains(reason)), || format!("{history:#}")).map(|()| history)
    })
    .await;
    let edits = history["edits"].as_array().cloned().unwrap_or_default();
    assert!(edits.len() >= 6 && edits.iter().all(|edit| edit["actor_name"] == "dev"), "{history:#}");
    let (_, told) = cli(&bench, &["config-history", "--entity", "intervention"]).await;
    assert!(reasons.iter().all(|reason| told.contains(reason)), "{told}");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn routes_and_numbers_set_on_the_command_line_steer_requests_and_degraded_answers_say_so() {
    let bench = Bench::of(3).await;
    bench.channel("first", &["deep"], 0, ill()).await;
    bench.channel("second", &["fast"], 0, says("from the second")).await;
    bench.configured().await;
    let targets =
        ["--target", "deep,tools=true,context_window=200000", "--target", "fast,tools=false,context_window=8000"];
    done(&bench, &[&["route", "create", "smart"], &targets[..]].concat()).await;
    done(&bench, &["route", "create", "clever", "--target", "smart"]).await;

    for (proxy, streamed) in [(1, false), (2, true), (3, false)] {
        for name in ["smart", "clever"] {
            let answer = bench.chat(proxy, name).with("stream", streamed).served().await;
            assert_eq!(answer.said(), "from the second");
            let header = |name: &str| answer.header(name).unwrap_or_default().to_owned();
            assert_eq!(header("x-waybill-degraded"), "true", "{:?}", answer.headers);
            assert_eq!(header("x-waybill-served-model"), "fast");
            assert_eq!(header("x-waybill-model"), name);
            let missing = header("x-waybill-missing");
            assert!(missing.contains("tools") && missing.contains("context_window"), "{missing}");
            let story = bench.admin().history(answer.request()).await;
            assert_eq!(story.attempts().last().unwrap().why, "next_target", "{:#}", *story);
        }
    }
    // What is required is never given up.
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let answer = bench.chat(1, "smart").with("tools", tools).send().await;
    assert!(answer.status >= 500 && answer.header("x-waybill-degraded").is_none(), "{}", answer.text());
    let answer =
        bench.chat(1, "fast").with("tools", json!([{"type": "function", "function": {"name": "f"}}])).served().await;
    assert_eq!(answer.said(), "from the second", "what a route declares of its target is the route's");
    assert_eq!(bench.chat(1, "fast").served().await.header("x-waybill-degraded"), None);

    done(&bench, &["policy", "set", "--scope", "route:smart", "request.degrade=false", "request.strategy=least_busy"])
        .await;
    let (_, shown) = cli(&bench, &["policy", "get", "--scope", "route:smart"]).await;
    assert!(shown.contains("degrade") && shown.contains("least_busy"), "{shown}");
    let honest = bench.chat(2, "smart").send().await;
    assert!(honest.status >= 500, "not degraded: {}", honest.text());
    assert_eq!(bench.chat(2, "clever").served().await.said(), "from the second", "another route, other numbers");
    done(&bench, &["policy", "set", "--scope", "route:smart", "request.degrade="]).await;
    assert_eq!(bench.chat(3, "smart").served().await.said(), "from the second");

    let (code, text) = cli(&bench, &["route", "edit", "smart", "--target", "clever"]).await;
    assert!(code == 1 && text.contains("circle"), "{code}: {text}");
    let (code, text) = cli(&bench, &["route", "delete", "smart"]).await;
    assert!(code == 1 && text.contains("clever"), "{code}: {text}");
    done(&bench, &["route", "disable", "clever"]).await;
    let answer = bench.chat(1, "clever").send().await;
    assert_eq!((answer.status, answer.code().as_deref()), (404, Some("model_not_found")));
    let (_, listed) = cli(&bench, &["route", "list"]).await;
    assert!(listed.contains("smart") && listed.contains("clever"), "{listed}");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_breakers_take_no_more_of_a_tier_out_than_the_policy_says() {
    let bench = Bench::of(3).await;
    breakers(&bench).await;
    bench.channel("one", &["m"], 10, ill()).await;
    bench.channel("two", &["m"], 10, ill()).await;
    bench.configured().await;
    let opened = async |count: usize| {
        let all = bench.fleet.events().await;
        let opened = all.iter().filter(|event| event["type"] == "breaker_opened").count();
        until(opened >= count, || format!("{opened} are open"))
    };
    wait_until(Duration::from_secs(20), "both breakers are open", async || {
        for proxy in 1..=3 {
            bench.chat(proxy, "m").send().await;
        }
        opened(2).await
    })
    .await;
    bench.upstream.set_source("one", says("served"));
    bench.upstream.set_source("two", says("served"));
    for proxy in 1..=3 {
        wait_until(KNOWN, format_args!("proxy-{proxy} knows"), async || {
            let code = bench.chat(proxy, "m").send().await.code();
            until(code.as_deref() == Some("no_source_available"), || format!("{code:?}"))
        })
        .await;
    }
    bench.upstream.forget_calls();
    done(&bench, &["policy", "set", "request.max_ejected_percent=50"]).await;
    for n in 0..12 {
        let answer = bench.chat(n % 3 + 1, "m").served().await;
        assert_eq!(answer.said(), "served");
        if n == 0 {
            let story = bench.admin().history(answer.request()).await;
            assert_eq!(story.attempts()[0].why, "least_bad", "asked although its breaker is open: {:#}", *story);
        }
    }
    let asked = ["one", "two"].map(|name| bench.upstream.calls_of(name).len());
    assert!(asked == [12, 0] || asked == [0, 12], "one of the two is out: {asked:?}");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_least_bad_is_asked_only_where_the_policy_says_so() {
    let bench = Bench::of(3).await;
    breakers(&bench).await;
    let source = bench.channel("only", &["m"], 10, ill()).await;
    bench.configured().await;
    bench.chat(1, "m").send().await;
    bench.chat(2, "m").send().await;
    announced(&bench, &source, &["breaker_opened"]).await;
    for proxy in 1..=3 {
        wait_until(KNOWN, format_args!("proxy-{proxy} knows"), async || {
            let answer = bench.chat(proxy, "m").send().await;
            let told = answer.header("retry-after").is_some();
            until(answer.code().as_deref() == Some("no_source_available") && told, || answer.text())
        })
        .await;
    }
    bench.upstream.forget_calls();
    assert_eq!(bench.chat(3, "m").send().await.status, 503);
    assert!(bench.upstream.calls_of("only").is_empty(), "fail fast is what is built in");
    done(&bench, &["policy", "set", "--scope", "group:default", "request.on_all_unavailable=least_bad"]).await;
    bench.upstream.set_source("only", says("served"));
    for proxy in 1..=3 {
        let answer = bench.chat(proxy, "m").served().await;
        let story = bench.admin().history(answer.request()).await;
        assert_eq!(story.attempts()[0].why, "least_bad", "{:#}", *story);
    }
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_complete_stream_whose_upstream_hangs_open_is_closed_at_once_and_properly() {
    let bench = Bench::of(3).await;
    bench.admin().policy_of("global", json!({"request": {"idle_ms": 20_000}})).await;
    let chunk = |delta: Value, finish: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        format!(
            "data: {}",
            json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})
        )
    };
    let mut frames = vec![chunk(json!({"role": "assistant", "content": ""}), None)];
    frames.extend(["all ", "of ", "it"].map(|word| chunk(json!({"content": word}), None)));
    frames.push(chunk(json!({}), Some("stop")));
    let count = frames.len();
    let hangs = Reply::frames(frames).fault(After::Frames(count), Then::Hang);
    bench.channel("hangs", &["m"], 10, Source::default().then(hangs)).await;
    bench.channel("other", &["m"], 0, says("from elsewhere")).await;
    bench.configured().await;
    for (proxy, usage) in [(1, false), (2, true), (3, true)] {
        let begun = Instant::now();
        let chat = bench.chat(proxy, "m").streamed().with("stream_options", json!({"include_usage": usage}));
        let answer = chat.served().await;
        let took = begun.elapsed();
        assert_eq!(answer.said(), "all of it");
        assert_eq!(answer.events().last().map(String::as_str), Some("[DONE]"), "{}", answer.text());
        assert!(took < Duration::from_secs(8), "closed long before the idle limit: {took:?}, usage asked for: {usage}");
        let story = bench.admin().history(answer.request()).await;
        assert_eq!((story.state(), story.asked()), ("succeeded", vec!["hangs".to_owned()]), "{:#}", *story);
    }
    bench.fleet.stop().await;
}
