use waybill_event::config::{Capabilities, ConfigChange, Target};
use waybill_event::{ConfigPosition, GroupId, RouteId};

use super::*;
use crate::catalog::{self, group};

fn target(model: &str) -> Target {
    Target { model: model.to_owned(), capabilities: Capabilities::default() }
}

fn new(name: &str, targets: &[&str]) -> Command {
    let targets = targets.iter().map(|model| target(model)).collect();
    Command::Create(New { name: name.to_owned(), targets, groups: Vec::new(), enabled: true })
}

fn run(catalog: &mut Catalog, command: Command) -> Result<Vec<ConfigChange>, Rejection> {
    let changes = catalog::decide(catalog, &catalog::Command::Route(command))?;
    for change in &changes {
        catalog.adopt(change, ConfigPosition(catalog.position.0 + 1));
    }
    Ok(changes)
}

fn models(catalog: &Catalog, group: u64, name: &str) -> Vec<String> {
    let resolved = Routes::of(catalog).resolve(GroupId::new(group), name);
    resolved.targets.iter().map(|target| target.model.to_string()).collect()
}

#[test]
fn a_name_resolves_to_its_targets_with_aliases_followed() {
    let mut catalog = Catalog::default();
    run(&mut catalog, new("smart", &["deep", "fast"])).unwrap();
    run(&mut catalog, new("best", &["huge", "smart", "fast", "last"])).unwrap();
    run(&mut catalog, new("fast", &["fast", "fast-mini"])).unwrap();
    assert_eq!(models(&catalog, 1, "best"), ["huge", "deep", "fast", "fast-mini", "last"]);
    assert_eq!(models(&catalog, 1, "fast"), ["fast", "fast-mini"], "its own name is the model of that name");
    assert_eq!(models(&catalog, 1, "other"), ["other"]);
    run(&mut catalog, Command::Disable { id: RouteId::new(3), expected: None }).unwrap();
    assert_eq!(models(&catalog, 1, "best"), ["huge", "deep", "fast", "last"]);
}

#[test]
fn circles_are_refused_wherever_they_are_closed() {
    let mut catalog = Catalog::default();
    run(&mut catalog, new("a", &["m", "b"])).unwrap();
    let refused = run(&mut catalog, new("b", &["c", "a"])).unwrap_err();
    assert!(refused.to_string().contains("a circle"), "{refused}");
    run(&mut catalog, new("b", &["c"])).unwrap();
    let patch = Patch { targets: Some(vec![target("a")]), ..Patch::default() };
    let refused = run(&mut catalog, Command::Edit { id: RouteId::new(2), expected: 1, patch: patch.clone() });
    assert!(matches!(refused, Err(Rejection::Invalid { .. })), "{refused:?}");
    // A disabled route is no way round it: enabling would close the circle.
    run(&mut catalog, Command::Disable { id: RouteId::new(1), expected: None }).unwrap();
    run(&mut catalog, Command::Edit { id: RouteId::new(2), expected: 1, patch }).unwrap();
    let refused = run(&mut catalog, Command::Enable { id: RouteId::new(1), expected: None });
    assert!(matches!(refused, Err(Rejection::Invalid { .. })), "{refused:?}");
}

#[test]
fn a_route_that_another_names_stays_and_keeps_its_name() {
    let mut catalog = Catalog::default();
    run(&mut catalog, new("a", &["b"])).unwrap();
    run(&mut catalog, new("b", &["m"])).unwrap();
    let refused = run(&mut catalog, Command::Delete { id: RouteId::new(2), expected: None });
    assert!(matches!(refused, Err(Rejection::InUse { .. })), "{refused:?}");
    let patch = Patch { name: Some("c".to_owned()), ..Patch::default() };
    let refused = run(&mut catalog, Command::Edit { id: RouteId::new(2), expected: 1, patch });
    assert!(matches!(refused, Err(Rejection::InUse { .. })), "{refused:?}");
    run(&mut catalog, Command::Delete { id: RouteId::new(1), expected: None }).unwrap();
    run(&mut catalog, Command::Delete { id: RouteId::new(2), expected: None }).unwrap();
    assert!(catalog.routes.is_empty());
}

#[test]
fn a_route_may_be_for_some_groups_only() {
    let mut catalog = Catalog::default();
    for (n, name) in ["one", "two"].into_iter().enumerate() {
        let command = group::Command::Create { name: name.to_owned(), enabled: true };
        let changes = catalog::decide(&catalog, &catalog::Command::Group(command)).unwrap();
        catalog.adopt(&changes[0], ConfigPosition(n as u64 + 1));
    }
    let only = vec![GroupRef::Name("one".to_owned())];
    let new = New { name: "smart".to_owned(), targets: vec![target("deep")], groups: only, enabled: true };
    run(&mut catalog, Command::Create(new)).unwrap();
    assert_eq!(models(&catalog, 1, "smart"), ["deep"]);
    assert_eq!(models(&catalog, 2, "smart"), ["smart"]);
    let delete = group::Command::Delete { id: GroupId::new(1), expected: None };
    let refused = catalog::decide(&catalog, &catalog::Command::Group(delete));
    assert!(matches!(refused, Err(Rejection::InUse { .. })), "{refused:?}");
}

#[test]
fn wrong_targets_are_refused() {
    let check = |targets: Vec<Target>| {
        let new = New { name: "smart".to_owned(), targets, groups: Vec::new(), enabled: true };
        assert!(matches!(run(&mut Catalog::default(), Command::Create(new)), Err(Rejection::Invalid { .. })));
    };
    check(Vec::new());
    check(vec![target("a"), target("a")]);
    check(vec![target("")]);
    check((0..17).map(|n| target(&format!("m{n}"))).collect());
    check(vec![Target {
        model: "m".to_owned(),
        capabilities: Capabilities { context_window: Some(0), ..Capabilities::default() },
    }]);
}
