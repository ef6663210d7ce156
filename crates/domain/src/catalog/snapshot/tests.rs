use waybill_event::ChannelId;

use super::*;
use crate::catalog::channel as channels;
use crate::catalog::tests::{Book, channel, edit_channel, event, new_channel, new_group, new_key};
use crate::catalog::{Command, group, key};

fn hash(mac: &str) -> StoredHash {
    StoredHash { pepper: "p1".to_owned(), mac: mac.to_owned() }
}

fn book() -> Book {
    Book::with([new_group("default"), new_channel(channel("a")), new_key("ci", "aa")])
}

/// The snapshot that grew event by event, compared with the one made of the whole catalogue.
fn grown(book: &Book) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (n, event) in (1..).zip(&book.log) {
        snapshot.apply(event, ConfigPosition(n));
    }
    let whole = Snapshot::of(book.catalog.clone());
    assert_eq!(snapshot.catalog(), whole.catalog());
    assert_eq!(snapshot.index(), whole.index());
    assert_eq!(snapshot.keys, whole.keys);
    snapshot
}

fn check(book: &Book, models: &[&str], now: i64, then: Result<(), Denied>) {
    let snapshot = grown(book);
    let actual = snapshot.authorise(KeyId::new(1), models, LogTime::from_micros(now));
    assert_eq!(actual.map(|_| ()), then);
}

#[test]
fn a_key_is_found_by_its_hash_until_it_is_revoked() {
    let mut book = book();
    let before = grown(&book);
    assert_eq!(before.key_by_hash(&hash("aa")).unwrap().name, "ci");
    assert!(before.key_by_hash(&hash("bb")).is_none());
    book.run(Command::Key(key::Command::Revoke { id: KeyId::new(1), expected: None })).unwrap();
    assert!(grown(&book).key_by_hash(&hash("aa")).is_none());
    assert!(before.key_by_hash(&hash("aa")).is_some(), "a published view never changes");
}

#[test]
fn unknown_means_no() {
    check(&Book::default(), &[], 0, Err(Denied::UnknownKey));
    check(&book(), &["anything"], 0, Ok(()));
    let mut book = book();
    let patch = key::Patch {
        models: Some(vec!["m".to_owned()]),
        expires_at: Some(Some(LogTime::from_micros(50))),
        ..key::Patch::default()
    };
    book.run(Command::Key(key::Command::Edit { id: KeyId::new(1), expected: 1, patch })).unwrap();
    check(&book, &["alias", "m"], 49, Ok(()));
    check(&book, &["n"], 49, Err(Denied::ModelNotAllowed { model: "n".to_owned() }));
    check(&book, &["m"], 50, Err(Denied::KeyExpired { at: LogTime::from_micros(50) }));
    book.run(Command::Group(group::Command::Disable { id: waybill_event::GroupId::new(1), expected: None })).unwrap();
    check(&book, &["m"], 0, Err(Denied::GroupDisabled));
    book.run(Command::Key(key::Command::Disable { id: KeyId::new(1), expected: None })).unwrap();
    check(&book, &["m"], 0, Err(Denied::KeyDisabled));
}

#[test]
fn a_source_that_was_edited_meanwhile_is_asked_about_again() {
    let mut book = book();
    let source = ChannelId::new(1).into();
    let may = |book: &Book| {
        let snapshot = grown(book);
        let authorised = snapshot.authorise(KeyId::new(1), &["m"], LogTime::from_micros(0)).unwrap();
        let models: Vec<String> = snapshot.models_for(&authorised).map(|m| m.to_string()).collect();
        (snapshot.may_serve(&authorised, "m", source).map(|a| a.version), models)
    };
    assert_eq!(may(&book), (Ok(1), vec!["m".to_owned()]));
    book.run(edit_channel(1, 1, channels::Patch { credential: Some(None), ..channels::Patch::default() })).unwrap();
    assert_eq!(may(&book), (Err(SkipReason::NoCredential), vec![]));
    book.run(Command::Channel(channels::Command::Disable { id: ChannelId::new(1), expected: None })).unwrap();
    assert_eq!(may(&book).0, Err(SkipReason::Disabled));
    book.run(Command::Channel(channels::Command::Delete { id: ChannelId::new(1), expected: None })).unwrap();
    assert_eq!(may(&book).0, Err(SkipReason::NotAuthorised));
}

#[test]
fn a_clone_is_the_next_view_and_the_first_stays_what_it_was() {
    let mut book = book();
    let first = grown(&book);
    let patch = channels::Patch { weight: Some(9), ..channels::Patch::default() };
    let changes = book.run(edit_channel(1, 1, patch)).unwrap();
    let mut next = first.clone();
    next.apply(&event(&changes[0], 4), ConfigPosition(4));
    let weight = |s: &Snapshot| s.index().rows().map(|row| row.weight).collect::<Vec<_>>();
    assert_eq!((weight(&first), weight(&next)), (vec![1], vec![9]));
    assert!(Arc::ptr_eq(&first.keys, &next.keys));
    assert_eq!(next.position(), ConfigPosition(4));
}
