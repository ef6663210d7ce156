//! Accounts whose tokens are refreshed: what that ends, what it leaves alone, and a refresh that fails for good.

use waybill_event::control::{CredentialRefreshFailed, CredentialRefreshed, RefreshReason};
use waybill_event::failure::{Health, Recovery, Strength};
use waybill_event::{Body, ConfigPosition, Draft, Event, FailureKind, Identity, LogTime, Position, Scope};

use super::fixture::*;
use crate::selector::state::{Revisions, SourceState};
use crate::selector::transition::Turn;
use crate::selector::view::Replaced;
use crate::selector::{Place, View, apply};

const REFUSED: FailureKind = FailureKind::AuthRefreshable;

fn told(n: u64, seconds: i64, body: impl Into<Body>) -> Event {
    Event { identity: Identity::Sequenced(mark("upkeep-1", n)), draft: Draft::new(at(seconds), body) }
}

fn scope() -> Scope {
    Scope { source: source(1), model: None }
}

fn refreshed(n: u64, seconds: i64, revision: u64) -> Event {
    let body = CredentialRefreshed {
        scope: scope(),
        credential_revision: revision,
        replaces: revision - 1,
        why: RefreshReason::Ahead,
        rotated: true,
        expires_at: None,
        took_ms: 1,
    };
    told(n, seconds, body)
}

fn failed(n: u64, seconds: i64, revision: u64, is_final: bool) -> Event {
    let body = CredentialRefreshFailed {
        scope: scope(),
        credential_revision: revision,
        base_url_revision: 1,
        is_final,
        kind: FailureKind::AuthInvalid,
        status: Some(400),
        code: Some("invalid_grant".to_owned()),
        message: "used".to_owned(),
        expires_at: None,
    };
    told(n, seconds, body)
}

/// An outcome that blocks, made with this token.
fn blocked(n: u64, seconds: i64, kind: FailureKind, revision: u64) -> Event {
    let event = blocking(outcome("proxy-1", n, 1, seconds, Health::None), kind, Strength::Hard, 120);
    with(event, |outcome| outcome.credential_revision = revision)
}

fn state() -> SourceState {
    let revisions = Revisions { credential: 1, base_url: 1 };
    let mut state =
        SourceState::new(source(1), revisions, waybill_event::config::SelectorPolicy::default(), ConfigPosition(1));
    state.rev = 1;
    state
}

/// Folds the events in their order; gives the turns of each.
fn fold(state: &mut SourceState, events: &[Event]) -> Vec<Vec<Turn>> {
    let mut stand = 0;
    let mut one = |event: &Event| {
        stand += 1;
        let place = Place::stored(Position::new(stand, 0), event.draft.at);
        apply(state, event, place).into_iter().map(|transition| transition.turn).collect()
    };
    events.iter().map(&mut one).collect()
}

fn hard(state: &SourceState, seconds: i64) -> Option<FailureKind> {
    state.whole.blocks.active(Strength::Hard, at(seconds)).map(|block| block.kind)
}

#[test]
fn a_refresh_ends_what_says_that_an_older_token_was_refused() {
    let mut state = state();
    let turns = fold(&mut state, &[blocked(1, 100, REFUSED, 1), refreshed(1, 101, 5)]);
    assert!(matches!(turns.as_slice(), [set, lifted] if matches!(set.as_slice(), [Turn::Blocked { .. }])
        && matches!(lifted.as_slice(), [Turn::Lifted { strength: Strength::Hard, .. }])));
    assert_eq!(hard(&state, 102), None);
    assert_eq!(state.revisions.credential, 1, "the login is the same");
}

#[test]
fn limits_and_health_outlive_a_refresh_whichever_token_met_them() {
    let mut state = state();
    let limited = FailureKind::WindowExhausted;
    let health = outcome("proxy-1", 1, 1, 99, Health::Fail);
    fold(&mut state, &[health, blocked(2, 100, limited, 1), refreshed(1, 101, 5)]);
    assert_eq!(hard(&state, 102), Some(limited));
    assert_eq!(state.whole.window.totals(at(102)).fail, 1);
    let mut state = self::state();
    fold(&mut state, &[refreshed(1, 101, 5), blocked(2, 102, limited, 1)]);
    assert_eq!(hard(&state, 103), Some(limited), "met with the older token, and the account's all the same");
}

#[test]
fn a_refusal_of_an_older_token_says_nothing_after_the_refresh() {
    let mut state = state();
    fold(&mut state, &[refreshed(1, 101, 5), blocked(1, 102, REFUSED, 1)]);
    assert_eq!(hard(&state, 103), None);
    fold(&mut state, &[blocked(2, 103, REFUSED, 5)]);
    assert_eq!(hard(&state, 104), Some(REFUSED), "the new one was refused, too");
}

#[test]
fn a_final_failure_disables_until_a_newer_token_or_another_login() {
    let disabled = |state: &SourceState| state.disabled.as_ref().map(|held| held.recovery);
    let mut state = state();
    fold(&mut state, &[failed(1, 100, 5, false)]);
    assert_eq!(disabled(&state), None, "what may pass disables nobody");
    let turns = fold(&mut state, &[failed(2, 101, 5, true), failed(3, 102, 5, true)]);
    assert_eq!(disabled(&state), Some(Recovery::Operator));
    assert_eq!(turns.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0], "told once");
    // Whoever had got a newer one comes back and stores it.
    let turns = fold(&mut state, &[refreshed(4, 103, 6)]);
    assert!(matches!(turns.as_slice(), [one] if matches!(one.as_slice(), [Turn::Enabled { .. }])));
    assert_eq!(disabled(&state), None);
    fold(&mut state, &[failed(5, 104, 5, true)]);
    assert_eq!(disabled(&state), None, "what failed with an older one is void");
    fold(&mut state, &[failed(6, 105, 6, true)]);
    assert!(state.adopt_revisions(Revisions { credential: 9, base_url: 1 }));
    assert_eq!(disabled(&state), None);
}

#[test]
fn a_ban_outlives_a_refresh() {
    let mut state = state();
    let banned = with(disabling(outcome("proxy-1", 1, 1, 100, Health::None), Recovery::Operator), |o| {
        o.kind = FailureKind::AccountBanned
    });
    fold(&mut state, &[banned, refreshed(1, 101, 5)]);
    assert!(state.disabled.is_some());
}

#[test]
fn news_of_tokens_counts_however_late_it_comes() {
    let mut state = state();
    let late = Place::stored(Position::new(1, 0), at(10_000));
    apply(&mut state, &failed(1, 100, 5, true), late);
    assert!(state.disabled.is_some());
    apply(&mut state, &refreshed(2, 101, 6), Place { position: Some(Position::new(2, 0)), ..late });
    assert!(state.disabled.is_none());
}

#[test]
fn a_replica_goes_by_its_own_tokens_before_the_fold_does() {
    let mut view = View::new(source(1), "proxy-1".parse().unwrap(), boot(1));
    view.adopt(Revisions { credential: 1, base_url: 1 });
    view.own(&blocked(1, 100, REFUSED, 1));
    assert_eq!(hard(view.state(), 101), Some(REFUSED));
    assert!(view.refreshed(5, at(101)));
    assert!(!view.refreshed(5, at(102)) && !view.refreshed(4, at(102)));
    assert_eq!(hard(view.state(), 102), None);
    // A value that doesn't know of the refresh yet changes nothing.
    let mut value = state();
    fold(&mut value, &[blocked(1, 100, REFUSED, 1)]);
    assert_eq!(view.replace(value), Replaced::Taken);
    assert_eq!(hard(view.state(), 102), None);
}

#[test]
fn values_of_sources_that_were_never_refreshed_look_as_before() {
    let written = serde_json::to_value(state()).unwrap();
    assert!(written.get("token").is_none());
    let mut refreshed_one = state();
    fold(&mut refreshed_one, &[refreshed(1, 101, 5)]);
    let written = serde_json::to_string(&refreshed_one).unwrap();
    assert_eq!(serde_json::from_str::<SourceState>(&written).unwrap().token, 5);
    assert_eq!(refreshed_one.clock, LogTime::from_micros(101_000_000));
}
