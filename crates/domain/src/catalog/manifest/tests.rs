use waybill_event::ChannelId;
use waybill_event::config::{Change, StoredHash};

use super::*;
use crate::catalog::tests::{Book, channel, new_channel, new_group, new_key};
use crate::catalog::{Rejection, apply};

fn manifest(json: &str) -> Manifest {
    serde_json::from_str(json).unwrap()
}

fn supplies(keys: &[&str], credentials: &[&str]) -> Supplies {
    let token = |name: &&str| {
        let hash = StoredHash { pepper: "p1".to_owned(), mac: format!("mac of {name}") };
        ((*name).to_owned(), IssuedToken { prefix: "wb-key-xyz".to_owned(), hash })
    };
    let credential =
        |name: &&str| ((*name).to_owned(), CredentialRef { revision: 7, fingerprint: format!("fp-{name}") });
    Supplies { tokens: keys.iter().map(token).collect(), credentials: credentials.iter().map(credential).collect() }
}

const WHOLE: &str = r#"{
    "groups": [{"name": "default"}, {"name": "batch", "enabled": false}],
    "channels": [{"name": "main", "base_url": "https://up.example", "credential": "sk-secret",
                  "models": ["m", {"name": "fast", "upstream": "up-fast"}], "groups": ["default"], "priority": 5}],
    "keys": [{"name": "ci", "group": "default"}]
}"#;

fn adopt(book: &mut Book, plan: &Plan) {
    for step in &plan.steps {
        let n = book.log.len() as u64 + 1;
        let event = crate::catalog::tests::event(&step.change, n);
        apply(&mut book.catalog, &event, waybill_event::ConfigPosition(n));
        book.log.push(event);
    }
}

#[test]
fn later_entries_see_earlier_ones_and_applying_twice_changes_nothing() {
    let mut book = Book::default();
    let (wanted, supplied) = (manifest(WHOLE), supplies(&["ci"], &["main"]));
    assert_eq!(wanted.new_keys(&book.catalog).collect::<Vec<_>>(), ["ci"]);
    let first = plan(&book.catalog, &wanted, &supplied).unwrap();
    let done: Vec<_> = first.steps.iter().map(|s| (s.diff.entity, s.diff.name.as_str(), s.diff.change)).collect();
    assert_eq!(
        done,
        [
            ("group", "default", Change::Created),
            ("group", "batch", Change::Created),
            ("channel", "main", Change::Created),
            ("key", "ci", Change::Created),
        ]
    );
    adopt(&mut book, &first);
    assert_eq!(plan(&book.catalog, &wanted, &supplied).unwrap(), Plan::default());
    assert_eq!(wanted.new_keys(&book.catalog).count(), 0);
}

#[test]
fn the_diff_names_fields_and_shows_fingerprints_only() {
    let mut book = Book::default();
    let first = plan(&book.catalog, &manifest(WHOLE), &supplies(&["ci"], &["main"])).unwrap();
    adopt(&mut book, &first);
    let wanted = manifest(r#"{"channels": [{"name": "main", "weight": 4, "credential": "sk-new", "enabled": false}]}"#);
    let mut supplied = supplies(&[], &["main"]);
    supplied.credentials.get_mut("main").unwrap().fingerprint = "fp-new".to_owned();
    let steps = plan(&book.catalog, &wanted, &supplied).unwrap().steps;
    let diffs: Vec<_> = steps.iter().map(|step| &step.diff).collect();
    insta::assert_json_snapshot!(diffs);
    assert!(!format!("{wanted:?}").contains("sk-new"));
}

#[test]
fn credentials_are_asked_for_with_the_id_they_are_sealed_for() {
    let book = Book::with([new_group("default"), new_channel(channel("main"))]);
    let wanted = manifest(
        r#"{"channels": [{"name": "x", "base_url": "https://x.example", "credential": "s1"}, {"name": "main", "credential": "s2"},
            {"name": "y", "base_url": "https://y.example", "credential": "s3"}]}"#,
    );
    let asked = wanted.credentials(&book.catalog);
    let seen: Vec<_> = asked.iter().map(|c| (c.name, c.id.get(), c.credential.expose(), c.held.is_some())).collect();
    assert_eq!(seen, [("x", 2, "s1", false), ("main", 1, "s2", true), ("y", 3, "s3", false)]);
    let steps = plan(&book.catalog, &wanted, &supplies(&[], &["x", "main", "y"])).unwrap().steps;
    let ids: Vec<_> = steps.iter().map(|step| (step.diff.name.as_str(), step.diff.id.as_str())).collect();
    assert_eq!(ids, [("x", "2"), ("main", "1"), ("y", "3")]);
    assert_eq!(book.catalog.next_channel_id(), ChannelId::new(2));
}

#[test]
fn pruning_deletes_what_is_not_named_and_groups_last() {
    let book = Book::with([
        new_group("default"),
        new_group("old"),
        new_channel(channel("a")),
        new_channel(channel("b")),
        new_key("ci", "aa"),
    ]);
    let named = r#"{"prune": PRUNE, "groups": [{"name": "default"}], "channels": [{"name": "a"}]}"#;
    let steps = |prune: &str| plan(&book.catalog, &manifest(&named.replace("PRUNE", prune)), &Supplies::default());
    assert_eq!(steps("false").unwrap(), Plan::default());
    let pruned: Vec<_> = steps("true").unwrap().steps.iter().map(|s| (s.diff.entity, s.diff.name.clone())).collect();
    assert_eq!(pruned, [("key", "ci".to_owned()), ("channel", "b".to_owned()), ("group", "old".to_owned())]);
}

#[test]
fn faults_name_their_entry() {
    let check = |json: &str, field: &str| match plan(&Catalog::default(), &manifest(json), &Supplies::default()) {
        Err(Rejection::Invalid { field: actual, .. }) => assert_eq!(actual, field),
        other => panic!("expected {field} to be refused, got {other:?}"),
    };
    check(r#"{"channels": [{"name": "a"}]}"#, "channels/0/base_url");
    check(r#"{"channels": [{"name": "a", "base_url": "https://a", "groups": ["none"]}]}"#, "channels/0/groups/0");
    check(r#"{"groups": [{"name": "a"}, {"name": "a"}]}"#, "groups/1/name");
    check(r#"{"keys": [{"name": "k"}]}"#, "keys/0/group");
    assert!(serde_json::from_str::<Manifest>(r#"{"chanels": []}"#).is_err());
    assert!(serde_json::from_str::<Manifest>(r#"{"channels": [{"name": "a", "wieght": 1}]}"#).is_err());
}
