//! The four experiments of routing by the kind of a failure, each streamed and not, over three replicas: a timeout inside a
//! deadline, a rate limit, a broken format, a refusal.

#![expect(clippy::indexing_slicing, reason = "a suite fails by panicking")]

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use waybill_testkit::upstream::{Body, Reply, Source};
use waybill_testkit::{Answer, Chat, Story};
use waybill_tests::Bench;

/// A way of asking: a name for its sources, whether it streams, and at which replica.
const WAYS: [(&str, bool, usize); 2] = [("whole", false, 1), ("stream", true, 2)];

/// Channels in tiers of their own, in this order, each with its upstream's behaviour; all offer the model `name`.
async fn tiers(bench: &Bench, name: &str, sources: Vec<Source>) {
    for (n, source) in (1..).zip(sources) {
        bench.channel(&format!("{name}-{n}"), &[name], 10 - n, source).await;
    }
}

fn ask(bench: &Bench, name: &str, streamed: bool, proxy: usize) -> Chat {
    let chat = bench.chat(proxy, name);
    if streamed { chat.streamed() } else { chat }
}

async fn told(bench: &Bench, answer: &Answer) -> Story {
    bench.admin().history(answer.request()).await
}

fn calls(bench: &Bench, name: &str, number: usize) -> usize {
    bench.upstream.calls_of(&format!("{name}-{number}")).len()
}

/// The events of a request, in order.
async fn events(bench: &Bench, answer: &Answer) -> Vec<Value> {
    let id = answer.request();
    bench.fleet.events().await.into_iter().filter(|event| event["request"] == id).collect()
}

fn of<'a>(events: &'a [Value], event_type: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == event_type).collect()
}

fn error(answer: &Answer) -> Value {
    answer.json()["error"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempts_timeout_inside_a_deadline_passes_the_rest_on_to_the_next() {
    let bench = Bench::of(3).await;
    let limits = json!({"first_content_ms": 900, "whole_ms": 900});
    bench.admin().policy_of("global", json!({"request": limits})).await;
    let slow = || Source::default().then(Reply::default().delay_head(30_000));
    let soon = || Source::default().then(Reply::default().delay_head(100)).saying("in time");
    for (way, ..) in WAYS {
        tiers(&bench, way, vec![slow(), soon()]).await;
        tiers(&bench, &format!("{way}-both"), vec![slow(), slow(), soon()]).await;
    }
    bench.configured().await;
    for (way, streamed, proxy) in WAYS {
        let begun = Instant::now();
        let answer = ask(&bench, way, streamed, proxy).header("x-waybill-deadline-ms", "1500").served().await;
        assert!(begun.elapsed() >= Duration::from_millis(900), "{way}: {:?}", begun.elapsed());
        let story = told(&bench, &answer).await;
        assert_eq!(story.kinds(), ["timeout", "success"], "{way}: {:#}", *story);
        // The first attempt gets its own limit, the second what the first has left of the deadline.
        let events = events(&bench, &answer).await;
        let started = of(&events, "attempt_started");
        let given: Vec<u64> = started.iter().map(|event| event["data"]["timeout_ms"].as_u64().unwrap()).collect();
        assert_eq!(given[0], 900, "{way}");
        assert!((400..=600).contains(&given[1]), "{way}: of 1,500 ms the first has used 900: {given:?}");
        assert_eq!(of(&events, "request_admitted")[0]["data"]["deadline_ms"], 1_500);

        // Where the rest isn't enough either, the deadline holds, and nobody is asked beyond it. A timeout never gets a
        // second try on the same source.
        let name = format!("{way}-both");
        let begun = Instant::now();
        let answer = ask(&bench, &name, streamed, proxy).header("x-stainless-timeout", "1.5").send().await;
        let took = begun.elapsed();
        assert_eq!((answer.status, answer.code().as_deref()), (504, Some("deadline_exceeded")), "{}", answer.text());
        assert!((1_400..2_500).contains(&took.as_millis()), "{way}: {took:?}");
        assert_eq!([1, 2, 3].map(|n| calls(&bench, &name, n)), [1, 1, 0], "{way}");
    }
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_limit_is_never_resent_at_once_and_its_wait_is_recorded() {
    let bench = Bench::of(3).await;
    let limited = |ms: u64| Reply::error(429, "rate_limit_exceeded").header("retry-after-ms", ms.to_string());
    let once = |ms| Source::default().then(limited(ms)).then(Reply::default()).saying("after the wait");
    for (way, ..) in WAYS {
        tiers(&bench, &format!("{way}-sibling"), vec![once(1_200), Source::default().saying("from the sibling")]).await;
        tiers(&bench, &format!("{way}-alone"), vec![once(1_200)]).await;
        tiers(&bench, &format!("{way}-long"), vec![once(40_000)]).await;
    }
    bench.configured().await;
    for (way, streamed, proxy) in WAYS {
        // A sibling serves at once; the source that is too fast isn't asked before its hint, by no replica.
        let name = format!("{way}-sibling");
        let answer = ask(&bench, &name, streamed, proxy).served().await;
        assert_eq!(answer.said(), "from the sibling", "{way}");
        waited(&bench, &answer, 1_200).await;
        for proxy in 1..=3 {
            assert_eq!(ask(&bench, &name, streamed, proxy).served().await.said(), "from the sibling");
        }
        assert_eq!(calls(&bench, &name, 1), 1, "{way}: not resent");

        // Alone, the hint is waited out, since it fits the patience: the second call comes after it, never sooner.
        let name = format!("{way}-alone");
        let answer = ask(&bench, &name, streamed, proxy).served().await;
        assert_eq!(answer.said(), "after the wait", "{way}");
        let calls = bench.upstream.calls_of(&format!("{name}-1"));
        let between = calls[1].received - calls[0].answered.unwrap();
        assert!((1_190..3_000).contains(&between.as_millis()), "{way}: {between:?}");
        let story = told(&bench, &answer).await;
        let attempts = story.attempts();
        assert_eq!((attempts[0].kind.as_str(), attempts[0].next.as_str()), ("rate_limited", "same"), "{:#}", *story);
        assert_eq!(attempts[1].why, "same_source", "{:#}", *story);
        let events = events(&bench, &answer).await;
        let finished = of(&events, "attempt_finished");
        assert_eq!(finished[0]["data"]["evidence"]["wait_ms"], 1_200, "{way}: {:#}", finished[0]);

        // Longer than the patience: told to the client with its end, and nobody asks until then.
        let name = format!("{way}-long");
        let answer = ask(&bench, &name, streamed, proxy).send().await;
        assert_eq!((answer.status, answer.code().as_deref()), (429, Some("rate_limited")), "{}", answer.text());
        assert!(
            (39..=40).contains(&answer.header("retry-after").unwrap().parse::<u64>().unwrap()),
            "{:?}",
            answer.headers
        );
        waited(&bench, &answer, 40_000).await;
        assert_eq!(ask(&bench, &name, streamed, proxy).send().await.status, 429);
        assert_eq!(bench.upstream.calls_of(&format!("{name}-1")).len(), 1, "{way}");
    }
    bench.fleet.stop().await;
}

/// The limit is recorded with what it asked to wait, in the attempt and as a block of the source.
async fn waited(bench: &Bench, answer: &Answer, ms: u64) {
    told(bench, answer).await;
    let events = events(bench, answer).await;
    let (finished, outcomes) = (of(&events, "attempt_finished"), of(&events, "source_outcome"));
    assert_eq!(
        (&finished[0]["data"]["kind"], &finished[0]["data"]["evidence"]["wait_ms"]),
        (&json!("rate_limited"), &json!(ms))
    );
    let block = &outcomes[0]["data"]["block"];
    assert_eq!((&block["strength"], &block["duration_ms"]), (&json!("hint"), &json!(ms)), "{:#}", outcomes[0]);
    let health = (&outcomes[0]["data"]["source_health"], &outcomes[0]["data"]["model_health"]);
    assert_eq!(health, (&json!("none"), &json!("none")), "a limit is no evidence for a breaker");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_format_goes_to_the_next_candidate_whose_answer_is_looked_at_as_closely() {
    let bench = Bench::of(3).await;
    let text = |content_type: &str, text: &str| {
        let body = Body::Text { content_type: content_type.to_owned(), text: text.to_owned() };
        Source::default().then(Reply { body, ..Reply::default() })
    };
    let cut = || {
        text("application/json", "{\"id\":\"x\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"cont")
    };
    let page = || text("text/html", "<html><body>Welcome</body></html>");
    let nothing =
        || Source::default().then(Reply::json(200, json!({"id": "x", "object": "chat.completion", "choices": []})));
    let frames = |frame: &str| Source::default().then(Reply::frames([frame.to_owned()]));
    let good = || Source::default().saying("well formed");
    tiers(&bench, "whole", vec![cut(), nothing(), good()]).await;
    tiers(&bench, "stream", vec![frames("data: {\"id\":\"x\",\"choices\":[{\"ind"), page(), good()]).await;
    tiers(&bench, "whole-all", vec![page(), cut()]).await;
    tiers(&bench, "stream-all", vec![page(), frames("data: [1,2")]).await;
    bench.configured().await;
    for (way, streamed, proxy) in WAYS {
        let answer = ask(&bench, way, streamed, proxy).served().await;
        assert_eq!(answer.said(), "well formed", "{way}");
        let story = told(&bench, &answer).await;
        assert_eq!(story.asked(), [1, 2, 3].map(|n| format!("{way}-{n}")), "{:#}", *story);
        let kinds = story.kinds();
        assert!(kinds[..2].iter().all(|kind| kind != "success") && kinds[2] == "success", "{way}: {kinds:?}");
        let events = events(&bench, &answer).await;
        // What isn't the protocol's speaks against the source, an answer without content against the model.
        let outcomes = of(&events, "source_outcome");
        let blamed =
            |event: &&Value| event["data"]["source_health"] == "fail" || event["data"]["model_health"] == "fail";
        assert_eq!(outcomes.iter().map(blamed).collect::<Vec<_>>(), [true, true, false], "{way}: {outcomes:#?}");

        // Nothing of a broken answer reaches the client, also where every one is broken.
        let name = format!("{way}-all");
        let answer = ask(&bench, &name, streamed, proxy).send().await;
        assert_eq!(answer.status, 502, "{way}: {}", answer.text());
        assert_eq!([1, 2].map(|n| calls(&bench, &name, n) > 0), [true, true]);
        assert!(!answer.text().contains("Welcome") && !answer.text().contains("\"ind"), "{}", answer.text());
    }
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_makes_no_second_call_and_keeps_its_category() {
    let bench = Bench::of(3).await;
    let refusal = |code: &str| {
        let error = json!({"message": "flagged for violence", "type": "invalid_request_error", "code": code});
        Source::default().then(Reply::json(400, json!({"error": error})))
    };
    for (way, ..) in WAYS {
        for code in ["content_policy_violation", "content_filter"] {
            let name = format!("{way}-{code}");
            tiers(&bench, &name, vec![refusal(code), Source::default().saying("shopped around")]).await;
        }
    }
    bench.configured().await;
    for (way, streamed, proxy) in WAYS {
        for code in ["content_policy_violation", "content_filter"] {
            let name = format!("{way}-{code}");
            let answer = ask(&bench, &name, streamed, proxy).send().await;
            assert_eq!(answer.status, 400, "{}", answer.text());
            let error = error(&answer);
            assert_eq!((&error["code"], &error["type"]), (&json!(code), &json!("policy_refusal")), "{way}: {error:#}");
            assert_eq!(error["message"], "flagged for violence", "{way}: the provider's own words");
            assert_eq!([1, 2].map(|n| calls(&bench, &name, n)), [1, 0], "{way}: one call");
            let story = told(&bench, &answer).await;
            assert_eq!((story.state(), story.kinds()), ("refused", vec!["policy_refusal".to_owned()]), "{:#}", *story);
            let events = events(&bench, &answer).await;
            let outcome = &of(&events, "source_outcome")[0]["data"];
            let says = (&outcome["source_health"], &outcome["model_health"], &outcome["block"]);
            assert_eq!(says, (&json!("none"), &json!("none"), &Value::Null), "nothing is held against the source");
            assert_eq!(of(&events, "attempt_finished")[0]["data"]["evidence"]["code"], code);
        }
    }
    bench.fleet.stop().await;
}
