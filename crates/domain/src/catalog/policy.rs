//! Commands on policies.

use std::ops::RangeInclusive;

use waybill_event::config::{
    BreakerPolicy, Change, Changed, ConfigChange, Entity, Policy, PolicyScope, SelectorPolicy,
};

use super::command::Rejection;
use super::{Catalog, diff};

const HOUR_MS: u64 = 3_600_000;

/// A wish about a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Set the numbers of a scope.
    Set {
        /// What they apply to.
        scope: PolicyScope,
        /// The version the caller knows; 0 where the scope has no policy of its own yet.
        expected: u64,
        /// The numbers.
        selector: SelectorPolicy,
    },
}

pub(super) fn decide(catalog: &Catalog, command: &Command) -> Result<Vec<ConfigChange>, Rejection> {
    let Command::Set { scope, expected, selector } = command;
    let old = catalog.policies.get(scope);
    let actual = old.map_or(0, |policy| policy.version);
    let new = Policy { scope: scope.clone(), selector: *selector, version: actual + 1 };
    if *expected != actual {
        let id = new.subject_id();
        return Err(Rejection::VersionConflict { entity: Policy::ENTITY, id, expected: *expected, actual });
    }
    if let PolicyScope::Source { source } = scope
        && catalog.channel_of(*source).is_none()
    {
        return Err(Rejection::NotFound { entity: "source", id: source.to_string() });
    }
    check(selector)?;
    let Some(old) = old else {
        return Ok(vec![ConfigChange::Policy(Changed { change: Change::Created, state: new, changed: Vec::new() })]);
    };
    let changed = diff::changed_fields(old.as_ref(), &new);
    if changed.is_empty() {
        return Ok(Vec::new());
    }
    Ok(vec![ConfigChange::Policy(Changed { change: Change::Edited, state: new, changed })])
}

fn check(selector: &SelectorPolicy) -> Result<(), Rejection> {
    breaker("source_breaker", &selector.source_breaker)?;
    breaker("model_breaker", &selector.model_breaker)?;
    within("late_after_ms", selector.late_after_ms, 1_000..=HOUR_MS)
}

fn breaker(field: &str, policy: &BreakerPolicy) -> Result<(), Rejection> {
    let BreakerPolicy {
        window_ms,
        min_outcomes,
        max_fail_milli,
        consecutive_fails,
        open_ms,
        open_growth_milli,
        open_max_ms,
        slow_start_ms,
    } = *policy;
    let at = |name: &str| format!("{field}/{name}");
    within(&at("window_ms"), window_ms, 1_000..=HOUR_MS)?;
    within(&at("min_outcomes"), min_outcomes.into(), 0..=100_000)?;
    within(&at("max_fail_milli"), max_fail_milli.into(), 0..=1_000)?;
    within(&at("consecutive_fails"), consecutive_fails.into(), 0..=100_000)?;
    within(&at("open_ms"), open_ms, 100..=24 * HOUR_MS)?;
    within(&at("open_growth_milli"), open_growth_milli.into(), 1_000..=100_000)?;
    within(&at("open_max_ms"), open_max_ms, open_ms..=24 * HOUR_MS)?;
    within(&at("slow_start_ms"), slow_start_ms, 0..=HOUR_MS)
}

fn within(field: &str, value: u64, range: RangeInclusive<u64>) -> Result<(), Rejection> {
    if range.contains(&value) {
        return Ok(());
    }
    let message = format!("must be between {} and {}", range.start(), range.end());
    Err(Rejection::invalid(format!("selector/{field}"), message))
}
