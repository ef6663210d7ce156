use proptest::prelude::*;
use waybill_event::config::{ChannelModel, CredentialRef, Limits};
use waybill_event::{Actor, Draft, Identity, LogTime};

use super::*;

/// A log of configuration, written by commands only.
#[derive(Default)]
pub(crate) struct Book {
    pub(crate) catalog: Catalog,
    pub(crate) log: Vec<Event>,
}

pub(crate) fn event(change: &ConfigChange, n: u64) -> Event {
    let identity = Identity::Derived { id: format!("edit-{n}"), producer: "admin".parse().unwrap() };
    let mut draft = Draft::new(LogTime::from_micros(i64::try_from(n).unwrap()), change.clone());
    draft.actor = Some(Actor::Operator);
    Event { identity, draft }
}

impl Book {
    pub(crate) fn run(&mut self, command: Command) -> Result<Vec<ConfigChange>, Rejection> {
        let changes = decide(&self.catalog, &command)?;
        for change in &changes {
            // What is stored is what is folded: each event goes through its JSON form.
            let n = self.log.len() as u64 + 1;
            let stored = waybill_event::decode_one(&event(change, n).encode().unwrap()).unwrap();
            apply(&mut self.catalog, &stored, ConfigPosition(n));
            self.log.push(stored);
        }
        Ok(changes)
    }

    pub(crate) fn with(commands: impl IntoIterator<Item = Command>) -> Self {
        let mut book = Self::default();
        for command in commands {
            book.run(command).unwrap();
        }
        book
    }
}

pub(crate) fn new_group(name: &str) -> Command {
    Command::Group(group::Command::Create { name: name.to_owned(), enabled: true })
}

pub(crate) fn channel(name: &str) -> channel::New {
    channel::New {
        credential: Some(CredentialRef { revision: 1, fingerprint: "00aa".to_owned() }),
        models: vec![ChannelModel::named("m")],
        groups: vec![GroupRef::Id(GroupId::new(1))],
        ..channel::New::at(name, "https://up.example")
    }
}

pub(crate) fn new_channel(new: channel::New) -> Command {
    Command::Channel(channel::Command::Create(Box::new(new)))
}

pub(crate) fn edit_channel(id: u64, expected: u64, patch: channel::Patch) -> Command {
    Command::Channel(channel::Command::Edit { id: ChannelId::new(id), expected, patch: Box::new(patch) })
}

pub(crate) fn new_key(name: &str, mac: &str) -> Command {
    Command::Key(key::Command::Issue(Box::new(key::New {
        name: name.to_owned(),
        group: GroupRef::Name("default".to_owned()),
        prefix: "wb-key-abc".to_owned(),
        hash: StoredHash { pepper: "p1".to_owned(), mac: mac.to_owned() },
        models: Vec::new(),
        expires_at: None,
        limits: Default::default(),
        user_limits: Default::default(),
        enabled: true,
    })))
}

/// Given these commands, when one more comes, then this is what happens.
fn check(
    given: impl IntoIterator<Item = Command>,
    when: Command,
    then: impl FnOnce(Result<Vec<ConfigChange>, Rejection>),
) {
    then(Book::with(given).run(when));
}

fn one_channel() -> [Command; 2] {
    [new_group("default"), new_channel(channel("a"))]
}

fn invalid(field: &'static str) -> impl FnOnce(Result<Vec<ConfigChange>, Rejection>) {
    move |result| match result {
        Err(Rejection::Invalid { field: actual, .. }) => assert_eq!(actual, field),
        other => panic!("expected {field} to be refused, got {other:?}"),
    }
}

#[test]
fn a_channel_is_created_edited_switched_and_deleted() {
    let mut book = Book::with(one_channel());
    let patch = channel::Patch { weight: Some(7), priority: Some(0), ..channel::Patch::default() };
    let changes = book.run(edit_channel(1, 1, patch)).unwrap();
    assert_eq!(changes.len(), 1);
    assert_eq!((changes[0].changed(), changes[0].version()), (&["weight".to_owned()][..], 2));
    let id = ChannelId::new(1);
    book.run(Command::Channel(channel::Command::Disable { id, expected: Some(2) })).unwrap();
    assert!(!book.catalog.channels[&id].enabled);
    assert_eq!(book.run(Command::Channel(channel::Command::Disable { id, expected: None })), Ok(Vec::new()));
    book.run(Command::Channel(channel::Command::Enable { id, expected: None })).unwrap();
    book.run(Command::Channel(channel::Command::Delete { id, expected: Some(4) })).unwrap();
    assert!(book.catalog.channels.is_empty());
    book.run(new_channel(channel("a"))).unwrap();
    assert_eq!(book.catalog.channels.keys().copied().collect::<Vec<_>>(), [ChannelId::new(2)], "ids aren't reused");
}

#[test]
fn a_new_base_url_gets_a_new_revision_and_nothing_else_does() {
    let mut book = Book::with(one_channel());
    let url = |url: &str| channel::Patch { base_url: Some(url.to_owned()), ..channel::Patch::default() };
    assert_eq!(book.run(edit_channel(1, 1, url("https://up.example"))), Ok(Vec::new()));
    book.run(edit_channel(1, 1, channel::Patch { weight: Some(2), ..channel::Patch::default() })).unwrap();
    book.run(edit_channel(1, 2, url("https://other.example/v1"))).unwrap();
    let channel = &book.catalog.channels[&ChannelId::new(1)];
    assert_eq!((channel.base_url_revision, channel.version), (3, 3));
}

#[test]
fn an_edit_of_an_older_version_is_refused_with_the_actual_one() {
    let patch = channel::Patch { weight: Some(2), ..channel::Patch::default() };
    check(one_channel(), edit_channel(1, 9, patch.clone()), |result| {
        let conflict = Rejection::VersionConflict { entity: "channel", id: "1".to_owned(), expected: 9, actual: 1 };
        assert_eq!(result, Err(conflict));
    });
    check(one_channel(), edit_channel(5, 1, patch), |result| {
        assert_eq!(result, Err(Rejection::NotFound { entity: "channel", id: "5".to_owned() }));
    });
}

#[test]
fn names_are_unique_among_the_living() {
    check(one_channel(), new_channel(channel(" a ")), |result| {
        assert_eq!(result, Err(Rejection::NameTaken { entity: "channel", name: "a".to_owned(), by: "1".to_owned() }));
    });
    check([new_group("default")], new_group("default"), |result| {
        assert!(matches!(result, Err(Rejection::NameTaken { entity: "group", .. })));
    });
    for name in ["", "  ", "a\nb", &"x".repeat(65)] {
        check(one_channel(), new_channel(channel::New { name: name.to_owned(), ..channel("b") }), invalid("name"));
    }
}

#[test]
fn fields_out_of_bounds_are_refused_by_name() {
    let url = |url: &str| channel::New { base_url: url.to_owned(), ..channel("b") };
    for bad in [
        "up.example",
        "ftp://up.example",
        "https://u:p@up.example",
        "https://a/?api_key=1",
        "https://a/?Sig=1",
        "https://a/#f",
        "http://",
    ] {
        check(one_channel(), new_channel(url(bad)), invalid("base_url"));
    }
    check(one_channel(), new_channel(url("https://a/openai?api-version=1")), |taken| {
        assert!(taken.is_ok(), "{taken:?}")
    });
    let model = |name: &str, upstream: Option<&str>| ChannelModel {
        name: name.to_owned(),
        upstream: upstream.map(str::to_owned),
        capabilities: Default::default(),
    };
    let cases: Vec<(channel::New, &'static str)> = vec![
        (channel::New { weight: 1_000_001, ..channel("b") }, "weight"),
        (channel::New { priority: -1_000_001, ..channel("b") }, "priority"),
        (channel::New { multiplier_milli: u32::MAX, ..channel("b") }, "multiplier_milli"),
        (channel::New { provider: "Open AI".to_owned(), ..channel("b") }, "provider"),
        (channel::New { models: vec![model("", None)], ..channel("b") }, "models/0/name"),
        (channel::New { models: vec![model("m", Some(" x"))], ..channel("b") }, "models/0/upstream"),
        (channel::New { models: vec![model("m", None), model("m", Some("x"))], ..channel("b") }, "models/1"),
        (channel::New { groups: vec![GroupRef::Name("none".to_owned())], ..channel("b") }, "groups/0"),
        (
            channel::New {
                groups: vec![GroupRef::Id(GroupId::new(1)), GroupRef::Name("default".to_owned())],
                ..channel("b")
            },
            "groups/1",
        ),
        (
            channel::New { limits: Limits { max_concurrent: Some(0), requests_per_minute: None }, ..channel("b") },
            "limits/max_concurrent",
        ),
    ];
    for (new, field) in cases {
        check(one_channel(), new_channel(new), invalid(field));
    }
}

#[test]
fn a_group_in_use_names_its_users() {
    let delete = Command::Group(group::Command::Delete { id: GroupId::new(1), expected: None });
    let given = [new_group("default"), new_channel(channel("a")), new_key("ci", "aa")];
    check(given, delete.clone(), |result| {
        let by = vec!["key 1 (ci)".to_owned(), "channel 1 (a)".to_owned()];
        assert_eq!(result, Err(Rejection::InUse { entity: "group", id: "1".to_owned(), by, more: 0 }));
    });
    check([new_group("default")], delete, |result| assert!(result.is_ok()));
}

#[test]
fn keys_and_admin_tokens_are_issued_and_revoked() {
    let hash = StoredHash { pepper: "p1".to_owned(), mac: "bb".to_owned() };
    let issue = admin_token::Command::Issue { name: "ann".to_owned(), prefix: "wb-adm".to_owned(), hash: hash.clone() };
    let mut book = Book::with([new_group("default"), new_key("ci", "aa"), Command::AdminToken(issue)]);
    assert_eq!(book.catalog.admin_token_by_hash(&hash).unwrap().name, "ann");
    assert!(matches!(book.run(new_key("other", "aa")), Err(Rejection::Invalid { .. })), "a token belongs to one key");
    let id = AdminTokenId::new(1);
    book.run(Command::AdminToken(admin_token::Command::Revoke { id, expected: None })).unwrap();
    assert_eq!(book.catalog.admin_token_by_hash(&hash), None);
    book.run(Command::Key(key::Command::Revoke { id: KeyId::new(1), expected: Some(1) })).unwrap();
    assert!(book.catalog.keys.is_empty());
}

#[test]
fn the_narrowest_policy_wins() {
    let source = Source::from(ChannelId::new(1));
    let set = |scope, expected, late_after_ms| {
        let selector = SelectorPolicy { late_after_ms, ..SelectorPolicy::default() };
        Command::Policy(policy::Command::Set {
            scope,
            expected,
            selector: selector.into(),
            request: Default::default(),
        })
    };
    let mut book = Book::with(one_channel());
    assert_eq!(book.catalog.selector_policy(source), SelectorPolicy::default());
    book.run(set(PolicyScope::Global, 0, 20_000)).unwrap();
    book.run(set(PolicyScope::Source { source }, 0, 30_000)).unwrap();
    assert_eq!(book.catalog.selector_policy(source).late_after_ms, 30_000);
    assert_eq!(book.catalog.selector_policy(ChannelId::new(2).into()).late_after_ms, 20_000);
    assert!(matches!(book.run(set(PolicyScope::Global, 0, 1_000)), Err(Rejection::VersionConflict { actual: 1, .. })));
    assert!(matches!(book.run(set(PolicyScope::Global, 1, 1)), Err(Rejection::Invalid { .. })));
    let nobody = PolicyScope::Source { source: ChannelId::new(9).into() };
    assert!(matches!(book.run(set(nobody, 0, 1_000)), Err(Rejection::NotFound { .. })));
}

#[test]
fn an_unknown_edit_stops_progress_and_edits() {
    let mut book = Book::with(one_channel());
    let unknown =
        br#"{"id":"x","type":"tenant_created","v":1,"at":"2026-11-29T12:00:00Z","producer":"admin","data":{}}"#;
    let before = book.catalog.clone();
    assert_eq!(
        apply(&mut book.catalog, &waybill_event::decode_one(unknown).unwrap(), ConfigPosition(3)),
        Applied::Blocked
    );
    let edit = UnknownEdit { position: ConfigPosition(3), kind: "tenant_created".to_owned(), version: 1 };
    assert_eq!(book.catalog.blocked_by, Some(edit.clone()));
    assert_eq!((book.catalog.position, &book.catalog.channels), (before.position, &before.channels));
    assert_eq!(apply(&mut book.catalog, &book.log[0], ConfigPosition(4)), Applied::Blocked);
    assert_eq!(book.run(new_group("more")), Err(Rejection::Blocked(edit)));
}

#[test]
fn folding_twice_changes_nothing_and_the_newest_of_each_subject_is_enough() {
    let mut book = Book::with(one_channel());
    book.run(new_key("ci", "aa")).unwrap();
    book.run(edit_channel(1, 1, channel::Patch { weight: Some(3), ..channel::Patch::default() })).unwrap();
    book.run(new_channel(channel("b"))).unwrap();
    book.run(Command::Channel(channel::Command::Delete { id: ChannelId::new(2), expected: None })).unwrap();
    let mut twice = Catalog::default();
    let mut newest = BTreeMap::new();
    for (n, event) in (1..).zip(&book.log) {
        apply(&mut twice, event, ConfigPosition(n));
        assert_eq!(apply(&mut twice, event, ConfigPosition(n)), Applied::Known);
        let Body::Config(change) = &event.draft.body else { panic!("configuration only") };
        newest.insert(change.subject(), (n, event));
    }
    assert_eq!(twice, book.catalog);
    let mut newest: Vec<_> = newest.into_values().collect();
    newest.sort_by_key(|(n, _)| *n);
    assert!(newest.len() < book.log.len());
    let mut compact = Catalog::default();
    for (n, event) in newest {
        apply(&mut compact, event, ConfigPosition(n));
    }
    assert_eq!(compact, book.catalog);
}

/// Commands on few names and ids, so that they often meet: most are refused, none may do harm.
fn any_command() -> impl Strategy<Value = Command> {
    let name = || prop::sample::select(vec!["a", "b", "c"]).prop_map(str::to_owned);
    let id = || 1..4_u64;
    let models = || prop::collection::vec(prop::sample::select(vec!["m", "n", "o"]), 0..3);
    let groups = || prop::collection::vec(1..3_u64, 0..2);
    let made = (name(), models(), groups(), -1..2_i32).prop_map(|(name, models, groups, priority)| {
        let models = models.into_iter().map(ChannelModel::named).collect();
        let groups = groups.into_iter().map(|id| GroupRef::Id(GroupId::new(id))).collect();
        new_channel(channel::New { models, groups, priority, ..channel(&name) })
    });
    let edited = (id(), 1..5_u64, models(), any::<bool>()).prop_map(|(id, expected, models, bare)| {
        let models = models.into_iter().map(ChannelModel::named).collect();
        let credential = bare.then_some(None);
        edit_channel(id, expected, channel::Patch { models: Some(models), credential, ..channel::Patch::default() })
    });
    prop_oneof![
        made,
        edited,
        id().prop_map(|id| Command::Channel(channel::Command::Disable { id: ChannelId::new(id), expected: None })),
        id().prop_map(|id| Command::Channel(channel::Command::Enable { id: ChannelId::new(id), expected: None })),
        id().prop_map(|id| Command::Channel(channel::Command::Delete { id: ChannelId::new(id), expected: None })),
        name().prop_map(|name| new_group(&name)),
        id().prop_map(|id| Command::Group(group::Command::Delete { id: GroupId::new(id), expected: None })),
        (name(), name()).prop_map(|(name, mac)| new_key(&name, &mac)),
        id().prop_map(|id| Command::Key(key::Command::Revoke { id: KeyId::new(id), expected: None })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn any_history_folds_alike_whole_or_from_the_newest_of_each_subject(
        commands in prop::collection::vec(any_command(), 0..40),
    ) {
        let mut book = Book::default();
        let mut view = Snapshot::default();
        for command in commands {
            let before = book.log.len();
            if book.run(command).is_err() {
                prop_assert_eq!(book.log.len(), before);
            }
            for (n, event) in (1..).zip(&book.log).skip(before) {
                view.apply(event, ConfigPosition(n));
            }
        }
        let whole = Snapshot::of(book.catalog.clone());
        prop_assert_eq!(view.catalog(), &book.catalog);
        prop_assert_eq!(view.index(), whole.index());
        let mut newest = BTreeMap::new();
        for (n, event) in (1..).zip(&book.log) {
            let Body::Config(change) = &event.draft.body else { continue };
            newest.insert(change.subject(), (n, event));
        }
        let mut newest: Vec<_> = newest.into_values().collect();
        newest.sort_by_key(|(n, _)| *n);
        let mut compact = Catalog::default();
        for (n, event) in newest {
            apply(&mut compact, event, ConfigPosition(n));
        }
        prop_assert_eq!(&compact, &book.catalog);
        for key in book.catalog.keys.values() {
            prop_assert!(book.catalog.groups.contains_key(&key.group), "a key's group always lives");
        }
    }
}
