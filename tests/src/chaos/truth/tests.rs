//! That the check sees what is wrong: each thing that a fleet must not do, as it would show.

use super::*;
use waybill_testkit::Asked;

fn asked(model: &str, patience: Option<Duration>) -> Asked {
    Asked { name: "case-000001".to_owned(), model: model.to_owned(), stream: true, patience }
}

fn seen(asked: Asked, saw: Saw) -> Seen {
    let now = Instant::now();
    Seen { asked, backend: Some("proxy-1".to_owned()), refused: 0, began: now, ended: now, request: None, saw }
}

fn call(source: &str, outcome: Outcome) -> Call {
    let now = Instant::now();
    Call {
        number: 1,
        source: source.to_owned(),
        turn: 0,
        method: "POST".to_owned(),
        path: "/v1/chat/completions".to_owned(),
        headers: Vec::new(),
        body: Default::default(),
        received: now,
        answered: Some(now),
        ended: Some((outcome, now)),
        sent_bytes: 1,
    }
}

fn history(state: &str, status: Option<i32>, asked: &[&str]) -> History {
    History {
        request: "id".to_owned(),
        state: state.to_owned(),
        status,
        replica: "proxy-1".to_owned(),
        served: (state == "succeeded").then(|| asked.last().copied().unwrap_or_default().to_owned()),
        asked: asked.iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// What is said of one request whose calls ended so.
#[track_caller]
fn check(seen: &Seen, calls: &[Call], history: Option<&History>, orphan: bool, expected: Result<(), &str>) {
    let calls: Vec<&Call> = calls.iter().collect();
    let one = One { seen, calls: &calls, history, orphan };
    assert_eq!(one.check(), expected, "{seen:?} {history:?}");
}

#[test]
fn a_true_history_is_true() {
    let calls = [call("a", Outcome::Sent), call("b", Outcome::Sent)];
    let told = history("succeeded", Some(200), &["a", "b"]);
    check(&seen(asked(mix::CHAT, None), Saw::Whole), &calls, Some(&told), false, Ok(()));
    let left = seen(asked(mix::SLOW, Some(Duration::ZERO)), Saw::Left);
    check(&left, &[call("a", Outcome::ClientGone)], Some(&history("cancelled", None, &["a"])), false, Ok(()));
}

#[test]
fn what_the_upstream_saw_has_a_history() {
    let why = Err("the upstream saw it, and it has no history");
    let broken = seen(asked(mix::CHAT, None), Saw::Broken { why: String::new() });
    check(&broken, &[call("a", Outcome::ClientGone)], None, true, why);
    check(&broken, &[], None, true, Ok(()));
    let why = Err("it was answered and has no history");
    check(&seen(asked(mix::CHAT, None), Saw::Whole), &[], None, true, why);
}

#[test]
fn an_end_that_is_not_true_is_seen() {
    let whole = seen(asked(mix::CHAT, None), Saw::Whole);
    let calls = [call("a", Outcome::Sent)];
    let why = Err("the client got its answer, and the history says something else");
    for state in ["owner_lost", "failed", "cancelled", "partial"] {
        check(&whole, &calls, Some(&history(state, None, &["a"])), true, why);
    }
    check(&whole, &calls, Some(&history("open", None, &["a"])), false, Err("its history has no end"));
    let told = History { served: Some("b".to_owned()), ..history("succeeded", Some(200), &["a"]) };
    check(&whole, &calls, Some(&told), false, Err("another source served it"));
    let cut = [call("a", Outcome::Cut)];
    let why = Err("its history says success, the upstream doesn't");
    check(&whole, &cut, Some(&history("succeeded", Some(200), &["a"])), false, why);
    let refused = seen(asked(mix::BROKEN, None), Saw::Error { status: 502, code: String::new() });
    let why = Err("the client got an error, and the history says something else");
    check(&refused, &calls, Some(&history("failed", Some(503), &["a"])), false, why);
}

#[test]
fn an_error_that_nobody_meant_is_seen() {
    let why = Err("its client saw an error that nobody meant");
    let told = history("failed", Some(502), &["a"]);
    let refused = seen(asked(mix::CHAT, None), Saw::Error { status: 502, code: String::new() });
    check(&refused, &[call("a", Outcome::Sent)], Some(&told), true, why);
    let broken = seen(asked(mix::CHAT, None), Saw::Broken { why: String::new() });
    check(&broken, &[], None, false, why);
    check(&seen(asked(mix::CHAT, None), Saw::Nobody), &[], None, true, why);
}

#[test]
fn attempts_are_the_calls() {
    let why = Err("its attempts aren't the calls that the upstream saw");
    let whole = seen(asked(mix::CHAT, None), Saw::Whole);
    let told = |asked: &[&str]| history("succeeded", Some(200), asked);
    let calls = [call("a", Outcome::Sent), call("b", Outcome::Sent)];
    check(&whole, &calls, Some(&told(&["b"])), false, why);
    check(&whole, &calls, Some(&told(&["a", "c", "b"])), false, why);
    // The last attempt of a killed proxy was written, and not made.
    let broken = seen(asked(mix::CHAT, None), Saw::Broken { why: String::new() });
    let lost = history("owner_lost", None, &["a", "b"]);
    check(&broken, &[call("a", Outcome::Sent)], Some(&lost), true, Ok(()));
    check(&broken, &[call("b", Outcome::Sent)], Some(&lost), true, why);
}
