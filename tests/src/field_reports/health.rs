//! Reports on shared state: breakers of models and sources, blocks, hints, disabled sources, and what ends each.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use serde_json::{Value, json};
use waybill_testkit::upstream::Reply;
use waybill_testkit::{Answer, until, wait_until};

use super::Script;
use super::replies::{always, bad_key, error, fault, ill, ok, slow_down, stream, told, turns, well};
use super::script::{MODEL, ask, script};
use super::stage::{KNOWN, SOON, Stage, brief};

/// A window that nobody waits for.
const LONG_MS: u64 = 3_600_000;

pub(super) fn scripts() -> Vec<Script> {
    [models(), disabled(), hints(), limits(), probes()].into_iter().flatten().collect()
}

fn opens_at_the(fails: u32, open_ms: u64) -> Value {
    let source = json!({"min_outcomes": 0, "consecutive_fails": fails, "open_ms": open_ms, "open_max_ms": open_ms,
        "slow_start_ms": 60_000});
    json!({"source_breaker": source, "model_breaker": {"consecutive_fails": 0, "min_outcomes": 0}})
}

/// C11: one sick model is one sick model.
fn models() -> Vec<Script> {
    let sick = || Reply::json(500, json!({"message": "service do not have healthy model m-chat now"}));
    let in_stream = stream(&format!("{}\n\n", fault(&error("x", "x", "no healthy model at the moment"))));
    let others = ["m-one", "m-two", "m-three", "m-four", "m-five"];
    let six = [&[MODEL], &others[..]].concat();
    let window = json!({"model_breaker": {"open_ms": 1_000, "open_max_ms": 1_000, "slow_start_ms": 0}});
    vec![
        script("c11")
            .channel_of("a", 10, None, &[MODEL, "m-other"], well().for_model(MODEL, sick()))
            .selector(json!({"model_breaker": {"open_ms": LONG_MS, "open_max_ms": LONG_MS}}))
            .ask(
                ask(1)
                    .refused(503, "model_unavailable")
                    .walked(&[("a", "model_unavailable")])
                    .health("a", "ok", "fail"),
            )
            .then(|stage| Box::pin(the_other_model_goes_on(stage)))
            .never_source_opens("a")
            .logs_of_model("breaker_opened", "a", 1),
        // Streams with the error in their first event, six models, clients that try again and again at all replicas, and a
        // recovery that a probe finds.
        script("c11-six-models")
            .channel_of("a", 10, None, &six, well().for_model(MODEL, in_stream))
            .selector(window)
            .then(|stage| Box::pin(one_of_six(stage)))
            .never_source_opens("a"),
    ]
}

async fn the_other_model_goes_on(stage: &Stage<'_>) {
    for _ in 0..2 {
        assert_eq!(stage.chat(1).send().await.status, 503);
    }
    stage.model_breaker("a", MODEL, "open").await;
    for n in 0..9 {
        let answer = stage.chat(n % 3 + 1).with("stream", n % 2 == 0).send().await;
        assert_eq!((answer.status, answer.code().as_deref()), (503, Some("no_source_available")), "{}", answer.text());
    }
    assert_eq!(stage.calls("a").len(), 3, "open at the third failure, for all replicas");
    for proxy in 1..=3 {
        assert_eq!(stage.chat_for(proxy, "m-other").served().await.said(), "from a", "proxy-{proxy}");
    }
    let live = stage.live("a").await;
    assert_eq!(live.pointer("/live/scope/breaker"), Some(&json!("closed")), "{live:#}");
}

async fn one_of_six(stage: &Stage<'_>) {
    let sick = async {
        for n in 0..60 {
            let answer = stage.chat(n % 3 + 1).streamed().header("x-stainless-retry-count", "1").send().await;
            assert_eq!(answer.status, 503, "{}", answer.text());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let others = join_all(["m-one", "m-two", "m-three", "m-four", "m-five"].map(|model| async move {
        for n in 0..15 {
            let answer = stage.chat_for(n % 3 + 1, model).with("stream", n % 2 == 0).served().await;
            assert_eq!(answer.said(), "from a", "{model} never misses a request");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }));
    let begun = std::time::Instant::now();
    tokio::join!(sick, others);
    let (took, model) = (begun.elapsed(), stage.script.model(MODEL));
    let asked = stage.calls("a").iter().filter(|call| call.json().get("model") == Some(&json!(model))).count();
    // Three failures, one more by each replica that hadn't heard yet, and one probe for each window since.
    let most = 5 + usize::try_from(took.as_secs()).unwrap_or(0) + 1;
    assert!((3..=most).contains(&asked), "{asked} calls of the sick model within {took:?}");
    stage.now("a", well());
    wait_until(KNOWN, "a probe finds that the model is well", async || {
        let answer = stage.chat(2).send().await;
        until(answer.status == 200, || format!("{} {}", answer.status, answer.text()))
    })
    .await;
    stage.model_breaker("a", MODEL, "closed").await;
    for proxy in 1..=3 {
        assert_eq!(stage.chat(proxy).served().await.said(), "from a", "proxy-{proxy}");
    }
}

/// C46, C69: what one replica learns of a credential, all go by.
fn disabled() -> Vec<Script> {
    let deactivated = || told(403, "x", "account_deactivated", "The account was deactivated");
    let no_credit = || told(402, "billing_error", "insufficient_quota", "no credit");
    vec![
        script("c46")
            .source("a1", 10, always(bad_key()))
            .source("a2", 5, well())
            .ask(ask(1).served_by("a2").walked(&[("a1", "auth_invalid"), ("a2", "success")]))
            .then(|stage| Box::pin(the_others_know(stage)))
            .logs("source_disabled", "a1", 1)
            .untouched("a2"),
        // A ban, streamed, seen by the third replica first; a human lifts it.
        script("c46-banned-stream")
            .source("a1", 10, turns([deactivated(), ok()]))
            .source("a2", 5, well())
            .ask(ask(3).streamed().served_by("a2").walked(&[("a1", "account_banned"), ("a2", "success")]))
            .then(|stage| Box::pin(a_human_lifts_the_ban(stage)))
            .logs("source_disabled", "a1", 1)
            .logs("source_enabled", "a1", 1),
        // The part of it that needs no session: who has served a conversation is asked no more once it can't.
        script("c69")
            .source("a1", 10, turns([ok(), no_credit()]))
            .source("a2", 5, well())
            .ask(ask(1).header("x-session-id", "s1").served_by("a1").walked(&[("a1", "success")]))
            .ask(
                ask(2)
                    .header("x-session-id", "s1")
                    .served_by("a2")
                    .walked(&[("a1", "billing_exhausted"), ("a2", "success")]),
            )
            .then(|stage| Box::pin(the_conversation_goes_on(stage)))
            .logs("source_disabled", "a1", 1),
        script("c69-in-200")
            .source(
                "a1",
                10,
                turns([ok(), Reply::json(200, error("insufficient_quota", "insufficient_quota", "no credit"))]),
            )
            .source("a2", 5, well())
            .ask(ask(3).streamed().header("x-session-id", "s2").served_by("a1"))
            .ask(ask(1).header("x-session-id", "s2").served_by("a2"))
            .then(|stage| Box::pin(the_conversation_goes_on(stage)))
            .logs("source_disabled", "a1", 1),
    ]
}

fn is_disabled(state: &Value) -> bool {
    state.get("disabled").and_then(Value::as_bool) == Some(true)
}

async fn the_others_know(stage: &Stage<'_>) {
    stage.everywhere("a1", "disabled", is_disabled).await;
    let answers =
        join_all((0..20).map(|n| async move { stage.chat(n % 2 + 2).with("stream", n % 4 < 2).served().await }));
    for answer in answers.await {
        assert_eq!(answer.said(), "from a2");
    }
    assert_eq!(stage.calls("a1").len(), 1, "a dead key is asked once in the whole fleet");
}

async fn a_human_lifts_the_ban(stage: &Stage<'_>) {
    stage.everywhere("a1", "disabled", is_disabled).await;
    let live = stage.live("a1").await;
    assert_eq!(live.pointer("/live/disabled/recovery"), Some(&json!("operator")), "{live:#}");
    assert_eq!(stage.chat(1).streamed().served().await.said(), "from a2");
    assert_eq!(stage.calls("a1").len(), 1);
    lift(stage, "a1").await;
    stage.everywhere("a1", "enabled", |state| !is_disabled(state)).await;
    for proxy in 1..=3 {
        assert_eq!(stage.chat(proxy).streamed().served().await.said(), "from a1", "proxy-{proxy}");
    }
}

async fn lift(stage: &Stage<'_>, channel: &str) {
    let path = format!("/sources/{}/lift", stage.source(channel));
    stage.bench.admin().post(&path, json!({"reason": "it is well again"})).await;
}

async fn the_conversation_goes_on(stage: &Stage<'_>) {
    stage.everywhere("a1", "disabled", is_disabled).await;
    for proxy in 1..=3 {
        let answer = stage.chat(proxy).header("x-session-id", "s1").served().await;
        assert_eq!(answer.said(), "from a2", "proxy-{proxy}");
    }
    assert_eq!(stage.calls("a1").len(), 2);
}

/// C48: hints are obeyed up to their kind's cap, in whatever form they come, and a human can end them.
fn hints() -> Vec<Script> {
    let limit = || told(429, "rate_limit_error", "usage_limit_reached", "limit");
    let days = || limit().header("retry-after", "1587827");
    let busy = || ask(1).refused(429, "rate_limited");
    let cap = 3_500..=3_600;
    vec![
        script("c48")
            .source("a1", 10, turns([days(), ok()]))
            .ask(busy().walked(&[("a1", "rate_limited")]).retry_after(cap.clone()).health("a1", "none", "none"))
            .then(|stage| Box::pin(capped_shown_and_lifted(stage)))
            .logs("block_set", "a1", 1)
            .logs("block_lifted", "a1", 1)
            .never_opens("a1"),
        // In milliseconds, which are finer than the seconds beside them; seen by another replica; with a sibling that serves.
        script("c48-milliseconds")
            .source("a1", 10, turns([limit().header("retry-after-ms", "1587827000").header("retry-after", "3"), ok()]))
            .source("a2", 5, well())
            .ask(ask(2).streamed().served_by("a2").walked(&[("a1", "rate_limited"), ("a2", "success")]))
            .then(|stage| Box::pin(capped(stage)))
            .logs("block_set", "a1", 1),
        script("c48-body")
            .source("a1", 10, turns([told(429, "rate_limit_error", "rl", "Please try again in 1587827s"), ok()]))
            .source("a2", 5, well())
            .ask(ask(3).served_by("a2").walked(&[("a1", "rate_limited"), ("a2", "success")]))
            .then(|stage| Box::pin(capped(stage))),
        script("c48-date")
            .source("a1", 10, well())
            .then(|stage| Box::pin(a_date_counts_from_now(stage)))
            .never_opens("a1"),
        // What is no wait is none: the limit without a hint blocks softly, and an only source is asked all the same.
        script("c48-garbage")
            .source("a1", 10, turns([limit().header("retry-after", "-5"), limit().header("retry-after", "soon"), ok()]))
            .ask(busy().header("x-stainless-retry-count", "1").walked(&[("a1", "rate_limited")]).retry_after(1..=5))
            .ask(busy().header("x-stainless-retry-count", "1").walked(&[("a1", "rate_limited")]))
            .ask(ask(3).served_by("a1").walked(&[("a1", "success")])),
    ]
}

/// For how long from its beginning a hint blocks, in seconds.
async fn hinted_s(stage: &Stage<'_>) -> u64 {
    let block = stage.blocked("a1", "hint").await;
    let at = |field: &str| block.get(field).and_then(Value::as_str).and_then(micros);
    match (at("since"), at("until")) {
        (Some(since), Some(until)) => until.saturating_sub(since) / 1_000_000,
        other => panic!("no times {other:?} in {block}"),
    }
}

/// Microseconds since 1970 of a time as the API writes it.
fn micros(text: &str) -> Option<u64> {
    let time: waybill_event::LogTime = serde_json::from_value(json!(text)).ok()?;
    u64::try_from(time.as_millis()).ok().map(|ms| ms * 1_000)
}

async fn capped(stage: &Stage<'_>) {
    assert_eq!(hinted_s(stage).await, 3_600, "the cap of a limit without a type");
    for proxy in 1..=3 {
        assert_eq!(stage.chat(proxy).served().await.said(), "from a2", "proxy-{proxy}");
    }
    assert_eq!(stage.calls("a1").len(), 1, "never asked before the hint");
}

async fn capped_shown_and_lifted(stage: &Stage<'_>) {
    assert_eq!(hinted_s(stage).await, 3_600, "the cap of a limit without a type");
    for proxy in [2, 3] {
        let answer = stage.chat(proxy).send().await;
        assert_eq!((answer.status, answer.code().as_deref()), (429, Some("rate_limited")), "{}", answer.text());
        let left = answer.header("retry-after").and_then(|value| value.parse().ok());
        assert!(left.is_some_and(|left: u64| left <= 3_600), "{:?}", answer.headers);
    }
    assert_eq!(stage.calls("a1").len(), 1, "never asked before the hint");
    lift(stage, "a1").await;
    for proxy in 1..=3 {
        wait_until(KNOWN, format_args!("proxy-{proxy} asks again"), async || {
            let answer = stage.chat(proxy).send().await;
            until(answer.status == 200, || format!("{} {}", answer.status, answer.text()))
        })
        .await;
    }
}

async fn a_date_counts_from_now(stage: &Stage<'_>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let date = http_date(now.as_secs() + 120);
    stage.now("a1", turns([slow_down().header("retry-after", date), ok()]));
    let answer = stage.chat(2).send().await;
    let wait = answer.header("retry-after").and_then(|value| value.parse::<u64>().ok());
    assert_eq!(answer.status, 429, "{}", answer.text());
    assert!(wait.is_some_and(|wait| (60..=121).contains(&wait)), "{:?}", answer.headers);
    let hinted = hinted_s(stage).await;
    assert!((60..=121).contains(&hinted), "{hinted} s");
    assert_eq!(stage.chat(3).streamed().send().await.status, 429);
    assert_eq!(stage.calls("a1").len(), 1);
}

/// A time of this day or a later one as HTTP writes it.
fn http_date(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Civil date from days, by eras of 400 years that begin in March.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let names = ["Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb"];
    let name = usize::try_from(month).ok().and_then(|month| names.get(month)).copied().unwrap_or_default();
    let year = era * 400 + year + u64::from(month >= 10);
    let weekdays = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let weekday = usize::try_from(days % 7).ok().and_then(|day| weekdays.get(day)).copied().unwrap_or_default();
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{weekday}, {day:02} {name} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

/// C49: all limited is told as a limit, with the soonest end, by replicas that have asked nobody.
fn limits() -> Vec<Script> {
    let limited = |seconds: &str| slow_down().header("retry-after", seconds);
    let in_body = told(429, "rate_limit_error", "rl", "Rate limit reached. Please try again in 400s.");
    let walked = [("a1", "rate_limited"), ("a2", "rate_limited")];
    vec![
        script("c49")
            .source("a1", 10, turns([limited("300"), ok()]))
            .source("a2", 5, turns([limited("250"), ok()]))
            .ask(
                ask(1).refused(429, "rate_limited").retry_after(150..=250).walked(&walked).health("a1", "none", "none"),
            )
            .then(|stage| Box::pin(nobody_is_asked_before_the_hint(stage)))
            .never_opens("a1")
            .never_opens("a2"),
        // Streamed, in other forms, with a third that is overloaded inside a 200.
        script("c49-streamed")
            .source("a1", 10, turns([in_body, ok()]))
            .source("a2", 7, turns([slow_down().header("retry-after-ms", "355000"), ok()]))
            .ask(ask(2).streamed().refused(429, "rate_limited").retry_after(250..=355).walked(&walked))
            .then(|stage| Box::pin(nobody_is_asked_before_the_hint(stage))),
    ]
}

async fn nobody_is_asked_before_the_hint(stage: &Stage<'_>) {
    stage.blocked("a1", "hint").await;
    stage.blocked("a2", "hint").await;
    let left = |answer: &Answer| answer.header("retry-after").and_then(|value| value.parse::<u64>().ok());
    for proxy in 1..=3 {
        let asked = wait_until(KNOWN, format_args!("proxy-{proxy} knows both hints"), async || {
            let answer = stage.chat(proxy).with("stream", proxy == 2).send().await;
            let busy = answer.status == 429 && left(&answer).is_some_and(|left| (1..=355).contains(&left));
            if busy { Ok(answer) } else { Err(format!("{} {}", answer.status, answer.text())) }
        })
        .await;
        let story = stage.story(&asked).await;
        assert_eq!(story.asked(), Vec::<String>::new(), "{}", brief(&story));
    }
    assert_eq!((stage.calls("a1").len(), stage.calls("a2").len()), (1, 1), "asked once each");
}

/// C62: after its window a breaker is probed by one request of the whole fleet.
fn probes() -> Vec<Script> {
    let slowly = || ill(500).delay_head(700);
    vec![
        script("c62")
            .source("a", 10, turns([ill(500), ill(500), slowly(), ok().delay_head(300), ok()]))
            .source("b", 5, well())
            .selector(opens_at_the(2, 1_500))
            .ask(ask(1).times(2).served_by("b"))
            .then(|stage| Box::pin(one_probe_a_window(stage))),
        // Streamed, and a policy that wants two successes: two windows' worth of probes, one after the other.
        script("c62-two-successes")
            .source("a", 10, turns([ill(503), ill(503), ok()]))
            .source("b", 5, well())
            .selector(json!({
                "source_breaker": {"min_outcomes": 0, "consecutive_fails": 2, "open_ms": 1_000, "open_max_ms": 1_000,
                    "slow_start_ms": 0, "successes_to_close": 2},
                "model_breaker": {"consecutive_fails": 0, "min_outcomes": 0},
            }))
            .ask(ask(2).times(2).streamed().served_by("b"))
            .then(|stage| Box::pin(two_successes_close(stage)))
            .logs("breaker_opened", "a", 1)
            .logs("breaker_closed", "a", 1),
    ]
}

async fn burst(stage: &Stage<'_>, count: usize, streamed: bool) -> usize {
    let asked =
        join_all((0..count).map(|n| async move { stage.chat(n % 3 + 1).with("stream", streamed).served().await }));
    asked.await.iter().filter(|answer| answer.said() == "from a").count()
}

async fn one_probe_a_window(stage: &Stage<'_>) {
    stage.breaker("a", "half_open").await;
    let before = stage.calls("a").len();
    assert_eq!(before, 2, "open at the second failure");
    // The probe fails, and its client is served all the same; so is everybody while the second one runs.
    burst(stage, 60, false).await;
    wait_until(SOON, "the second probe has been sent", async || {
        burst(stage, 6, false).await;
        let calls = stage.calls("a").len();
        until(calls > 3, || calls.to_string())
    })
    .await;
    stage.breaker("a", "closed").await;
    if permits_came_late(stage, "a") {
        // With a store that doesn't answer in time each replica may probe once; who probes is no longer the fleet's to say.
        return;
    }
    let told = async |kind: &str| {
        let events = stage.bench.fleet.events().await;
        let own = |event: &&Value| {
            let source = event.pointer("/data/scope/source").map(waybill_testkit::source_text);
            event.get("type") == Some(&json!(kind)) && source.as_deref() == Some(stage.source("a"))
        };
        events.iter().filter(own).count()
    };
    for (kind, count) in [("breaker_opened", 2), ("breaker_half_opened", 2), ("breaker_closed", 1)] {
        wait_until(KNOWN, format_args!("{count} {kind}"), async || {
            let found = told(kind).await;
            until(found == count, || found.to_string())
        })
        .await;
    }
    let calls = stage.calls("a");
    for probe in [2, 3] {
        let decided = calls.get(probe).and_then(|call| call.answered);
        let meanwhile = calls.iter().skip(probe + 1).filter(|call| Some(call.received) < decided).count();
        assert_eq!(meanwhile, 0, "nobody else asks while a probe runs: {calls:?}");
    }
    let factor = wait_until(SOON, "the ramp is shown", async || {
        let live = stage.live("a").await;
        let factor = live.pointer("/models/0/factors/recovery").and_then(Value::as_u64);
        factor.ok_or_else(|| live.to_string())
    })
    .await;
    assert!((1..100).contains(&factor), "the share grows, it isn't whole at once: {factor}");
}

/// Whether a replica probed a channel without having heard from the store in time.
fn permits_came_late(stage: &Stage<'_>, channel: &str) -> bool {
    let source = format!("\"{}\"", stage.source(channel));
    (1..=stage.bench.fleet.proxies().len()).any(|number| {
        let log = stage.bench.fleet.dir().join(format!("log/proxy-{number}.log"));
        let text = std::fs::read_to_string(log).unwrap_or_default();
        text.lines().any(|line| line.contains("without the store's permit") && line.contains(&source))
    })
}

async fn two_successes_close(stage: &Stage<'_>) {
    stage.breaker("a", "half_open").await;
    wait_until(Duration::from_secs(20), "the breaker closes", async || {
        burst(stage, 6, true).await;
        let state = stage.bench.fleet.source_state("proxy-3", stage.source("a")).await;
        until(state.get("breaker") == Some(&json!("closed")), || state.to_string())
    })
    .await;
    stage.breaker("a", "closed").await;
    for proxy in 1..=3 {
        assert_eq!(stage.chat(proxy).streamed().served().await.said(), "from a", "proxy-{proxy}");
    }
    let half = json!("breaker_half_opened");
    let source = stage.source("a");
    let claims = stage.bench.fleet.events().await;
    let own = |event: &&Value| {
        event.get("type") == Some(&half)
            && event.pointer("/data/scope/source").map(waybill_testkit::source_text).as_deref() == Some(source)
    };
    let claims = claims.iter().filter(own).count();
    assert!(claims >= 2, "{claims} probes were claimed");
}
