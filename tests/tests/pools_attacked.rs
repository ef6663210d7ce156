//! Pools under attack: clients that don't read, leave anywhere or ask again, upstreams that go on after their end, limits
//! that change while they are in use. Whatever happens, no slot is lost and none is given twice.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a suite fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use waybill_testkit::upstream::{After, Reply, Source, Then};
use waybill_testkit::{Answer, Chat, until, wait_until};
use waybill_tests::Bench;

const MODEL: &str = "m";

/// Creates an account at the upstream's source of its name.
async fn account(bench: &Bench, name: &str, limits: Value, more: Value, source: Source) {
    bench.upstream.set_source(name, source);
    let mut body = json!({
        "name": name, "base_url": bench.upstream.base_url(name), "credential": format!("token-{name}"),
        "models": [MODEL], "groups": ["default"], "limits": limits, "allow_private": true,
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        body[field] = value.clone();
    }
    bench.admin().post("/accounts", body).await;
}

fn chunk(text: &str) -> String {
    let delta = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": MODEL,
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]});
    format!("data: {delta}")
}

fn stop() -> String {
    let end = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": MODEL,
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    format!("data: {end}")
}

/// Sends a chat and takes nothing of its answer, with little room for what comes.
async fn unread(bench: &Bench, proxy: usize) -> tokio::net::TcpStream {
    let host = bench.fleet.proxy(proxy).trim_start_matches("http://").to_owned();
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4_096).expect("a small buffer");
    let mut stream = socket.connect(host.parse().expect("an address")).await.expect("a connection");
    let body = json!({"model": MODEL, "stream": true, "messages": [{"role": "user", "content": "a lot"}]}).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        bench.key,
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await.expect("a request");
    stream
}

/// So many are served at once, as the upstream sees it, and no more.
async fn has_room_for(bench: &Bench, source: &str, most: usize) {
    bench.upstream.set_source(source, Source::default().then(Reply::default().delay_head(300)));
    let all = wait_until(Duration::from_secs(10), "all slots can be had", async || {
        bench.upstream.forget_calls();
        let asked = (0..most * 2).map(|n| {
            let chat = bench.chat(1 + n % bench.fleet.proxies().len(), MODEL);
            async move { chat.send().await }
        });
        let answers: Vec<Answer> = futures_util::future::join_all(asked).await;
        let served = answers.iter().filter(|answer| answer.status == 200).count();
        until(bench.upstream.most_in_flight(source) == most, || {
            format!("{} at once, {served} served", bench.upstream.most_in_flight(source))
        })
    });
    all.await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_read_an_answer_holds_no_slot_beyond_the_requests_time() {
    let bench = Bench::of(1).await;
    let large = "x".repeat(60_000);
    let frames: Vec<String> = (0..400).map(|_| chunk(&large)).chain([stop(), "data: [DONE]".to_owned()]).collect();
    account(&bench, "plan", json!({"max_concurrent": 1}), json!({}), Source::default().then(Reply::frames(frames)))
        .await;
    bench.admin().policy_of("global", json!({"request": {"deadline_ms": 6_000}})).await;
    bench.configured().await;
    let mut stream = unread(&bench, 1).await;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.expect("its head");
    assert_eq!(&head, b"HTTP/1.1 200");
    assert_eq!(bench.chat(1, MODEL).send().await.status, 429, "it holds the only slot");
    wait_until(Duration::from_secs(12), "its upstream is left", async || {
        until(bench.upstream.in_flight("plan") == 0, || "it is still asked".to_owned())
    })
    .await;
    has_room_for(&bench, "plan", 1).await;
    // What it still gets is no end of an answer.
    let mut rest = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
    assert!(read.is_ok(), "the connection ends");
    assert!(!rest.ends_with(b"0\r\n\r\n") && !String::from_utf8_lossy(&rest).contains("[DONE]"));
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_with_one_slot_is_asked_again_at_once() {
    let bench = Bench::of(1).await;
    let again = Reply::json(503, json!({"error": {"code": "try_again", "message": "once more"}}));
    let source = Source::default().times(1, &again).times(1, &Reply::default()).over_again();
    account(&bench, "plan", json!({"max_concurrent": 1, "requests_per_minute": 1_000}), json!({}), source).await;
    let but = json!({"same": {"times": 1, "delay_ms": 0, "after": "at_once"}});
    let rule = json!({"id": "house/again", "when": {"codes": ["try_again"]}, "kind": "server_error", "but": but});
    bench.admin().put("/rules", json!({"expected_version": 0, "live": {"rules": [rule]}})).await;
    bench.configured().await;
    for n in 0..5 {
        let answer = bench.chat(1, MODEL).served().await;
        assert_eq!(answer.header("x-waybill-attempts"), Some("2"), "{n}");
    }
    assert_eq!(bench.upstream.most_in_flight("plan"), 1);
    bench.fleet.stop().await;
}

/// A stream with an error in it that its upstream doesn't end with.
fn goes_on() -> Reply {
    let error = json!({"error": {"message": "overloaded", "type": "server_error", "code": "internal_error"}});
    let more = (0..60).map(|n| format!(": {n}"));
    let frames = [chunk("one"), chunk("two"), format!("data: {error}")].into_iter().chain(more);
    Reply::frames(frames).delay_per_chunk(20)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_that_goes_on_after_its_error_is_never_asked_twice_at_once() {
    let bench = Bench::of(3).await;
    account(&bench, "plan", json!({"max_concurrent": 1}), json!({"priority": 10}), Source::default().then(goes_on()))
        .await;
    account(&bench, "spare", json!({}), json!({}), Source::default().then(Reply::default().delay_head(300))).await;
    let policies =
        [json!({"queue_timeout_ms": 2_000}), json!({"queue_timeout_ms": 2_000, "mid_stream": "verified_resume"})];
    for policy in policies {
        bench.admin().policy_of("global", json!({"request": policy})).await;
        bench.admin().post("/sources/account:plan/reset", json!({})).await;
        bench.adopted().await;
        bench.upstream.forget_calls();
        let over = Arc::new(AtomicBool::new(false));
        let clients = futures_util::future::join_all((0..9_usize).map(|n| {
            let (over, chat) = (over.clone(), bench.chat(1 + n % 3, MODEL).streamed());
            async move {
                let mut turn = 0;
                while !over.load(Ordering::Relaxed) {
                    // Each is a conversation of its own: those that failed stay elsewhere.
                    turn += 1;
                    let chat = chat.clone().header("x-waybill-session", &format!("{n}-{turn}-{over:p}"));
                    let _whatever = chat.try_send().await;
                }
            }
        }));
        let end = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            over.store(true, Ordering::Relaxed);
        };
        tokio::join!(clients, end);
        let (calls, most) = (bench.upstream.calls_of("plan").len(), bench.upstream.most_in_flight("plan"));
        println!("{calls} calls, {most} at once");
        assert!(calls > 0 && most <= 1, "{most} at once of {calls} with {policy}");
    }
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_clients_and_upstreams_do_all_slots_come_back() {
    let bench = Bench::of(3).await;
    let mixed = || {
        let cut = Reply::frames([chunk("one"), chunk("two"), chunk("three")]).delay_per_chunk(60);
        let ended = [chunk("one"), stop(), "data: [DONE]".to_owned(), ": more".to_owned()];
        Source::default()
            .then(Reply::frames([chunk("one"), stop(), "data: [DONE]".to_owned()]).delay_head(40).delay_per_chunk(40))
            .times(1, &cut.clone().fault(After::Frames(2), Then::Reset))
            .times(1, &Reply::error(500, "server_error").delay_head(30))
            .times(1, &cut.fault(After::Frames(1), Then::Hang))
            .times(1, &Reply::frames(ended.clone()).fault(After::Frames(3), Then::Hang))
            .times(1, &Reply::error(429, "rate_limit_exceeded").header("retry-after", "Thu, 01 Jan 1970 00:00:00 GMT"))
            .times(1, &Reply::frames(ended).fault(After::Frames(3), Then::Stall { ms: 400 }))
            .times(1, &goes_on())
            .times(1, &Reply::error(409, "conflict"))
            .times(1, &Reply::empty(200))
            .over_again()
    };
    for name in ["a", "b"] {
        account(&bench, name, json!({"max_concurrent": 2, "requests_per_minute": 10_000}), json!({}), mixed()).await;
    }
    let key = bench
        .admin()
        .key_with(json!({"name": "limited", "group": "default", "limits": {"max_concurrent": 6},
            "user_limits": {"max_concurrent": 3}}))
        .await;
    let policy = json!({"queue_timeout_ms": 300, "mid_stream": "verified_resume", "deadline_ms": 2_500});
    bench.admin().policy_of("global", json!({"request": policy})).await;
    bench.configured().await;
    let over = Arc::new(AtomicBool::new(false));
    let clients = futures_util::future::join_all((0..24_usize).map(|n| {
        let chat = Chat::new(
            bench.fleet.http(),
            bench.fleet.proxy(1 + n % 3),
            &key,
            if n % 12 == 11 { "none" } else { MODEL },
        );
        let chat = chat.with("user", format!("user-{}", n % 3)).with("stream", n % 4 != 0);
        let over = over.clone();
        async move {
            let mut turn = n;
            while !over.load(Ordering::Relaxed) {
                turn = turn.wrapping_mul(31).wrapping_add(17);
                let patience = Duration::from_millis(u64::try_from(turn % 700).unwrap_or(0));
                if let Ok(Ok(answer)) = tokio::time::timeout(patience, chat.try_send()).await
                    && answer.status == 429
                {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                }
            }
        }
    }));
    let end = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        over.store(true, Ordering::Relaxed);
    };
    tokio::join!(clients, end);
    let most = ["a", "b"].map(|name| bench.upstream.most_in_flight(name));
    println!("{most:?} at once of {:?}", ["a", "b"].map(|name| bench.upstream.calls_of(name).len()));
    for name in ["a", "b"] {
        bench.upstream.set_source(name, Source::default().then(Reply::default().delay_head(300)));
    }
    wait_until(Duration::from_secs(8), "nothing is held", async || {
        let pools = bench.admin().get("/pools").await;
        let held: Vec<Value> = pools["accounts"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|account| json!([account["in_flight"], account["slots"]]))
            .collect();
        until(!held.is_empty() && held.iter().all(|held| *held == json!([0, 0])), || format!("{held:?}"))
    })
    .await;
    assert!(most.iter().all(|most| *most <= 2), "{most:?}");
    bench.admin().post("/accounts/b/disable", json!({})).await;
    bench.admin().post("/sources/account:a/reset", json!({})).await;
    bench.admin().policy_of("global", json!({"request": {"queue_timeout_ms": 0}})).await;
    bench.configured().await;
    bench.adopted().await;
    has_room_for(&bench, "a", 2).await;
    // So did those of the key and of its users.
    let with = |n: usize, user: &str| {
        Chat::new(bench.fleet.http(), bench.fleet.proxy(1 + n % 3), &key, MODEL).with("user", user)
    };
    bench.admin().patch("/accounts/a", json!({"limits": {}, "expected_version": 1})).await;
    bench.configured().await;
    // What lingers at another replica comes within the wait for a slot, unless the machine is busy: all are had in the end,
    // never more.
    for (what, most, user) in [("the key's six", 6, None), ("its user's three", 3, Some("user-1"))] {
        wait_until(Duration::from_secs(10), what, async || {
            let of = |n: usize| user.map_or_else(|| format!("user-{}", n % 3), str::to_owned);
            let asked = (0..9).map(|n| with(n, &of(n))).map(|chat| async move { chat.send().await });
            let answers: Vec<Answer> = futures_util::future::join_all(asked).await;
            let served = answers.iter().filter(|answer| answer.status == 200).count();
            assert!(served <= most, "{what}: {served}");
            until(served == most, || format!("{served} served"))
        })
        .await;
    }
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_changes_counts_at_once_for_those_who_wait() {
    let bench = Bench::of(3).await;
    let source = Source::default().then(Reply::default().delay_head(120));
    account(&bench, "plan", json!({"max_concurrent": 4}), json!({}), source).await;
    bench.admin().policy_of("global", json!({"request": {"queue_timeout_ms": 20_000}})).await;
    bench.configured().await;
    let over = Arc::new(AtomicBool::new(false));
    let clients = futures_util::future::join_all((0..24_usize).map(|n| {
        let (over, chat) = (over.clone(), bench.chat(1 + n % 3, MODEL));
        async move {
            while !over.load(Ordering::Relaxed) {
                chat.served().await;
            }
        }
    }));
    let edits = async {
        for (limit, most) in [(Some(1), 1), (Some(6), 6), (None, 24)] {
            let version = bench.admin().get("/accounts/plan").await["version"].clone();
            let patch = json!({"limits": {"max_concurrent": limit}, "expected_version": version});
            bench.admin().patch("/accounts/plan", patch).await;
            bench.configured().await;
            // Long before those who wait would have given up; what ran before has ended by then.
            wait_until(Duration::from_secs(10), format!("{most} at once"), async || {
                bench.upstream.forget_calls();
                tokio::time::sleep(Duration::from_millis(400)).await;
                let seen = bench.upstream.most_in_flight("plan");
                until(seen == most, || format!("{seen} at once"))
            })
            .await;
            bench.upstream.forget_calls();
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert!(bench.upstream.most_in_flight("plan") <= most, "more than {most}");
        }
        over.store(true, Ordering::Relaxed);
    };
    tokio::join!(clients, edits);
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_that_are_not_made_spend_nothing_of_the_minute() {
    let bench = Bench::of(3).await;
    let limited = Reply::error(429, "rate_limit_exceeded").header("retry-after", "3600").delay_head(1_500);
    account(&bench, "plan", json!({"requests_per_minute": 8}), json!({}), Source::default().then(limited)).await;
    bench.admin().policy_of("global", json!({"selector": {"retry_limited_ms": 2_000}})).await;
    bench.configured().await;
    assert_eq!(bench.chat(1, MODEL).send().await.status, 429);
    wait_until(Duration::from_secs(10), "it is out", async || {
        let live = bench.admin().source("account:1").await;
        until(live["live"]["scope"]["blocks"].as_array().is_some_and(|blocks| !blocks.is_empty()), || live.to_string())
    })
    .await;
    // One of the fleet at a time tries whether the limit still holds; the others' aren't attempts.
    let clients = (0..12).map(|n| bench.chat(1 + n % 3, MODEL)).map(|chat| async move {
        for _ in 0..40 {
            assert_eq!(chat.send().await.status, 429);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let _over = tokio::time::timeout(Duration::from_secs(4), futures_util::future::join_all(clients)).await;
    let calls = bench.upstream.calls_of("plan").len();
    let used = wait_until(Duration::from_secs(10), "what wasn't used has gone back", async || {
        let used = bench.admin().get("/pools").await["accounts"][0]["rpm_used"].as_u64().unwrap_or(99);
        if used <= u64::try_from(calls).unwrap_or(0) { Ok(used) } else { Err(format!("{used} of {calls} calls")) }
    })
    .await;
    println!("{calls} calls, {used} used");
    assert!((2..8).contains(&calls), "{calls}");
    bench.fleet.stop().await;
}
