//! Running the scenarios: all at once, each with sources and a route of its own, so that none disturbs another.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use waybill_testkit::upstream::{Call, Source};
use waybill_testkit::{Answer, Chat};

use super::primary::{self, WORDS};
use super::{Pace, Result, Variant, verdict};
use crate::{Bench, channel_entry};

/// One call of a client, as it went.
#[derive(Debug)]
pub(super) struct Called {
    /// When it began.
    pub(super) begun: Instant,
    /// How long it took.
    pub(super) took: Duration,
    /// The answer, if one came.
    pub(super) answer: std::result::Result<Answer, String>,
}

impl Called {
    /// Whether the whole healthy answer came, once, with a proper end.
    pub(super) fn is_rescued(&self, streamed: bool) -> bool {
        let Ok(answer) = &self.answer else { return false };
        let words: Vec<String> = (1..=WORDS).map(|n| format!("word{n}")).collect();
        self.claims_success(streamed) && answer.said() == words.join(" ")
    }

    /// Whether a client would take it for a complete success.
    pub(super) fn claims_success(&self, streamed: bool) -> bool {
        let Ok(answer) = &self.answer else { return false };
        if answer.status != 200 {
            return false;
        }
        if !streamed {
            return answer.json().pointer("/choices/0/finish_reason").is_some_and(Value::is_string);
        }
        let events = answer.events();
        let finished = events.iter().any(|data| {
            let chunk: Value = serde_json::from_str(data).unwrap_or_default();
            chunk.pointer("/choices/0/finish_reason").is_some_and(Value::is_string)
        });
        let erred = events.iter().any(|data| data.starts_with("{\"error\""));
        !erred && (finished || events.last().is_some_and(|data| data == "[DONE]"))
    }
}

/// What was seen of a variant.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) variant: Variant,
    pub(super) pace: Pace,
    /// The call of the scenario; of the fifteenth the twenty, in order.
    pub(super) calls: Vec<Called>,
    /// A call afterwards, where the scenario asks whether all is well then.
    pub(super) afterwards: Option<Called>,
    /// What the primary saw.
    pub(super) primary: Vec<Call>,
    /// What the fallback saw.
    pub(super) fallback: Vec<Call>,
    /// When the primary was healed.
    pub(super) healed: Option<Instant>,
}

/// Runs these variants over a fleet.
///
/// # Panics
/// When the fleet can't be set up.
pub async fn run(bench: &Bench, variants: &[Variant], pace: Pace) -> Vec<Result> {
    configure(bench, variants, pace).await;
    let runs = variants.iter().enumerate().map(|(n, variant)| one(bench, *variant, pace, n));
    let mut results = Vec::new();
    for seen in futures_util::future::join_all(runs).await {
        results.push(verdict::of(&seen));
    }
    results
}

async fn configure(bench: &Bench, variants: &[Variant], pace: Pace) {
    let (mut channels, mut routes, mut policies) = (Vec::new(), Vec::new(), vec![numbers(pace)]);
    for variant in variants {
        let name = variant.name();
        let (primary, fallback) = (format!("{name}-primary"), format!("{name}-fb"));
        bench.upstream.set_source(&primary, primary::of(*variant, pace));
        bench.upstream.set_source(&fallback, Source::default().then(primary::healthy()));
        channels.push(channel_entry(&primary, &bench.upstream.base_url(&primary), &[&primary], 0));
        channels.push(channel_entry(&fallback, &bench.upstream.base_url(&fallback), &[&fallback], 0));
        let small = json!({"model": primary, "capabilities": {"context_window": 8_000}});
        let large = json!({"model": fallback, "capabilities": {"context_window": 128_000}});
        routes.push(json!({"name": name, "targets": [small, large]}));
        if variant.resume {
            let scope = format!("route:{name}");
            policies.push(json!({"scope": scope, "request": {"mid_stream": "verified_resume"}}));
        }
    }
    for part in channels.chunks(100) {
        bench.apply(json!({"channels": part})).await;
    }
    for part in routes.chunks(100) {
        bench.apply(json!({"routes": part})).await;
    }
    for part in policies.chunks(100) {
        bench.apply(json!({"policies": part})).await;
    }
    bench.configured().await;
}

/// The limits that the scenarios set, and the built-in times at the pace of the run.
fn numbers(pace: Pace) -> Value {
    let breaker = json!({"open_ms": pace.ms(30.0).max(100), "window_ms": pace.ms(60.0).max(1_000),
        "slow_start_ms": pace.ms(30.0)});
    json!({
        "scope": "global",
        "selector": {"source_breaker": breaker, "model_breaker": breaker},
        "request": {
            "first_content_ms": pace.ms(10.0).max(10), "idle_ms": pace.ms(10.0).max(10),
            "whole_ms": pace.ms(10.0).max(10), "deadline_ms": pace.ms(600.0), "patience_ms": pace.ms(5.0),
        },
    })
}

async fn one(bench: &Bench, variant: Variant, pace: Pace, n: usize) -> Seen {
    let name = variant.name();
    let proxy = n % bench.fleet.proxies().len() + 1;
    let chat = bench.chat(proxy, &name);
    let chat =
        if variant.streamed { chat.streamed().with("stream_options", json!({"include_usage": true})) } else { chat };
    let (mut calls, mut healed) = (Vec::new(), None);
    if variant.scenario == 15 {
        let begun = Instant::now();
        for call in 0..20 {
            let due = begun + pace.of(4.0 * f64::from(call));
            tokio::time::sleep_until(due.into()).await;
            if healed.is_none() && begun.elapsed() >= pace.of(60.0) {
                bench.upstream.set_source(&format!("{name}-primary"), Source::default().then(primary::healthy()));
                healed = Some(Instant::now());
            }
            calls.push(call_of(&chat).await);
        }
    } else {
        calls.push(call_of(&chat).await);
    }
    let afterwards = if matches!(variant.scenario, 9 | 10) { Some(call_of(&chat).await) } else { None };
    let [primary, fallback] = ["primary", "fb"].map(|who| bench.upstream.calls_of(&format!("{name}-{who}")));
    Seen { variant, pace, calls, afterwards, primary, fallback, healed }
}

async fn call_of(chat: &Chat) -> Called {
    let begun = Instant::now();
    let answer = chat.try_send().await.map_err(|error| format!("{error:?}"));
    Called { begun, took: begun.elapsed(), answer }
}
