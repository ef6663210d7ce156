//! Reports on who is asked in which order, how often, and in which shares.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use waybill_testkit::upstream::{Reply, Source};
use waybill_testkit::{until, wait_until};

use super::Script;
use super::replies::{always, bad_key, ill, slow_down, turns, well};
use super::script::{MODEL, ask, script};
use super::stage::{SOON, Stage, brief};

const TEN: [&str; 10] = ["d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8", "d9"];

pub(super) fn scripts() -> Vec<Script> {
    [tiers(), budgets(), weights()].into_iter().flatten().collect()
}

/// C54: a whole tier before the next one, and nobody twice.
fn tiers() -> Vec<Script> {
    let dead = TEN.iter().fold(script("c54-ten-dead"), |script, name| script.source(name, 10, always(bad_key())));
    vec![
        script("c54")
            .source("a1", 10, always(ill(500)))
            .source("a2", 10, always(ill(500)))
            .source("b1", 5, well())
            .then(|stage| Box::pin(both_of_the_tier_first(stage))),
        // Refusals before any work are a walk, not attempts: ten dead keys hide no good one.
        dead.source("good", 5, well()).then(|stage| Box::pin(past_ten_dead_keys(stage))).untouched("good"),
    ]
}

async fn both_of_the_tier_first(stage: &Stage<'_>) {
    let answer = stage.chat(1).served().await;
    assert_eq!(answer.said(), "from b1");
    let story = stage.story(&answer).await;
    let asked: Vec<String> = stage.walked(&story).into_iter().map(|(name, _)| name).collect();
    let orders = [["a1", "a2", "b1"], ["a2", "a1", "b1"]];
    assert!(orders.iter().any(|order| asked == *order), "{asked:?}");
    for channel in ["a1", "a2", "b1"] {
        assert_eq!(stage.calls(channel).len(), 1, "{channel}");
    }
    let switched = story.pointer("/request/fallback").and_then(Value::as_str);
    assert_eq!(switched, Some("upstream_5xx"), "{}", brief(&story));
}

async fn past_ten_dead_keys(stage: &Stage<'_>) {
    let answer = stage.chat(3).streamed().served().await;
    assert_eq!(answer.said(), "from good");
    let story = stage.story(&answer).await;
    assert_eq!(story.attempts().len(), 11, "{}", brief(&story));
    assert!(TEN.iter().all(|name| stage.calls(name).len() == 1), "{}", brief(&story));
}

/// C56: one list, walked once; and whoever tries again himself isn't multiplied.
fn budgets() -> Vec<Script> {
    let limited = || always(slow_down().delay_head(200));
    let four = ["a", "b", "c", "d"];
    let all = four.map(|name| (name, "rate_limited"));
    let no_budget = json!({"retry_budget": {"percent": 0, "floor_per_second": 0}, "max_attempts": 3});
    let with_four = |name, source: &dyn Fn() -> Source| {
        four.iter()
            .zip([10, 9, 8, 7])
            .fold(script(name), |script, (name, priority)| script.source(name, priority, source()))
    };
    vec![
        with_four("c56", &limited).request(json!({"deadline_ms": 8_000})).ask(
            ask(1).header("x-stainless-retry-count", "2").refused(429, "rate_limited").retry_after(1..=60).walked(&all),
        ),
        // Work that was done counts: three attempts of four sources, whoever asks.
        with_four("c56-attempts", &|| always(ill(500))).request(json!({"max_attempts": 3})).ask(
            ask(2).streamed().refused(502, "all_sources_failed").walked(&[
                ("a", "server_error"),
                ("b", "server_error"),
                ("c", "server_error"),
            ]),
        ),
        // Without any budget left, the only source isn't strained a second time, and the record says why.
        script("c56-no-budget")
            .source("a", 10, turns([ill(500), super::replies::ok()]))
            .request(no_budget)
            .ask(ask(3).refused(502, "upstream_error").walked(&[("a", "server_error")]))
            .then(|stage| Box::pin(suppressed_is_told(stage))),
    ]
}

async fn suppressed_is_told(stage: &Stage<'_>) {
    stage.now("a", turns([ill(500), super::replies::ok()]));
    let answer = stage.chat(1).send().await;
    let story = stage.story(&answer).await;
    assert_eq!(answer.status, 502, "{}", answer.text());
    assert!(story.to_string().contains("retry_budget"), "{}", brief(&story));
    let metrics = stage.bench.fleet.metrics("proxy-1").await;
    let counted = metrics.lines().find(|line| line.starts_with("waybill_retries_suppressed_total"));
    assert!(counted.is_some_and(|line| !line.ends_with(" 0")), "{counted:?}");
}

/// C66: shares follow the weights, whatever the order of the list.
fn weights() -> Vec<Script> {
    // A busy machine's own slowness changes nobody's share here.
    let even = json!({"bands": {"latency_ms": [600_000, 700_000, 800_000]}});
    vec![
        script("c66")
            .channel_of("a", 10, None, &[MODEL], well())
            .channel_of("b", 10, Some(3), &[MODEL], well())
            .channel_of("c", 10, Some(0), &[MODEL], well())
            .selector(even.clone())
            .then(|stage| Box::pin(one_to_three(stage))),
        // All weights are 0: the sources are a last resort, and an only one serves.
        script("c66-zeros")
            .channel_of("a", 10, Some(0), &[MODEL], turns([Reply::empty(500)]))
            .channel_of("b", 5, Some(0), &[MODEL], well())
            .selector(even)
            .ask(ask(1).streamed().served_by("b")),
    ]
}

/// How often each source serves so many requests of one replica, one after the other.
async fn shares(stage: &Stage<'_>, proxy: usize, count: usize) -> BTreeMap<String, usize> {
    let (mut shares, mut in_a_row) = (BTreeMap::new(), 0);
    for _ in 0..count {
        let said = stage.chat(proxy).served().await.said();
        in_a_row = if said == "from a" { in_a_row + 1 } else { 0 };
        assert!(in_a_row < 3, "the lighter one three times in a row");
        *shares.entry(said).or_default() += 1;
    }
    shares
}

async fn one_to_three(stage: &Stage<'_>) {
    let expected = BTreeMap::from([("from a".to_owned(), 10), ("from b".to_owned(), 30)]);
    for proxy in 1..=3 {
        assert_eq!(shares(stage, proxy, 40).await, expected, "proxy-{proxy}");
    }
    // An edit that changes no share: the wheel goes on where it was.
    let admin = stage.bench.admin();
    admin.edit_channel(&stage.script.channel("a"), json!({"weight": 2})).await;
    admin.edit_channel(&stage.script.channel("b"), json!({"weight": 6})).await;
    stage.bench.fleet.everywhere(admin.config_position().await).await;
    assert_eq!(shares(stage, 2, 40).await, expected);
    // The last resort serves when there is nobody else, and only then.
    for channel in ["a", "b"] {
        admin.post(&format!("/channels/{}/disable", stage.script.channel(channel)), json!({})).await;
    }
    let begun = Instant::now();
    wait_until(SOON, "the last resort serves", async || {
        let said = stage.chat(3).served().await.said();
        until(said == "from c", || said)
    })
    .await;
    assert!(begun.elapsed() < SOON + Duration::from_secs(1));
}
