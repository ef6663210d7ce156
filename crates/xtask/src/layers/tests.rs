use std::fs;

use super::*;

/// A workspace with these crates: folder, package and the text after the package's table.
fn workspace_of(crates: &[(&str, &str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let shared = "[workspace.dependencies]\nbus = { package = \"async-nats\", version = \"1\" }\n";
    fs::write(dir.path().join("Cargo.toml"), shared).unwrap();
    for (folder, package, rest) in crates {
        let folder = dir.path().join(folder);
        fs::create_dir_all(&folder).unwrap();
        let text = format!("[package]\nname = \"{package}\"\n[lints]\nworkspace = true\n{rest}\n");
        fs::write(folder.join("Cargo.toml"), text).unwrap();
    }
    fs::create_dir_all(dir.path().join("crates")).unwrap();
    dir
}

#[track_caller]
fn check(crates: &[(&str, &str, &str)], expected: &[&str]) {
    assert_eq!(faults(workspace_of(crates).path()).unwrap(), expected);
}

/// One crate that may use little, with these dependencies.
#[track_caller]
fn check_domain(rest: &str, expected: &[&str]) {
    check(&[("crates/domain", "waybill-domain", rest)], expected);
}

#[test]
fn an_arrow_of_the_table_is_fine() {
    check_domain("[dependencies]\nwaybill-event = { workspace = true }\nserde = \"1\"", &[]);
}

#[test]
fn an_arrow_that_points_down_or_sideways_is_named() {
    check_domain("[dependencies]\nwaybill-proxy = { workspace = true }", &["forbidden arrow: domain -> proxy"]);
    check_domain("[build-dependencies]\nwaybill-wire.workspace = true", &["forbidden arrow: domain -> wire"]);
    check_domain(
        "[target.'cfg(unix)'.dependencies]\nwaybill-journal = { path = \"../journal\" }",
        &["forbidden arrow: domain -> journal"],
    );
}

#[test]
fn tests_may_use_the_test_crates_and_no_others() {
    check_domain("[dev-dependencies]\nwaybill-testkit = { workspace = true }\nproptest = \"1\"", &[]);
    check_domain("[dev-dependencies]\nwaybill-proxy = { workspace = true }", &["forbidden arrow: domain -> proxy"]);
    check_domain("[dependencies]\nwaybill-testkit = { workspace = true }", &["forbidden arrow: domain -> testkit"]);
}

#[test]
fn guarded_crates_are_guarded_under_any_name() {
    let only = "forbidden arrow: domain -> async-nats (only journal-nats, testkit, tests, xtask may use it)";
    check_domain("[dependencies]\nasync-nats = \"1\"", &[only]);
    check_domain("[dev-dependencies]\nnats = { package = \"async-nats\", version = \"1\" }", &[only]);
    check_domain("[dependencies]\nbus = { workspace = true }", &[only]);
    check(&[("crates/journal-nats", "waybill-journal-nats", "[dependencies]\nasync-nats = \"1\"")], &[]);
    let sqlx = "forbidden arrow: proxy -> sqlx (only read-model, testkit, tests, xtask may use it)";
    check(&[("crates/proxy", "waybill-proxy", "[dependencies]\nsqlx = \"1\"")], &[sqlx]);
}

#[test]
fn pure_crates_use_no_runtime() {
    let faults = faults(workspace_of(&[("crates/event", "waybill-event", "[dependencies]\ntokio = \"1\"")]).path());
    assert!(faults.unwrap()[0].starts_with("forbidden arrow: event -> tokio"));
}

#[test]
fn test_crates_may_use_everything() {
    let rest = "[dependencies]\nwaybill-proxy.workspace = true\nsqlx = \"1\"\nasync-nats = \"1\"";
    check(&[("crates/testkit", "waybill-testkit", rest), ("tests", "waybill-tests", rest)], &[]);
}

#[test]
fn an_unknown_crate_or_a_wrong_package_is_named() {
    check(&[("crates/odd", "waybill-odd", "")], &["crate `odd` is not in the table: an ADR first"]);
    check(&[("crates/wire", "wire", "")], &["crate `wire` must be the package `waybill-wire`"]);
}

#[test]
fn every_crate_takes_the_workspaces_lints() {
    let dir = workspace_of(&[]);
    fs::create_dir_all(dir.path().join("crates/wire")).unwrap();
    fs::write(dir.path().join("crates/wire/Cargo.toml"), "[package]\nname = \"waybill-wire\"\n").unwrap();
    assert_eq!(faults(dir.path()).unwrap(), ["crate `wire` doesn't take the workspace's lints"]);
}

#[test]
fn the_table_points_up_only() {
    // Floor by floor: whoever is used stands above its user in the table.
    let mut seen: Vec<&str> = Vec::new();
    for name in ["event", "wire", "secret", "services", "scripted-upstream", "domain", "journal", "journal-nats"]
        .into_iter()
        .chain(["read-model", "upstream", "proxy", "projector", "upkeep", "audit", "console", "admin", "waybill"])
    {
        let rule = rule(name).unwrap();
        assert!(rule.may_use.iter().all(|used| seen.contains(used)), "{name}");
        seen.push(name);
    }
}
