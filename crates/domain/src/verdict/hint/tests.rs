use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::observation::{Ending, ErrorBody, Shape};
use crate::verdict::rule::HintAt;

/// 2026-10-01T00:00:00Z, a Thursday.
const NOW_MS: i64 = 1_790_812_800_000;

fn rule() -> HintRule {
    HintRule { cap_s: 864_000, read: Vec::new(), also: Vec::new(), zone: Zone::default(), calendar: None }
}

fn seen(headers: &[(&str, &str)], body: Value, message: Option<&str>) -> Observation {
    let mut seen = Observation::new("p", Ending::Status { status: 429, shape: Shape::Error });
    seen.headers = headers.iter().copied().collect();
    seen.body = ErrorBody::new(vec![Arc::new(body)]);
    seen.error.message = message.map(str::to_owned);
    seen.error.message_at = "error.message".to_owned();
    seen.at_ms = NOW_MS;
    seen
}

fn check(rule: &HintRule, seen: &Observation, expected: Option<(u64, &str)>) {
    let got = read(rule, seen).map(|hinted| (hinted.wait.as_millis(), hinted.from.to_string()));
    assert_eq!(got, expected.map(|(ms, from)| (u128::from(ms), from.to_owned())), "{seen:?}");
}

fn of_headers(headers: &[(&str, &str)], expected: Option<(u64, &str)>) {
    check(&rule(), &seen(headers, Value::Null, None), expected);
}

fn of_message(message: &str, millis: Option<u64>) {
    check(&rule(), &seen(&[], Value::Null, Some(message)), millis.map(|ms| (ms, "body:error.message")));
}

#[test]
fn retry_after_is_read_in_all_its_forms() {
    of_headers(&[("retry-after-ms", "250"), ("retry-after", "3")], Some((250, "header:retry-after-ms")));
    of_headers(&[("retry-after-ms", "soon"), ("retry-after", "3")], Some((3_000, "header:retry-after")));
    of_headers(&[("retry-after", "1.5")], Some((1_500, "header:retry-after")));
    of_headers(&[("retry-after", "Thu, 01 Oct 2026 00:02:00 GMT")], Some((120_000, "header:retry-after")));
    of_headers(&[("retry-after", "Wed, 30 Sep 2026 23:59:00 GMT")], Some((1_000, "header:retry-after")));
    of_headers(&[("retry-after", "0")], Some((1_000, "header:retry-after")));
    of_headers(&[("retry-after", "1790812860")], Some((60_000, "header:retry-after")));
    of_headers(&[("retry-after", "2026-10-01T00:00:30Z")], Some((30_000, "header:retry-after")));
    for nothing in ["-1", "nan", "inf", "1e400", "soon", "", "Sun, 99 Nov 1994 08:50:37 GMT"] {
        of_headers(&[("retry-after", nothing)], None);
    }
}

#[test]
fn only_windows_that_are_used_up_count_and_of_those_the_longest() {
    let both = [
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "6.5s"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "1m30s"),
    ];
    of_headers(&both, Some((90_000, "header:x-ratelimit-reset-tokens")));
    of_headers(&both[..2], Some((6_500, "header:x-ratelimit-reset-requests")));
    of_headers(&[("x-ratelimit-remaining-requests", "4"), ("x-ratelimit-reset-requests", "6ms")], None);
    of_headers(&[("x-ratelimit-reset-requests", "6ms")], None);
    of_headers(&[("x-ratelimit-reset", "1790812860")], Some((60_000, "header:x-ratelimit-reset")));
    of_headers(&[("x-ratelimit-reset", "1790812860000")], Some((60_000, "header:x-ratelimit-reset")));
    of_headers(&[("x-ratelimit-reset", "1790812000")], None);
    let reset = "anthropic-ratelimit-input-tokens-reset";
    let left = "anthropic-ratelimit-input-tokens-remaining";
    of_headers(&[(reset, "2026-10-01T00:00:18Z"), (left, "0")], Some((18_000, &format!("header:{reset}"))));
    of_headers(&[(reset, "2026-10-01T00:00:18Z"), (left, "10")], None);
    let unified = [
        ("anthropic-ratelimit-unified-5h-status", "rejected"),
        ("anthropic-ratelimit-unified-5h-reset", "1790814894"),
        ("anthropic-ratelimit-unified-7d-status", "allowed"),
        ("anthropic-ratelimit-unified-7d-reset", "1791112800"),
    ];
    of_headers(&unified, Some((2_094_000, "header:anthropic-ratelimit-unified-5h-reset")));
    let codex = [
        ("x-codex-primary-used-percent", "22"),
        ("x-codex-primary-reset-after-seconds", "9000"),
        ("x-codex-secondary-used-percent", "100"),
        ("x-codex-secondary-reset-after-seconds", "402705"),
    ];
    of_headers(&codex, Some((402_705_000, "header:x-codex-secondary-reset-after-seconds")));
}

#[test]
fn the_body_names_waits_in_members_made_for_it() {
    let of = |body: Value, expected| check(&rule(), &seen(&[], body, None), expected);
    let retry_info = json!({"error": {"details": [
        {"@type": "type.googleapis.com/google.rpc.ErrorInfo"},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "26.5s"},
    ]}});
    of(retry_info, Some((26_500, "body:error.details[RetryInfo].retryDelay")));
    of(
        json!({"error": {"resets_in_seconds": 3000, "resets_at": 1}}),
        Some((3_000_000, "body:error.resets_in_seconds")),
    );
    of(json!({"error": {"resets_at": 1_790_812_860}}), Some((60_000, "body:error.resets_at")));
    of(json!({"error": "loading", "estimated_time": 20.0}), Some((20_000, "body:estimated_time")));
    of(json!({"error": {"resets_at": "never", "retry_after": null}}), None);
}

#[test]
fn messages_name_durations_dates_and_epochs() {
    of_message("Rate limit reached. Please try again in 6.5s.", Some(6_500));
    of_message("Please try again in 9m38.016s. Need more?", Some(578_016));
    of_message("please try again after 1 seconds", Some(1_000));
    of_message("Retry after 250ms", Some(250));
    of_message("You will regain access on 2026-10-01 at 06:00 UTC.", Some(21_600_000));
    of_message("usage limit reached|1790812860", Some(60_000));
    of_message("resets at 2026-10-01T00:01:00Z", Some(60_000));
    for nothing in [
        "try again later",
        "try again in a moment",
        "try again in 0s",
        "",
        "try again in 3 parsecs",
        "2026-09-01 00:00:00",
    ] {
        of_message(nothing, None);
    }
    let beijing = HintRule { zone: "+08:00".parse().unwrap(), ..rule() };
    let seen = seen(&[], Value::Null, Some("您的限额将在 2026-10-01 11:00:00 重置。"));
    check(&beijing, &seen, Some((10_800_000, "body:error.message")));
}

#[test]
fn the_calendar_is_the_zones() {
    let of = |calendar, zone: &str, hours: u64| {
        let rule = HintRule { calendar: Some(calendar), zone: zone.parse().unwrap(), ..rule() };
        check(&rule, &seen(&[], Value::Null, None), Some((hours * 3_600_000, &format!("calendar:{}", rule.zone))));
    };
    of(Calendar::Day, "+08:00", 16);
    of(Calendar::Day, "UTC", 24);
    of(Calendar::Day, "-08:00", 8);
    of(Calendar::Hour, "UTC", 1);
    of(Calendar::Week, "UTC", 96);
    let month = HintRule { calendar: Some(Calendar::Month), cap_s: 3_600, ..rule() };
    check(&month, &seen(&[], Value::Null, None), Some((3_600_000, "calendar:+00:00")));
}

#[test]
fn a_rule_says_where_to_look_and_the_cap_holds() {
    let both = seen(&[("retry-after", "7"), ("x-reset", "1790812830")], json!({"error": {"retry_after": 9}}), None);
    let only_body = HintRule { read: vec![HintSource::Body], ..rule() };
    check(&only_body, &both, Some((9_000, "body:error.retry_after")));
    let own = HintAt { header: Some("x-reset".to_owned()), body: None, unit: HintUnit::EpochSeconds };
    check(&HintRule { also: vec![own], ..rule() }, &both, Some((30_000, "header:x-reset")));
    let own = HintAt { header: None, body: Some("/error/retry_after".to_owned()), unit: HintUnit::Millis };
    check(&HintRule { also: vec![own], cap_s: 5, ..rule() }, &both, Some((9, "body:error.retry_after")));
    check(&HintRule { cap_s: 5, ..rule() }, &both, Some((5_000, "header:retry-after")));
}
