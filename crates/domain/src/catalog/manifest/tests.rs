use waybill_event::ChannelId;
use waybill_event::config::{Change, Platform, StoredHash};

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
    let credentials: std::collections::BTreeMap<_, _> = credentials.iter().map(credential).collect();
    Supplies { tokens: keys.iter().map(token).collect(), logins: credentials.clone(), credentials }
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
    let plain = |c: &SourceCredential<'_>| match c.plain {
        Plain::Key(key) => key.expose().to_owned(),
        Plain::Login(_, login) => login.expose(),
    };
    let seen: Vec<_> =
        asked.iter().map(|c| (c.name, c.source.id, plain(c), c.held.is_some(), c.field.as_str())).collect();
    let key = |name, id, key: &str, held, field| (name, id, key.to_owned(), held, field);
    assert_eq!(
        seen,
        [
            key("x", 2, "s1", false, "channels/0/credential"),
            key("main", 1, "s2", true, "channels/1/credential"),
            key("y", 3, "s3", false, "channels/2/credential")
        ]
    );
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

const POOL: &str = r#"{
    "groups": [{"name": "default"}],
    "accounts": [{"name": "max-1", "platform": "claude", "base_url": "https://up.example", "groups": ["default"],
                  "credential": {"access_token": "at-secret", "refresh_token": "rt-secret"}, "models": ["m"], "priority": 5,
                  "weight": 2, "limits": {"max_concurrent": 5}, "session_window": {"usd": 0.5}},
                 {"name": "max-2", "base_url": "https://up.example", "credential": "at-alone"}],
    "prices": [{"model": "m", "input_usd": 3, "output_usd": 15.5}]
}"#;

#[test]
fn accounts_and_prices_come_from_a_manifest_and_applying_twice_changes_nothing() {
    let mut book = Book::default();
    let (wanted, supplied) = (manifest(POOL), supplies(&[], &["max-1", "max-2"]));
    let asked = wanted.credentials(&book.catalog);
    let seen: Vec<_> = asked.iter().map(|c| (c.name, c.source.to_string())).collect();
    assert_eq!(seen, [("max-1", "account:1".to_owned()), ("max-2", "account:2".to_owned())]);
    assert!(!format!("{wanted:?}{asked:?}").contains("secret"), "logins can't be printed");
    let Plain::Login(Platform::Generic, alone) = asked[1].plain else { panic!("{:?}", asked[1]) };
    assert_eq!(alone.expose(), r#"{"access_token":"at-alone"}"#);

    let first = plan(&book.catalog, &wanted, &supplied).unwrap();
    let diffs: Vec<_> = first.steps.iter().map(|step| &step.diff).collect();
    insta::assert_json_snapshot!(diffs);
    adopt(&mut book, &first);
    assert_eq!(plan(&book.catalog, &wanted, &supplied).unwrap(), Plan::default());

    let edit = r#"{"accounts": [{"name": "max-1", "session_window": {"usd": 0}, "weight": 3, "enabled": false}],
        "prices": [{"model": "m", "input_usd": 4, "output_usd": 15.5}]}"#;
    let edited = plan(&book.catalog, &manifest(edit), &Supplies::default()).unwrap();
    let fields: Vec<Vec<_>> =
        edited.steps.iter().map(|step| step.diff.fields.iter().map(|f| f.field.as_str()).collect()).collect();
    assert_eq!(fields, [vec!["weight", "session_window"], vec!["enabled"], vec!["input_usd"]]);
}

#[test]
fn pruning_reaches_accounts_and_prices_only_where_they_are_spoken_of() {
    let mut book = Book::default();
    let first = plan(&book.catalog, &manifest(POOL), &supplies(&[], &["max-1", "max-2"])).unwrap();
    adopt(&mut book, &first);
    let pruned = |parts: &str| -> Vec<(String, String)> {
        let wanted = manifest(&format!(r#"{{"prune": true, "groups": [{{"name": "default"}}]{parts}}}"#));
        let plan = plan(&book.catalog, &wanted, &Supplies::default()).unwrap();
        plan.steps
            .iter()
            .map(|s| (format!("{} {}", s.diff.entity, s.diff.change.as_str()), s.diff.name.clone()))
            .collect()
    };
    let step = |what: &str, name: &str| (what.to_owned(), name.to_owned());
    assert_eq!(pruned(""), []);
    assert_eq!(pruned(r#", "accounts": [{"name": "max-2"}]"#), [step("account deleted", "max-1")]);
    assert_eq!(
        pruned(r#", "accounts": [], "prices": []"#),
        [step("account deleted", "max-1"), step("account deleted", "max-2"), step("price deleted", "m")]
    );
}

#[test]
fn faults_of_accounts_and_prices_name_their_entry() {
    let mut book = Book::default();
    let first = plan(&book.catalog, &manifest(POOL), &supplies(&[], &["max-1", "max-2"])).unwrap();
    adopt(&mut book, &first);
    let check = |json: &str, field: &str| match plan(&book.catalog, &manifest(json), &Supplies::default()) {
        Err(Rejection::Invalid { field: actual, .. }) => assert_eq!(actual, field),
        other => panic!("expected {field} to be refused, got {other:?}"),
    };
    check(r#"{"accounts": [{"name": "new"}]}"#, "accounts/0/base_url");
    check(r#"{"accounts": [{"name": "max-1", "platform": "codex"}]}"#, "accounts/0/platform");
    check(r#"{"accounts": [{"name": "max-1"}, {"name": " max-1"}]}"#, "accounts/1/name");
    check(r#"{"accounts": [{"name": "max-1", "session_window": {"usd": -1}}]}"#, "accounts/0/session_window/usd");
    check(r#"{"prices": [{"model": "m", "input_usd": 1, "output_usd": -1}]}"#, "prices/0/output_usd");
    check(
        r#"{"prices": [{"model": "m", "input_usd": 1, "output_usd": 1}, {"model": "m", "input_usd": 1, "output_usd": 1}]}"#,
        "prices/1/model",
    );
    assert!(serde_json::from_str::<Manifest>(r#"{"prices": [{"model": "m", "input_usd": 1}]}"#).is_err());
}
