use waybill_event::config::{RequestOverrides, SelectorOverrides, Strategy};
use waybill_event::{ConfigPosition, GroupId, KeyId, RouteId};

use super::*;
use crate::catalog::{self, channel, group, route};

fn run(catalog: &mut Catalog, command: &catalog::Command) -> Result<(), Rejection> {
    for change in catalog::decide(catalog, command)? {
        catalog.adopt(&change, ConfigPosition(catalog.position.0 + 1));
    }
    Ok(())
}

fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    let group = group::Command::Create { name: "team a".to_owned(), enabled: true };
    run(&mut catalog, &catalog::Command::Group(group)).unwrap();
    let new = channel::New::at("main", "http://one.test");
    run(&mut catalog, &catalog::Command::Channel(channel::Command::Create(Box::new(new)))).unwrap();
    let targets = vec![waybill_event::config::Target { model: "m".to_owned(), capabilities: Default::default() }];
    let new = route::New { name: "smart".to_owned(), targets, groups: Vec::new(), enabled: true };
    run(&mut catalog, &catalog::Command::Route(route::Command::Create(new))).unwrap();
    catalog
}

fn set(catalog: &mut Catalog, scope: &str, numbers: &str) -> Result<(), Rejection> {
    #[derive(serde::Deserialize)]
    struct Numbers {
        #[serde(default)]
        selector: SelectorOverrides,
        #[serde(default)]
        request: RequestOverrides,
    }
    let scope = super::scope(catalog, scope)?;
    let Numbers { selector, request } = serde_json::from_str(numbers).unwrap();
    let expected = catalog.policies.get(&scope).map_or(0, |policy| policy.version);
    run(catalog, &catalog::Command::Policy(Command::Set { scope, expected, selector, request }))
}

#[test]
fn scopes_are_found_by_id_and_by_name() {
    let catalog = catalog();
    let check = |text: &str, expected: &str| {
        assert_eq!(super::scope(&catalog, text).map(|scope| scope.to_string()), Ok(expected.to_owned()), "{text}");
    };
    check("global", "global");
    check("provider:openai", "provider:openai");
    check("group:team a", "group:1");
    check("route:smart", "route:1");
    check("route:1", "route:1");
    check("channel:main", "channel:1");
    check("channel:main/gpt/4", "channel:1/gpt/4");
    check("channel:1/gpt", "channel:1/gpt");
    check("account:1/gpt", "account:1/gpt");
    for wrong in
        ["", "all", "group:", "group:other", "channel:other", "channel:main/", "account:main", "account:", "key:x"]
    {
        assert!(super::scope(&catalog, wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_narrowest_scope_wins_number_by_number() {
    let mut catalog = catalog();
    set(
        &mut catalog,
        "global",
        r#"{"request":{"max_walk":9,"strategy":"least_busy"},"selector":{"late_after_ms":5000}}"#,
    )
    .unwrap();
    set(&mut catalog, "group:team a", r#"{"request":{"max_walk":8}}"#).unwrap();
    set(&mut catalog, "route:smart", r#"{"request":{"deadline_ms":70}}"#).unwrap();
    set(&mut catalog, "provider:openai", r#"{"selector":{"source_breaker":{"open_ms":600}}}"#).unwrap();
    set(&mut catalog, "channel:main", r#"{"selector":{"source_breaker":{"window_ms":7000}}}"#).unwrap();
    let policy = catalog.request_policy(GroupId::new(1), Some(RouteId::new(1)), Some(KeyId::new(1)));
    assert_eq!((policy.max_walk, policy.deadline_ms, policy.strategy), (8, 70, Strategy::LeastBusy));
    assert_eq!(catalog.request_policy(GroupId::new(2), None, None).max_walk, 9);
    let policy = catalog.selector_policy("channel:1".parse().unwrap());
    let source = policy.source_breaker;
    assert_eq!((policy.late_after_ms, source.open_ms, source.window_ms), (5_000, 600, 7_000));
    assert_eq!(catalog.selector_policy("channel:9".parse().unwrap()).source_breaker.open_ms, 30_000);
}

#[test]
fn an_empty_policy_takes_back_what_was_set() {
    let mut catalog = catalog();
    set(&mut catalog, "global", "{}").unwrap();
    assert!(catalog.policies.is_empty(), "nothing to take back");
    set(&mut catalog, "global", r#"{"request":{"max_walk":9}}"#).unwrap();
    set(&mut catalog, "global", "{}").unwrap();
    assert_eq!(catalog.request_policy(GroupId::new(1), None, None).max_walk, 32);
}

#[test]
fn what_nobody_comes_under_any_more_can_be_taken_back_but_not_set() {
    let mut catalog = catalog();
    set(&mut catalog, "route:smart", r#"{"request": {"deadline_ms": 1000}}"#).unwrap();
    let id = catalog.route_named("smart").unwrap().id;
    run(&mut catalog, &catalog::Command::Route(route::Command::Delete { id, expected: None })).unwrap();
    let by_id = format!("route:{id}");
    let refused = set(&mut catalog, &by_id, r#"{"request": {"deadline_ms": 2000}}"#);
    assert!(matches!(refused, Err(Rejection::NotFound { entity: "route", .. })), "{refused:?}");
    // A manifest that prunes takes it back, and goes on.
    let manifest = serde_json::from_str(r#"{"prune": true}"#).unwrap();
    let plan = catalog::manifest::plan(&catalog, &manifest, &catalog::manifest::Supplies::default()).unwrap();
    assert!(plan.steps.iter().any(|step| step.diff.entity == "policy"), "{plan:?}");
    set(&mut catalog, &by_id, "{}").unwrap();
    assert!(catalog.policies.values().all(|policy| policy.request.is_empty()));
}

#[test]
fn numbers_out_of_bounds_or_out_of_place_are_refused() {
    let mut catalog = catalog();
    let mut check = |scope: &str, numbers: &str| {
        let refused = set(&mut catalog, scope, numbers);
        assert!(matches!(refused, Err(Rejection::Invalid { .. })), "{scope} {numbers}: {refused:?}");
    };
    check("global", r#"{"selector":{"source_breaker":{"open_ms":5}}}"#);
    check("global", r#"{"selector":{"source_breaker":{"half_open_probes":0}}}"#);
    check("global", r#"{"selector":{"bands":{"health_milli":[1,1,2,3]}}}"#);
    check("global", r#"{"request":{"max_attempts":0}}"#);
    check("global", r#"{"request":{"max_ejected_percent":101}}"#);
    check("group:team a", r#"{"selector":{"late_after_ms":5000}}"#);
    check("channel:main", r#"{"request":{"max_walk":5}}"#);
    check("provider:Open AI", r#"{"selector":{"late_after_ms":5000}}"#);
    let missing = set(&mut catalog, "key:7", r#"{"request":{"max_walk":5}}"#);
    assert!(matches!(missing, Err(Rejection::NotFound { .. })), "{missing:?}");
}
