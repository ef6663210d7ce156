//! Rules that are published must still judge the bundled failures rightly, and what their own cases say.
//!
//! What a layer says of a kind is meant: it may differ from what the bundled cases expect, as long as no good source is
//! disabled and no dead one kept. What its rules say may not, unless the layer accepts the case by name.

use waybill_domain::catalog::{Catalog, Rejection};
use waybill_domain::verdict::rule::But;
use waybill_domain::verdict::{Report, Rulebook};
use waybill_event::config::{ConfigChange, PolicyScope, Rules};
use waybill_event::{ConfigPosition, Source};
use waybill_upstream::cases::{BundledCase, bundled, own_disagreements};
use waybill_upstream::observe::recorded;

/// Most cases that a refusal names.
const NAMED: usize = 5;

/// Refuses rules with which a bundled case, or one of their own, is judged otherwise than is expected.
pub(super) fn check(catalog: &Catalog, changes: &[ConfigChange]) -> Result<(), Rejection> {
    for change in changes {
        let ConfigChange::Rules(changed) = change else { continue };
        let mut after = catalog.clone();
        after.adopt(change, ConfigPosition(catalog.position.0 + 1));
        check_scope(&after, &changed.state)?;
    }
    Ok(())
}

fn check_scope(after: &Catalog, rules: &Rules) -> Result<(), Rejection> {
    let rulebook = after.rulebook();
    let (source, provider) = match &rules.scope {
        PolicyScope::Source { source } => {
            (Some(*source), after.entity(*source).map(|entity| entity.provider().to_owned()))
        }
        PolicyScope::Provider { provider } => (None, Some(provider.clone())),
        _ => (None, None),
    };
    let of_scope = |case: &&BundledCase| provider.as_ref().is_none_or(|provider| *provider == case.given.provider_hint);
    let accepted = |case: &&BundledCase| !rules.live.accepts.contains(&case.id);
    let mut broken: Vec<String> = bundled()
        .iter()
        .filter(of_scope)
        .filter(accepted)
        .filter_map(|case| Some(format!("{}: {}", case.id, difference(&rulebook, source, case)?)))
        .collect();
    let own = rulebook.layer(&rules.scope).map(|layer| layer.rules()).unwrap_or_default();
    for case in own_disagreements(own, &|seen| rulebook.classify(source, seen)) {
        broken.push(format!("{}: {}", case.id, told(&case.fields)));
    }
    if broken.is_empty() {
        return Ok(());
    }
    let more = match broken.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    broken.truncate(NAMED);
    let message = format!(
        "breaks cases whose verdict is known: {}{more}. Cases that are meant to be judged so can be named in `accepts`",
        broken.join("; ")
    );
    Err(Rejection::Invalid { field: "live".to_owned(), message })
}

type Fields = [(String, serde_json::Value, serde_json::Value)];

fn told(fields: &Fields) -> String {
    let one = |(name, told, expected): &(String, serde_json::Value, serde_json::Value)| {
        format!("{name} would be {told}, not {expected}")
    };
    fields.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What of a bundled case would be judged otherwise, and not on purpose.
fn difference(rulebook: &Rulebook, source: Option<Source>, case: &BundledCase) -> Option<String> {
    let seen = recorded(&case.given);
    let report = Report::of(&rulebook.classify(source, &seen), &seen);
    let mut fields = case.differences(&report);
    let said = rulebook.said_of(source, &seen.provider, report.kind);
    if !said.is_empty() && report.kind == case.kind {
        fields.retain(|(name, ..)| !said.iter().any(|but| sets(but, name)));
    }
    let disables = |by: &str| by.starts_with("until_");
    let told_by = report.block_source.to_string();
    let expected_by = case.verdict.get("block_source").and_then(serde_json::Value::as_str).unwrap_or_default();
    if disables(&told_by) != disables(expected_by) && changed_by_rules(rulebook, source, case) {
        fields.push(("block_source".to_owned(), told_by.into(), expected_by.into()));
    }
    (!fields.is_empty()).then(|| told(&fields))
}

/// Whether the shipped rules disable otherwise than these: where they do so already, it isn't the layer's doing.
fn changed_by_rules(rulebook: &Rulebook, source: Option<Source>, case: &BundledCase) -> bool {
    let seen = recorded(&case.given);
    let by = |rulebook: &Rulebook| rulebook.classify(source, &seen).block_source.to_string().starts_with("until_");
    by(rulebook) != by(&Rulebook::default())
}

/// Whether a layer's word on a kind decides a field of the report.
fn sets(but: &But, field: &str) -> bool {
    match field {
        "retry_elsewhere" | "class" => but.elsewhere.is_some(),
        "counts_channel_health" => but.source_health.is_some(),
        "counts_model_health" => but.model_health.is_some(),
        "block_scope" => but.block.is_some(),
        "reason" => but.fallback.is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use waybill_domain::catalog::{Command, decide, rules};

    use super::*;

    fn publish(scope: PolicyScope, live: serde_json::Value) -> Result<(), Rejection> {
        let catalog = Catalog::default();
        let live = serde_json::from_value(live).unwrap();
        let command = rules::Command { scope, expected: 0, act: rules::Act::Publish(live) };
        check(&catalog, &decide(&catalog, &Command::Rules(command))?)
    }

    fn refused(live: serde_json::Value, word: &str) {
        let told = publish(PolicyScope::Global, live.clone()).unwrap_err().to_string();
        assert!(told.contains(word), "{live}: {told}");
    }

    #[test]
    fn what_is_shipped_and_every_preset_breaks_no_case() {
        for preset in ["standard", "conservative", "busy_is_not_broken"] {
            assert_eq!(publish(PolicyScope::Global, json!({"preset": preset})), Ok(()), "{preset}");
        }
    }

    #[test]
    fn a_rule_that_takes_a_known_failure_for_another_is_refused_by_the_cases_name() {
        let careless = json!({"rules": [{"id": "x", "when": {"status": ["401"]}, "kind": "rate_limited"}]});
        refused(careless.clone(), "openai-401-invalid-key");
        let scope = PolicyScope::Provider { provider: "acme".to_owned() };
        assert_eq!(publish(scope, careless), Ok(()), "no bundled case is of this provider");
        let meant = json!({
            "rules": [{"id": "x", "when": {"codes": ["account_deactivated"], "providers": ["openai"]}, "kind": "auth_invalid"}],
            "accepts": ["openai-401-account-deactivated"],
        });
        let accepted = publish(PolicyScope::Provider { provider: "openai".to_owned() }, meant);
        assert_eq!(accepted, Ok(()));
    }

    #[test]
    fn what_is_said_of_a_kind_is_meant_unless_it_keeps_a_dead_key_or_disables_a_good_one() {
        let wide =
            json!({"kinds": {"payload_too_large": {"elsewhere": "anyone"}, "server_error": {"source_health": "none"}}});
        assert_eq!(publish(PolicyScope::Global, wide), Ok(()));
        refused(json!({"kinds": {"auth_invalid": {"block": {"action": "none"}}}}), "block_source");
        let block = json!({"action": "disable", "recovery": "probe"});
        refused(json!({"kinds": {"rate_limited": {"block": block}}}), "block_source");
    }

    #[test]
    fn a_rules_own_cases_count_too() {
        let case = |kind: &str| {
            let given =
                json!({"provider_hint": "acme", "where": "status", "status": 430, "body": {"error": {"code": "x"}}});
            json!({"rules": [{"id": "own", "when": {"status": ["430"]}, "kind": "overloaded",
                "cases": [{"given": given, "kind": kind}]}]})
        };
        assert_eq!(publish(PolicyScope::Global, case("overloaded")), Ok(()));
        refused(case("timeout"), "own#1");
    }
}
