use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::observation::{ErrorBody, ErrorFields, Shape};

fn now() -> LogTime {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

/// Windows as `name used resets_at`, with a mark where one is used up.
fn told(windows: &[UsageWindow]) -> Vec<String> {
    let one = |window: &UsageWindow| {
        let used = window.used_permille.map_or("-".to_owned(), |used| used.to_string());
        let until = window.resets_at.map_or("-".to_owned(), |at| at.to_string()[..16].to_owned());
        let mark = if window.exhausted { " exhausted" } else { "" };
        let minutes = window.minutes.map_or(String::new(), |minutes| format!(" of {minutes} min"));
        format!("{} {used} {until}{minutes}{mark}", window.name)
    };
    windows.iter().map(one).collect()
}

fn check(headers: &[(&str, &str)], expected: &[&str]) {
    assert_eq!(told(&read(headers.iter().copied(), now())), expected, "{headers:?}");
}

#[test]
fn a_claude_plan_tells_of_five_hours_a_week_and_its_models() {
    check(
        &[
            ("content-type", "application/json"),
            ("anthropic-ratelimit-unified-status", "allowed_warning"),
            ("anthropic-ratelimit-unified-reset", "1796050800"),
            ("anthropic-ratelimit-unified-representative-claim", "five_hour"),
            ("anthropic-ratelimit-unified-fallback-percentage", "0.5"),
            ("anthropic-ratelimit-unified-5h-status", "allowed"),
            ("anthropic-ratelimit-unified-5h-reset", "1796050800"),
            ("anthropic-ratelimit-unified-5h-utilization", "0.42"),
            ("anthropic-ratelimit-unified-7d-status", "rejected"),
            ("anthropic-ratelimit-unified-7d-reset", "1796300000"),
            ("anthropic-ratelimit-unified-7d-utilization", "1.02"),
            ("anthropic-ratelimit-unified-7d_opus-utilization", "0.9"),
            ("anthropic-ratelimit-unified-7d_opus-reset", "1796300000"),
            ("anthropic-ratelimit-unified-overage-status", "rejected"),
            ("anthropic-ratelimit-unified-overage-disabled-reason", "org_level_disabled"),
        ],
        &["5h 420 2026-11-30T15:00", "7d 1020 2026-12-03T12:13 exhausted", "7d_opus 900 2026-12-03T12:13"],
    );
}

#[test]
fn what_is_told_of_a_plan_as_a_whole_counts_where_nothing_else_is() {
    check(
        &[("anthropic-ratelimit-unified-status", "rejected"), ("anthropic-ratelimit-unified-reset", "1796050800")],
        &["unified - 2026-11-30T15:00 exhausted"],
    );
}

#[test]
fn a_codex_plan_tells_of_two_windows() {
    check(
        &[
            ("x-codex-primary-used-percent", "12.5"),
            ("x-codex-primary-window-minutes", "300"),
            ("x-codex-primary-reset-at", "1796050000"),
            ("x-codex-primary-reset-after-seconds", "10800"),
            ("x-codex-secondary-used-percent", "100"),
            ("x-codex-secondary-window-minutes", "10080"),
            ("x-codex-secondary-reset-after-seconds", "86400"),
            ("x-codex-plan-type", "plus"),
        ],
        &["primary 125 2026-11-30T15:00 of 300 min", "secondary 1000 2026-12-01T12:00 of 10080 min exhausted"],
    );
}

#[test]
fn limits_of_a_key_are_told_by_dimension() {
    check(
        &[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "45"),
            ("x-ratelimit-reset-requests", "6m0s"),
            ("anthropic-ratelimit-input-tokens-limit", "40000"),
            ("anthropic-ratelimit-input-tokens-remaining", "0"),
            ("anthropic-ratelimit-input-tokens-reset", "2026-11-30T12:05:00Z"),
        ],
        &["input-tokens 1000 2026-11-30T12:05 exhausted", "requests 250 2026-11-30T12:06"],
    );
}

#[test]
fn what_cannot_be_read_says_nothing() {
    check(
        &[
            ("x-ratelimit-limit-requests", "many"),
            ("x-codex-primary-used-percent", "NaN"),
            ("anthropic-ratelimit-unified-5h-utilization", ""),
            ("x-ratelimit-", "1"),
            ("anthropic-ratelimit-", "1"),
        ],
        &[],
    );
    let many: Vec<(String, &str)> = (0..100).map(|n| (format!("x-codex-w{n}-used-percent"), "1")).collect();
    assert_eq!(read(many.iter().map(|(name, value)| (name.as_str(), *value)), now()).len(), MOST);
}

#[test]
fn a_refusals_body_tells_of_the_window_that_is_used_up() {
    let refusal = |seconds: u64| {
        let error = json!({"type": "usage_limit_reached", "plan_type": "plus", "resets_in_seconds": seconds});
        Observation {
            error: ErrorFields { kind: Some("usage_limit_reached".to_owned()), ..ErrorFields::default() },
            body: ErrorBody::new(vec![Arc::new(json!({ "error": error }))]),
            at_ms: now().as_millis(),
            ..Observation::new("codex", Ending::Status { status: 429, shape: Shape::Error })
        }
    };
    assert_eq!(told(&of_failure(&refusal(10_800))), ["usage_limit_reached 1000 2026-11-30T15:00 exhausted"]);
    assert_eq!(told(&of_failure(&refusal(5))), Vec::<String>::new(), "a burst");
    assert_eq!(of_failure(&Observation { at_ms: 0, ..refusal(10_800) }), []);
}
