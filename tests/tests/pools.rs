//! Pools of accounts over real fleets: limits that hold over all replicas through kills and cancels, full that is never
//! broken, conversations that stay.

#![expect(clippy::indexing_slicing, reason = "a suite fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use waybill_testkit::upstream::{Call, Reply, Source};
use waybill_testkit::{Answer, Chat, FleetOptions, Stream, until, wait_until};
use waybill_tests::Bench;

const MODEL: &str = "m";
const SLOT_LIFE: Duration = Duration::from_secs(6);

async fn bench(nats_nodes: u16) -> Bench {
    let arguments = vec!["--slot-life-ms".to_owned(), SLOT_LIFE.as_millis().to_string()];
    Bench::start(FleetOptions { proxies: 3, nats_nodes, arguments, ..FleetOptions::default() }).await
}

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

fn streams(chunks: usize, each_ms: u64) -> Reply {
    let mut reply = Reply { delay_head_ms: each_ms, delay_per_chunk_ms: each_ms, ..Reply::default() };
    if let waybill_testkit::upstream::Body::Chat(chat) = &mut reply.body {
        chat.words = Some(chunks);
    }
    reply
}

/// A source of streams of mixed length, 60 to 400 ms.
fn mixed() -> Source {
    [1, 6, 3, 12, 2, 8].into_iter().fold(Source::default(), |source, chunks| source.times(1, &streams(chunks, 30)))
}

async fn sent(chat: Chat) -> Answer {
    chat.send().await
}

/// How a phase went.
struct Phase {
    served: usize,
    took: Duration,
    /// Mean time of a call at the upstream.
    mean: Duration,
    /// How long calls ran within the phase, all together.
    busy: Duration,
    /// The longest times in which fewer ran than the most: when they began, how long they took, and how many ran at least.
    gaps: Vec<(Duration, Duration, usize)>,
}

impl Phase {
    /// Throughput as part of what the slots can do, which is slots ÷ mean. Time is summed instead of calls counted: of calls
    /// that run at the beginning or the end, the part within the phase counts, and that is no little part of so few.
    fn share(&self, slots: f64) -> f64 {
        self.busy.as_secs_f64() / (slots * self.took.as_secs_f64())
    }
}

/// What the upstream served in a time.
async fn measured(bench: &Bench, source: &str, time: Duration) -> Phase {
    let begun = Instant::now();
    tokio::time::sleep(time).await;
    let over = Instant::now();
    let calls = bench.upstream.calls_of(source);
    let ended = |call: &Call| call.ended.map_or(over, |(_, at)| at.min(over));
    let busy = calls.iter().map(|call| ended(call).saturating_duration_since(call.received.max(begun))).sum();
    let within = |call: &&Call| call.ended.is_some_and(|(_, at)| at >= begun && at < over);
    let took: Vec<Duration> = calls.iter().filter(within).map(|call| ended(call) - call.received).collect();
    let mean = took.iter().sum::<Duration>() / u32::try_from(took.len().max(1)).unwrap_or(1);
    let spans: Vec<_> = calls.iter().map(|call| (call.received.max(begun), ended(call))).collect();
    Phase { served: took.len(), took: over - begun, mean, busy, gaps: gaps(&spans, begun) }
}

/// The five longest times in which fewer calls ran than at the most.
fn gaps(spans: &[(Instant, Instant)], begun: Instant) -> Vec<(Duration, Duration, usize)> {
    let mut turns: Vec<(Instant, bool)> =
        spans.iter().filter(|(from, to)| from < to).flat_map(|(from, to)| [(*from, true), (*to, false)]).collect();
    turns.sort_unstable();
    let counts = turns.iter().scan(0_usize, |now, (at, up)| {
        *now = if *up { *now + 1 } else { now.saturating_sub(1) };
        Some((*at, *now))
    });
    let counts: Vec<(Instant, usize)> = counts.collect();
    let most = counts.iter().map(|(_, now)| *now).max().unwrap_or(0);
    let mut found = Vec::new();
    let mut gap: Option<(Instant, usize)> = None;
    for (at, now) in counts {
        gap = match gap {
            Some((since, least)) if now < most => Some((since, least.min(now))),
            Some((since, least)) => {
                found.push((since - begun, at - since, least));
                None
            }
            None if now < most => Some((at, now)),
            None => None,
        };
    }
    found.sort_unstable_by_key(|(_, length, _)| std::cmp::Reverse(*length));
    found.truncate(5);
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_five_holds_over_the_fleet_through_cancels_and_kills_and_no_slot_leaks() {
    let bench = bench(3).await;
    account(&bench, "plan", json!({"max_concurrent": 5}), json!({}), mixed().over_again()).await;
    // Nothing is given that the store hasn't granted: a share would come on top while some replicas reach it and some don't.
    bench.admin().policy_of("global", json!({"request": {"queue_timeout_ms": 60_000, "on_outage": "closed"}})).await;
    bench.configured().await;

    let over = Arc::new(AtomicUsize::new(0));
    let refused = Arc::new(std::sync::Mutex::new(BTreeMap::<String, usize>::new()));
    let clients = futures_util::future::join_all((0..200_usize).map(|n| {
        let (over, refused, chat) = (over.clone(), refused.clone(), bench.chat(1 + n % 3, MODEL).streamed());
        async move {
            let mut turn = n;
            while over.load(Ordering::Relaxed) == 0 {
                turn = turn.wrapping_mul(31).wrapping_add(17);
                // One in five leaves at some moment, some of them while they wait.
                let patience = if turn % 5 == 0 {
                    Duration::from_millis(u64::try_from(turn % 900).unwrap_or(0))
                } else {
                    Duration::from_secs(90)
                };
                match tokio::time::timeout(patience, chat.try_send()).await {
                    Ok(Ok(answer)) if answer.status != 200 => {
                        *refused
                            .lock()
                            .unwrap()
                            .entry(format!("{} {:?}", answer.status, answer.code()))
                            .or_default() += 1;
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                    // A proxy that is being started again refuses connections.
                    Ok(Err(_)) => tokio::time::sleep(Duration::from_millis(200)).await,
                    Ok(Ok(_)) | Err(_) => {}
                }
            }
        }
    }));
    let run = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let quiet = measured(&bench, "plan", Duration::from_secs(5)).await;
        let most = || bench.upstream.most_in_flight("plan");
        let mut peaks = vec![most()];
        bench.upstream.forget_calls();
        let before = bench.fleet.kill9("proxy-2");
        let leader = wait_until(Duration::from_secs(10), "a leader", async || {
            bench.fleet.stream_leader(Stream::Traffic).await.ok_or("none")
        })
        .await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let of_log = bench.fleet.kill9(&leader);
        bench.fleet.restarted("proxy-2", before).await;
        wait_until(Duration::from_secs(20), "the node of the log is back", async || {
            let pid = bench.fleet.process(&leader).pid;
            until(pid != of_log, || format!("still {pid}"))
        })
        .await;
        // What the dead replica held is free again after its life.
        tokio::time::sleep(SLOT_LIFE + Duration::from_secs(2)).await;
        peaks.push(most());
        wait_until(Duration::from_secs(10), "all five are in use again", async || {
            let now = bench.upstream.in_flight("plan");
            until(now >= 5, || format!("{now} at once"))
        })
        .await;
        peaks.push(most());
        let after = measured(&bench, "plan", Duration::from_secs(5)).await;
        peaks.push(most());
        over.store(1, Ordering::Relaxed);
        (quiet, after, peaks)
    };
    let (_, (quiet, after, peaks)) = tokio::join!(clients, run);
    let told = format!(
        "at most {peaks:?} at once; before {} served in {:?}, mean {:?}: {:.2}; after {} in {:?}, mean {:?}: {:.2}; refused \
         {:?}; gaps before {:?}, after {:?}",
        quiet.served,
        quiet.took,
        quiet.mean,
        quiet.share(5.0),
        after.served,
        after.took,
        after.mean,
        after.share(5.0),
        refused.lock().unwrap(),
        quiet.gaps,
        after.gaps,
    );
    println!("{told}");
    assert!(peaks.iter().all(|most| *most <= 5), "{told}");
    assert!(quiet.share(5.0) >= 0.9, "{told}");
    assert!(after.share(5.0) >= 0.9, "{told}");
    // All is free in the end.
    wait_until(Duration::from_secs(20), "nothing is in flight and all slots can be had", async || {
        let answers: Vec<Answer> =
            futures_util::future::join_all((0..5).map(|n| sent(bench.chat(1 + n % 3, MODEL)))).await;
        until(answers.iter().all(|answer| answer.status == 200), || {
            format!("{:?}", answers.iter().map(|a| a.status).collect::<Vec<_>>())
        })
    })
    .await;
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_full_is_passed_over_and_a_pool_that_is_full_says_so_and_is_never_broken() {
    let bench = bench(1).await;
    let slow = || Source::default().then(streams(1, 700)).saying("slow");
    account(&bench, "first", json!({"max_concurrent": 1}), json!({"priority": 10}), slow()).await;
    account(&bench, "second", json!({"max_concurrent": 1}), json!({}), Source::default().saying("from the second"))
        .await;
    bench.configured().await;
    let first = bench.chat(1, MODEL).with("messages", json!([{"role": "user", "content": "hold it"}]));
    let holding = first.send();
    let meanwhile = async {
        wait_until(Duration::from_secs(5), "the first is full", async || {
            until(bench.upstream.in_flight("first") == 1, || "not yet".to_owned())
        })
        .await;
        let begun = Instant::now();
        let answer = bench.chat(2, MODEL).served().await;
        assert_eq!(answer.said(), "from the second");
        assert!(begun.elapsed() < Duration::from_millis(600), "the first wasn't waited for: {:?}", begun.elapsed());
        let story = bench.admin().history(answer.request()).await;
        assert!(story.to_string().contains("concurrency"), "{:#}", *story);

        // With nobody else there is 429 with a time to come back, or a place in the queue where the policy has one.
        bench.admin().post("/accounts/second/disable", json!({})).await;
        bench.configured().await;
        let refused = bench.chat(3, MODEL).send().await;
        assert_eq!((refused.status, refused.code().as_deref()), (429, Some("rate_limited")), "{}", refused.text());
        assert!(refused.header("retry-after").is_some());
        bench.admin().policy_of("global", json!({"request": {"queue_timeout_ms": 5_000}})).await;
        bench.configured().await;
        let queued = bench.chat(3, MODEL).served().await;
        let story = bench.admin().history(queued.request()).await;
        assert_eq!(story.attempts()[0].why, "room_freed", "{:#}", *story);
    };
    let (held, ()) = tokio::join!(holding, meanwhile);
    assert_eq!(held.status, 200);
    let live = bench.admin().source("account:1").await;
    assert_eq!(live["live"]["scope"]["fail"].as_u64().unwrap_or(0), 0, "being full is no evidence: {live:#}");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_of_one_under_a_storm_of_429_serves_what_it_can_and_its_breaker_stays_closed() {
    let bench = bench(1).await;
    // Every second call is told to wait a second.
    let storm = Source::default()
        .times(1, &Reply::default())
        .times(1, &Reply::error(429, "rate_limit_exceeded").header("retry-after", "1"))
        .over_again();
    account(&bench, "only", json!({"max_concurrent": 4}), json!({}), storm).await;
    bench.configured().await;
    let begun = Instant::now();
    let mut statuses: BTreeMap<u16, usize> = BTreeMap::new();
    let answers = futures_util::future::join_all((0..60_usize).map(|n| {
        let chat = bench.chat(1 + n % 3, MODEL);
        async move {
            tokio::time::sleep(Duration::from_millis(u64::try_from(n).unwrap_or(0) * 100)).await;
            chat.send().await
        }
    }))
    .await;
    for answer in &answers {
        *statuses.entry(answer.status).or_default() += 1;
        assert!(matches!(answer.status, 200 | 429), "{}: {}", answer.status, answer.text());
    }
    println!("{statuses:?} in {:?}", begun.elapsed());
    assert!(statuses[&200] >= 5, "it serves what it can: {statuses:?}");
    let live = bench.admin().source("account:1").await;
    assert_eq!(live["live"]["scope"]["breaker"], "closed", "{live:#}");
    // Drained, and the upstream well again, it has all of its weight.
    bench.upstream.set_source("only", Source::default());
    wait_until(Duration::from_secs(15), "its weight is back", async || {
        let answer = bench.chat(1, MODEL).send().await;
        let live = bench.admin().source("account:1").await;
        let factors = live["models"][0]["factors"].clone();
        until(answer.status == 200 && factors["load"] == 100 && factors["health"] == 100, || format!("{factors}"))
    })
    .await;
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_accounts_are_blocked_and_one_is_free() {
    let bench = bench(1).await;
    for n in 1..=10 {
        let limited = Reply::error(429, "rate_limit_exceeded").header("retry-after", "3600");
        account(&bench, &format!("b{n}"), json!({"max_concurrent": 2}), json!({}), Source::default().then(limited))
            .await;
    }
    account(&bench, "free", json!({"max_concurrent": 2}), json!({}), Source::default().saying("from the free one"))
        .await;
    bench.configured().await;
    for n in 0..30 {
        let conversation = json!([{"role": "user", "content": format!("conversation {n}")}]);
        let answer = bench.chat(1 + n % 3, MODEL).with("messages", conversation).served().await;
        assert_eq!(answer.said(), "from the free one");
    }
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversations_stay_on_their_account_and_move_once_when_it_dies() {
    let bench = bench(1).await;
    for n in 1..=4 {
        let source = Source::default().with_key(format!("token-a{n}")).saying(format!("from a{n}"));
        account(&bench, &format!("a{n}"), json!({}), json!({}), source).await;
    }
    bench.configured().await;
    let turn = async |proxy: usize, conversation: &str, length: usize| {
        let mut messages =
            vec![json!({"role": "system", "content": "be brief"}), json!({"role": "user", "content": conversation})];
        for n in 0..length {
            messages.push(json!({"role": "assistant", "content": format!("answer {n}")}));
            messages.push(json!({"role": "user", "content": format!("and {n}?")}));
        }
        bench.chat(proxy, MODEL).with("messages", messages).served().await.said()
    };
    // Two that begin at different accounts.
    let one = turn(1, "the first one", 0).await;
    let mut name = String::new();
    let mut other = one.clone();
    for n in 0..40 {
        if other != one {
            break;
        }
        name = format!("another one, {n}");
        other = turn(1, &name, 0).await;
    }
    assert_ne!(one, other, "conversations are spread");
    for length in 1..8 {
        assert_eq!(turn(1 + length % 3, "the first one", length).await, one);
        assert_eq!(turn(1 + (length + 1) % 3, &name, length).await, other);
    }
    // A header goes before what it begins with.
    let named = |proxy: usize, text: &str| {
        bench
            .chat(proxy, MODEL)
            .header("x-waybill-session", "s-1")
            .with("messages", json!([{"role": "user", "content": text}]))
    };
    let home = named(1, "a").served().await.said();
    for n in 0..6 {
        assert_eq!(named(1 + n % 3, &format!("text {n}")).served().await.said(), home);
    }

    // The account of the first dies for good.
    let dead = one.trim_start_matches("from ").to_owned();
    let gone = Reply::json(403, json!({"error": {"code": "account_deactivated", "message": "deactivated"}}));
    bench.upstream.set_source(&dead, Source::default().then(gone));
    let moved = turn(1, "the first one", 8).await;
    assert_ne!(moved, one);
    for length in 9..15 {
        assert_eq!(turn(1 + length % 3, "the first one", length).await, moved, "it moves once");
    }
    // Well again, it doesn't take the conversation back.
    bench.upstream.set_source(&dead, Source::default().saying(&one));
    bench.admin().post(&format!("/sources/account:{dead}/lift"), json!({})).await;
    bench.configured().await;
    for length in 15..18 {
        assert_eq!(turn(1 + length % 3, "the first one", length).await, moved);
        assert_eq!(turn(1 + length % 3, &name, length).await, other, "the other one stays where it is");
    }
    let metrics = bench.fleet.metrics("proxy-1").await;
    assert!(metrics.contains("waybill_sticky_total{outcome=\"rebind\"} "), "{metrics}");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_has_spent_its_window_goes_elsewhere_and_others_do_not() {
    let bench = bench(1).await;
    let window = json!({"session_window": {"usd": 0.001, "seconds": 3600}, "priority": 10});
    account(&bench, "plan", json!({}), window, Source::default().saying("from the plan")).await;
    account(&bench, "spare", json!({}), json!({}), Source::default().saying("from the spare")).await;
    // A chat of some ten tokens costs about the whole window.
    bench.admin().put("/prices", json!({"model": MODEL, "input_usd": 100.0, "output_usd": 100.0})).await;
    bench.configured().await;
    let ask = |proxy: usize, session: &str| bench.chat(proxy, MODEL).header("x-waybill-session", session);
    assert_eq!(ask(1, "one").served().await.said(), "from the plan");
    // What went through one replica is known at the others within a second or so.
    let moved = wait_until(Duration::from_secs(10), "the session has spent its window", async || {
        let answer = ask(2, "one").served().await;
        if answer.said() == "from the spare" { Ok(answer) } else { Err(answer.said()) }
    })
    .await;
    let story = bench.admin().history(moved.request()).await;
    assert!(story.to_string().contains("session_window"), "{:#}", *story);
    wait_until(Duration::from_secs(10), "the third replica knows it, too", async || {
        let said = ask(3, "one").served().await.said();
        until(said == "from the spare", || said)
    })
    .await;
    assert_eq!(ask(3, "two").served().await.said(), "from the plan", "another session has its own window");

    // Where nobody else is left, the client hears when the window has room again, and the history names both.
    bench.admin().policy_of("global", json!({"request": {"queue_timeout_ms": 100}})).await;
    let spare = bench.admin().get("/accounts/spare").await;
    let edit = json!({"expected_version": spare["version"], "session_window": {"usd": 0.000_001, "seconds": 60}});
    bench.admin().patch("/accounts/spare", edit).await;
    bench.configured().await;
    let refused = wait_until(Duration::from_secs(10), "the spare is spent, too", async || {
        let answer = ask(1, "one").send().await;
        if answer.status == 429 { Ok(answer) } else { Err(answer.said()) }
    })
    .await;
    let after: u64 = refused.header("retry-after").and_then(|text| text.parse().ok()).unwrap_or(0);
    assert!((2..=62).contains(&after), "the spare's window is the shorter one: {after}");
    let story = bench.admin().history(refused.request()).await;
    let skips = &story["request"]["last_skips"];
    assert_eq!(skips.as_array().map(Vec::len), Some(2), "both are named: {skips:#}");
    bench.fleet.stop().await;
}

/// `C39` of the field reports: slots leaked by clients that leave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_leave_in_the_middle_of_a_stream_leak_no_slot() {
    let bench = bench(1).await;
    account(&bench, "plan", json!({"max_concurrent": 2}), json!({}), Source::default().then(streams(20, 200))).await;
    bench.configured().await;
    for n in 0..20 {
        let stream = bench.chat(1 + n % 3, MODEL).streamed();
        assert!(tokio::time::timeout(Duration::from_millis(500), stream.try_send()).await.is_err(), "it has left");
    }
    bench.upstream.set_source("plan", Source::default().saying("served"));
    let begun = Instant::now();
    wait_until(Duration::from_secs(1), "who comes after them is served", async || {
        let answer = bench.chat(1, MODEL).send().await;
        until(answer.status == 200, || format!("{} after {:?}", answer.status, begun.elapsed()))
    })
    .await;
    assert!(bench.upstream.most_in_flight("plan") <= 2, "{}", bench.upstream.most_in_flight("plan"));
    bench.fleet.stop().await;
}

/// `C44` of the field reports: a limit for each worker instead of the fleet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_is_the_fleets_and_not_each_replicas() {
    let bench = bench(1).await;
    let limits = json!({"max_concurrent": 5, "requests_per_minute": 60});
    account(&bench, "plan", limits, json!({}), Source::default().then(streams(1, 400))).await;
    bench.configured().await;
    let answers = futures_util::future::join_all((0..40).map(|n| sent(bench.chat(1 + n % 3, MODEL)))).await;
    let served = answers.iter().filter(|answer| answer.status == 200).count();
    assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 429)));
    assert!(served >= 3 && bench.upstream.most_in_flight("plan") <= 5, "{served} served");
    bench.admin().policy_of("global", json!({"request": {"queue_timeout_ms": 30_000}})).await;
    bench.configured().await;
    let answers = futures_util::future::join_all((0..40).map(|n| sent(bench.chat(1 + n % 3, MODEL)))).await;
    assert!(answers.iter().all(|answer| answer.status == 200), "served after a bounded wait");
    assert!(bench.upstream.most_in_flight("plan") <= 5, "{}", bench.upstream.most_in_flight("plan"));
    bench.fleet.stop().await;
}

/// `C69` of the field reports: a sticky session overrode availability.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_does_not_wait_for_an_account_that_is_blocked() {
    let bench = bench(1).await;
    for name in ["a1", "a2"] {
        account(&bench, name, json!({}), json!({}), Source::default().saying(format!("from {name}"))).await;
    }
    bench.configured().await;
    let ask = async |proxy: usize| bench.chat(proxy, MODEL).header("x-session-id", "s1").served().await;
    let home = ask(1).await.said();
    let (home, other) = if home == "from a1" { ("a1", "a2") } else { ("a2", "a1") };
    let quota = json!({"error": {"type": "billing_error", "code": "insufficient_quota", "message": "no credit"}});
    bench.upstream.set_source(home, Source::default().then(Reply::json(402, quota)));
    bench.upstream.forget_calls();
    let moved = ask(2).await;
    assert_eq!(moved.said(), format!("from {other}"));
    let story = bench.admin().history(moved.request()).await;
    assert_eq!(story.attempts().len(), 2, "{:#}", *story);
    assert_eq!((ask(3).await.said(), ask(1).await.said()), (format!("from {other}"), format!("from {other}")));
    assert_eq!(bench.upstream.calls_of(home).len(), 1, "and it isn't asked again");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_store_a_limit_holds_as_its_policy_says() {
    let bench = bench(1).await;
    account(&bench, "plan", json!({"max_concurrent": 6}), json!({}), Source::default().then(streams(1, 400))).await;
    bench.configured().await;
    assert_eq!(bench.chat(1, MODEL).send().await.status, 200);
    let most_with = async |policy: &str| {
        bench.admin().policy_of("global", json!({"request": {"on_outage": policy}})).await;
        bench.configured().await;
        bench.fleet.take_away("nats-server");
        // What was held before has lapsed.
        tokio::time::sleep(SLOT_LIFE + Duration::from_secs(3)).await;
        bench.upstream.forget_calls();
        let answers = futures_util::future::join_all((0..30).map(|n| sent(bench.chat(1 + n % 3, MODEL)))).await;
        let served = answers.iter().filter(|answer| answer.status == 200).count();
        assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 429)), "{policy}");
        let most = bench.upstream.most_in_flight("plan");
        bench.fleet.give_back();
        for role in ["proxy-1", "proxy-2", "proxy-3", "admin-1"] {
            bench.fleet.ready(role).await;
        }
        (most, served)
    };
    let (most, served) = most_with("share").await;
    assert!(most <= 6 && served >= 3, "{most} at once, {served} served");
    let (most, served) = most_with("closed").await;
    assert_eq!((most, served), (0, 0));
    let (most, served) = most_with("open").await;
    assert!(most > 6 && served == 30, "{most} at once, {served} served");
    bench.fleet.stop().await;
}
