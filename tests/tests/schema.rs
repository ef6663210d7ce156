//! Answers by a JSON schema that come from another model than the route's first: what doesn't match is a failed attempt
//! and never seen, streamed or not.

#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a suite fails by panicking")]

use serde_json::{Value, json};
use waybill_testkit::upstream::{Reply, Source};
use waybill_testkit::{Answer, Chat};
use waybill_tests::Bench;

const FITS: &str = r#"{"city":"Bern","people":144000}"#;
const DIFFERS: &str = r#"{"city":"Bern","people":"many"}"#;

fn format() -> Value {
    let schema = json!({
        "type": "object",
        "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
        "required": ["city", "people"],
        "additionalProperties": false,
    });
    json!({"type": "json_schema", "json_schema": {"name": "city", "strict": true, "schema": schema}})
}

/// A fleet whose route `smart` has three targets, each with a channel that says this; `None` answers 503.
async fn bench(says: [Option<&str>; 3]) -> Bench {
    let bench = Bench::of(3).await;
    for (n, text) in (1..).zip(says) {
        let source = match text {
            Some(text) => Source::default().saying(text),
            None => Source::default().then(Reply::error(503, "server_error")),
        };
        bench.channel(&format!("channel-{n}"), &[&format!("model-{n}")], 0, source).await;
    }
    let targets: Vec<Value> = (1..=3).map(|n| json!({"model": format!("model-{n}")})).collect();
    bench.admin().post("/routes", json!({"name": "smart", "targets": targets})).await;
    bench.configured().await;
    bench
}

/// Asks every replica, streamed and not.
async fn asked(bench: &Bench, check: impl AsyncFn(Answer, bool)) {
    for (proxy, streamed) in [(1, false), (2, true), (3, false), (3, true)] {
        let chat: Chat = bench.chat(proxy, "smart").with("response_format", format());
        let chat = if streamed { chat.streamed() } else { chat };
        check(chat.send().await, streamed).await;
    }
}

fn said(answer: &Answer, streamed: bool) -> String {
    if streamed {
        return answer.said();
    }
    answer.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_model_answers_is_held_against_the_schema() {
    let bench = bench([None, Some(DIFFERS), Some(FITS)]).await;
    asked(&bench, async |answer, streamed| {
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(said(&answer, streamed), FITS);
        assert!(!answer.text().contains("many"), "nothing of the other answer is seen: {}", answer.text());
        assert_eq!(answer.header("x-waybill-served-model"), Some("model-3"));
        if streamed {
            assert_eq!(answer.events().last().map(String::as_str), Some("[DONE]"), "{}", answer.text());
        }
        let story = bench.admin().history(answer.request()).await;
        let attempts = story.attempts();
        let differed = attempts.iter().find(|attempt| attempt.source == "channel-2").unwrap();
        assert_eq!((differed.kind.as_str(), differed.rule.as_str()), ("malformed_response", "shape/schema_mismatch"));
    })
    .await;
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nobody_matches_the_client_is_told_of_a_failure() {
    let bench = bench([None, Some(DIFFERS), Some("Bern has 144000 inhabitants.")]).await;
    asked(&bench, async |answer, _| {
        assert_eq!((answer.status, answer.code().as_deref()), (502, Some("all_sources_failed")), "{}", answer.text());
    })
    .await;
    // Where that is switched off, the model's answer is the answer.
    bench.admin().policy_of("route:smart", json!({"request": {"validate_schema": false}})).await;
    bench.configured().await;
    asked(&bench, async |answer, streamed| assert_eq!(said(&answer, streamed), DIFFERS)).await;
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_that_was_asked_for_is_not_judged() {
    let bench = bench([Some(DIFFERS), Some(FITS), Some(FITS)]).await;
    asked(&bench, async |answer, streamed| assert_eq!(said(&answer, streamed), DIFFERS)).await;
    bench.fleet.stop().await;
}
