//! The bounds of a policy's numbers. They are checked over the built-in ones; where one bounds another, the wider scopes'
//! numbers may still differ, and the fold takes the greater of the two.

use std::ops::RangeInclusive;

use waybill_event::config::{
    BreakerOverrides, BreakerPolicy, FactorBands, Policy, PolicyScope, RequestPolicy, RetryBudgetPolicy,
    SelectorOverrides, SelectorPolicy,
};

use super::super::check;
use super::super::command::Rejection;

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Refuses numbers that can't be, and numbers at a scope they don't belong to.
pub(super) fn check(policy: &Policy) -> Result<(), Rejection> {
    let scope = &policy.scope;
    let misplaced =
        |field: &str, whose: &str| Err(Rejection::invalid(field, format!("can't be set for {scope}: {whose}")));
    if !policy.selector.is_empty() && !scope.holds_selector() {
        return misplaced("selector", "one breaker serves all groups, routes and keys");
    }
    if !policy.request.is_empty() && !scope.holds_request() {
        return misplaced("request", "it is decided before a source is chosen");
    }
    if let PolicyScope::Model { upstream_model, .. } = scope {
        check::model("scope", upstream_model)?;
        let others = SelectorOverrides { model_breaker: BreakerOverrides::default(), ..policy.selector };
        if !others.is_empty() {
            return misplaced("selector", "a model has numbers of its breaker only, as model_breaker");
        }
    }
    // Tables are made for all keys of a group together.
    if matches!(scope, PolicyScope::Key { .. }) && policy.request.max_ejected_percent.is_some() {
        return misplaced("request/max_ejected_percent", "all keys of a group share their tables");
    }
    selector(&SelectorPolicy::default().with(&policy.selector))?;
    request(&RequestPolicy::default().with(&policy.request))
}

fn selector(numbers: &SelectorPolicy) -> Result<(), Rejection> {
    let SelectorPolicy { source_breaker, model_breaker, bands, late_after_ms, block_growth_max_ms, retry_limited_ms } =
        *numbers;
    breaker("selector/source_breaker", &source_breaker)?;
    breaker("selector/model_breaker", &model_breaker)?;
    within("selector/late_after_ms", late_after_ms, 1_000..=HOUR_MS)?;
    within("selector/block_growth_max_ms", block_growth_max_ms, 1_000..=DAY_MS)?;
    within("selector/retry_limited_ms", retry_limited_ms, 1_000..=7 * DAY_MS)?;
    let FactorBands { health_milli, latency_ms, load_milli } = bands;
    rising("selector/bands/health_milli", &health_milli)?;
    rising("selector/bands/latency_ms", &latency_ms)?;
    rising("selector/bands/load_milli", &load_milli)
}

fn breaker(field: &str, numbers: &BreakerPolicy) -> Result<(), Rejection> {
    let BreakerPolicy {
        window_ms,
        min_outcomes,
        max_fail_milli,
        consecutive_fails,
        open_ms,
        open_growth_milli,
        open_max_ms,
        slow_start_ms,
        half_open_probes,
        successes_to_close,
    } = *numbers;
    let at = |name: &str| format!("{field}/{name}");
    within(&at("window_ms"), window_ms, 1_000..=HOUR_MS)?;
    within(&at("min_outcomes"), min_outcomes.into(), 0..=100_000)?;
    within(&at("max_fail_milli"), max_fail_milli.into(), 0..=1_000)?;
    within(&at("consecutive_fails"), consecutive_fails.into(), 0..=100_000)?;
    within(&at("open_ms"), open_ms, 100..=DAY_MS)?;
    within(&at("open_growth_milli"), open_growth_milli.into(), 1_000..=100_000)?;
    within(&at("open_max_ms"), open_max_ms, 100..=DAY_MS)?;
    within(&at("slow_start_ms"), slow_start_ms, 0..=HOUR_MS)?;
    within(&at("half_open_probes"), half_open_probes.into(), 1..=16)?;
    within(&at("successes_to_close"), successes_to_close.into(), 1..=100)
}

fn request(numbers: &RequestPolicy) -> Result<(), Rejection> {
    let RequestPolicy {
        deadline_ms,
        max_attempts,
        max_walk,
        max_after_timeout,
        min_attempt_ms,
        connect_ms,
        first_content_ms,
        whole_ms,
        idle_ms,
        patience_ms,
        max_ejected_percent,
        retry_budget: RetryBudgetPolicy { percent, floor_per_second },
        retry_unknown: _,
        strategy: _,
        on_all_unavailable: _,
        mid_stream: _,
        degrade: _,
        validate_schema: _,
        queue_timeout_ms,
        failover_kinds: _,
        on_outage: _,
    } = *numbers;
    for (field, value) in [
        ("request/deadline_ms", deadline_ms),
        ("request/first_content_ms", first_content_ms),
        ("request/whole_ms", whole_ms),
        ("request/idle_ms", idle_ms),
        ("request/connect_ms", connect_ms),
    ] {
        within(field, value, 10..=DAY_MS)?;
    }
    within("request/min_attempt_ms", min_attempt_ms, 0..=HOUR_MS)?;
    within("request/patience_ms", patience_ms, 0..=HOUR_MS)?;
    within("request/queue_timeout_ms", queue_timeout_ms, 0..=HOUR_MS)?;
    within("request/max_attempts", max_attempts.into(), 1..=100)?;
    within("request/max_walk", max_walk.into(), 1..=1_000)?;
    within("request/max_after_timeout", max_after_timeout.into(), 0..=100)?;
    within("request/max_ejected_percent", max_ejected_percent.into(), 0..=100)?;
    within("request/retry_budget/percent", percent.into(), 0..=100)?;
    within("request/retry_budget/floor_per_second", floor_per_second.into(), 0..=1_000_000)
}

fn rising(field: &str, steps: &[u32]) -> Result<(), Rejection> {
    if steps.windows(2).all(|pair| matches!(pair, [low, high] if low < high)) {
        return Ok(());
    }
    Err(Rejection::invalid(field, "must rise from step to step"))
}

fn within(field: &str, value: u64, range: RangeInclusive<u64>) -> Result<(), Rejection> {
    if range.contains(&value) {
        return Ok(());
    }
    let message = format!("must be between {} and {}", range.start(), range.end());
    Err(Rejection::invalid(field, message))
}
