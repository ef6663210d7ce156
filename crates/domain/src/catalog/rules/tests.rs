use serde_json::json;
use waybill_event::ConfigPosition;

use super::*;
use crate::catalog::{self, UnknownEdit};

fn layer(text: Value) -> RuleLayer {
    serde_json::from_value(text).unwrap()
}

fn run(catalog: &mut Catalog, scope: PolicyScope, act: Act) -> Result<usize, Rejection> {
    let expected = catalog.rules.get(&scope).map_or(0, |rules| rules.version);
    let changes = catalog::decide(catalog, &catalog::Command::Rules(Command { scope, expected, act }))?;
    for change in &changes {
        catalog.adopt(change, ConfigPosition(catalog.position.0 + 1));
    }
    Ok(changes.len())
}

fn rule(id: &str, status: &str) -> Value {
    json!({"id": id, "when": {"status": [status]}, "kind": "overloaded"})
}

fn versions(layer: &RuleLayer) -> Vec<u64> {
    layer.rules.iter().filter_map(|rule| rule.get("v").and_then(Value::as_u64)).collect()
}

#[test]
fn a_rule_has_the_version_of_the_edit_it_changed_with() {
    let mut catalog = Catalog::default();
    let publish = |catalog: &mut Catalog, rules: Value| {
        run(catalog, PolicyScope::Global, Act::Publish(layer(json!({ "rules": rules })))).unwrap()
    };
    assert_eq!(publish(&mut catalog, json!([rule("a", "430"), rule("b", "431")])), 1);
    let live = |catalog: &Catalog| catalog.rules.get(&PolicyScope::Global).unwrap().live.clone();
    assert_eq!(versions(&live(&catalog)), [1, 1]);
    publish(&mut catalog, json!([rule("a", "430"), rule("b", "432"), rule("c", "433")]));
    assert_eq!(versions(&live(&catalog)), [1, 2, 2]);
    let same = serde_json::to_value(live(&catalog)).unwrap();
    assert_eq!(run(&mut catalog, PolicyScope::Global, Act::Publish(layer(same))), Ok(0), "nothing changes");
}

#[test]
fn a_candidate_is_promoted_with_its_versions() {
    let mut catalog = Catalog::default();
    let scope = PolicyScope::Provider { provider: "acme".to_owned() };
    assert!(run(&mut catalog, scope.clone(), Act::Promote).is_err(), "there is none yet");
    let candidate = layer(json!({"rules": [rule("a", "430")], "preset": "conservative"}));
    run(&mut catalog, scope.clone(), Act::Shadow(Some(candidate))).unwrap();
    run(&mut catalog, scope.clone(), Act::Promote).unwrap();
    let held = catalog.rules.get(&scope).unwrap();
    assert_eq!((held.version, held.candidate.clone(), versions(&held.live)), (2, None, vec![1]));
    run(&mut catalog, scope.clone(), Act::Publish(RuleLayer::default())).unwrap();
    assert!(catalog.rules.get(&scope).unwrap().live.is_empty());
}

#[test]
fn what_cannot_stand_is_refused() {
    let mut catalog = Catalog::default();
    let channel = PolicyScope::Source { source: waybill_event::ChannelId::new(7).into() };
    let some = || Act::Publish(layer(json!({"preset": "conservative"})));
    assert!(matches!(run(&mut catalog, channel, some()), Err(Rejection::NotFound { .. })));
    let group = PolicyScope::Group { group: waybill_event::GroupId::new(1) };
    assert!(matches!(run(&mut catalog, group, some()), Err(Rejection::Invalid { .. })));
    let broken = Act::Publish(layer(json!({"rules": [{"id": "a", "kind": "nothing"}]})));
    assert!(
        matches!(run(&mut catalog, PolicyScope::Global, broken), Err(Rejection::Invalid { field, .. }) if field == "live")
    );
    let command = Command { scope: PolicyScope::Global, expected: 3, act: some() };
    let refused = catalog::decide(&catalog, &catalog::Command::Rules(command));
    assert!(matches!(refused, Err(Rejection::VersionConflict { .. })));
}

#[test]
fn rules_of_a_newer_program_stop_the_catalogue() {
    let live = layer(json!({"rules": [{"id": "a", "v": 1, "when": {"moon": "full"}, "kind": "timeout"}]}));
    let state = Rules { scope: PolicyScope::Global, live, candidate: None, version: 1 };
    let change = ConfigChange::Rules(Changed { change: Change::Created, state, changed: Vec::new() });
    let mut catalog = Catalog::default();
    let event = waybill_event::Event {
        identity: waybill_event::Identity::Derived { id: "x".to_owned(), producer: "admin-1".parse().unwrap() },
        draft: waybill_event::Draft::new(waybill_event::LogTime::from_micros(0), change),
    };
    assert_eq!(catalog::apply(&mut catalog, &event, ConfigPosition(1)), catalog::Applied::Blocked);
    let expected = UnknownEdit { position: ConfigPosition(1), kind: "rules_created".to_owned(), version: 1 };
    assert_eq!(catalog.blocked_by, Some(expected));
    assert!(catalog.rules.is_empty());
}
