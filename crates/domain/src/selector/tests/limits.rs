//! Limits that upstreams tell of: who waits for them in which order, when they may be tried again, and what ends them.

use std::time::Duration;

use proptest::prelude::*;
use waybill_event::config::SelectorPolicy;
use waybill_event::failure::{Health, Strength};
use waybill_event::selection::SkipReason;
use waybill_event::{ConfigPosition, Event, FailureKind, GroupId, LogTime, Position};

use super::fixture::*;
use crate::catalog::Ability;
use crate::selector::fleet::{FleetState, Urgency};
use crate::selector::plan::Manner;
use crate::selector::state::{Revisions, SourceState};
use crate::selector::table::{Table, Unavailable};
use crate::selector::transition::Turn;
use crate::selector::{Load, Place, Plan, View, Wheel, apply};

const LIMIT: FailureKind = FailureKind::RateLimited;

fn told(n: u64, id: u64, second: i64, strength: Strength, seconds: u64) -> Event {
    blocking(outcome("proxy-1", n, id, second, Health::None), LIMIT, strength, seconds)
}

/// The table of these channels after these events.
fn table(channels: u64, events: &[Event], second: i64) -> Table {
    let channels: Vec<_> = (1..=channels).map(|id| channel(id, 0, 1)).collect();
    let abilities: Vec<Ability> = abilities(&channels);
    let mut views: Vec<View> =
        abilities.iter().map(|ability| View::new(ability.source, "proxy-1".parse().unwrap(), boot(1))).collect();
    for event in events {
        views.iter_mut().for_each(|view| drop(view.own(event)));
    }
    let view = |wanted| views.iter().find(|view| view.state().source == wanted);
    let id = (GroupId::new(1), MODEL.into());
    Table::build(id, &abilities, view, |_| Load::default(), at(second), ConfigPosition(1))
}

/// Source, end of the limit in seconds and whether it may be tried again, of each candidate for a request of that second.
fn planned(table: Table, second: i64) -> Vec<(u64, Option<(u64, bool)>)> {
    let manner = Manner { admitted: at(second), begun: at(second), ..Manner::default() };
    let mut plan = Plan::new(table.into(), &mut Wheel::new(0), manner, &mut Free(false));
    assert!(plan.first_candidates(9).len() <= usize::try_from(plan.candidate_count()).unwrap(), "none is waited for");
    let waiting = |candidate: &crate::candidate::Candidate| {
        candidate.waiting.as_ref().map(|waiting| (waiting.not_before.as_secs(), waiting.retry_of.is_some()))
    };
    std::iter::from_fn(|| plan.next_candidate()).map(|c| (c.source.source.id, waiting(&c))).collect()
}

#[test]
fn limits_come_last_in_the_order_of_their_ends() {
    let events = [
        told(1, 1, 100, Strength::Hint, 400),
        told(2, 2, 100, Strength::Hint, 30),
        told(3, 3, 100, Strength::Hard, 90),
        told(4, 4, 100, Strength::Soft, 50),
    ];
    let found = planned(table(5, &events, 110), 110);
    let ends = |seconds: u64| Some((seconds, false));
    assert_eq!(found, [(5, None), (4, None), (2, ends(20)), (3, ends(80)), (1, ends(390))]);
}

#[test]
fn what_is_broken_or_off_is_neither_waited_for_nor_tried_again() {
    let broken = |n| with(told(n, 1, 100, Strength::Hard, 900), |outcome| outcome.kind = FailureKind::ServerError);
    assert_eq!(planned(table(1, &[broken(1)], 300), 300), []);
    let opened: Vec<Event> = (2..5).map(|n| outcome("proxy-1", n, 1, 100, Health::Fail)).collect();
    let limited = [vec![told(1, 1, 100, Strength::Hint, 900)], opened].concat();
    assert_eq!(planned(table(1, &limited, 120), 120), [], "its breaker is open as well");
    assert_eq!(planned(table(1, &limited, 300), 300), [], "it is half-open as well: that needs a probe");
}

#[test]
fn a_limit_may_be_tried_again_a_minute_after_it_was_last_told() {
    let check = |events: &[Event], second: i64, retried: bool| {
        let found = planned(table(1, events, second), second);
        assert_eq!(
            found.first().and_then(|(_, waiting)| *waiting).map(|(_, retried)| retried),
            Some(retried),
            "{second}"
        );
    };
    let first = told(1, 1, 100, Strength::Hint, 86_400);
    check(std::slice::from_ref(&first), 159, false);
    check(std::slice::from_ref(&first), 160, true);
    // Whoever tried was told again, though of nothing longer.
    let again = told(2, 1, 165, Strength::Hint, 3_600);
    check(&[first.clone(), again.clone()], 224, false);
    check(&[first, again], 225, true);
}

#[test]
fn clients_are_told_when_it_may_be_tried_again() {
    let check = |second: i64, seconds: i64| {
        let table = table(1, &[told(1, 1, 100, Strength::Hint, 86_400)], second);
        assert_eq!(table.unavailable(), Unavailable::Busy { retry_at: Some(at(seconds)) }, "{second}");
    };
    check(101, 160);
    check(300, 301);
}

fn state() -> SourceState {
    SourceState::new(source(1), Revisions::default(), SelectorPolicy::default(), ConfigPosition(0))
}

#[test]
fn a_request_that_tried_again_and_was_served_ends_the_limit_and_says_so() {
    let mut state = state();
    drop(apply(&mut state, &told(1, 1, 100, Strength::Hint, 86_400), Place::OWN));
    let ok = |n: u64, second: i64| outcome("proxy-2", n, 1, second, Health::Ok);
    assert!(apply(&mut state, &ok(1, 159), Place::OWN).is_empty(), "it was on its way when the limit was told");
    assert!(state.whole.blocks.active(Strength::Hint, at(161)).is_some());
    let transitions = apply(&mut state, &ok(2, 161), Place::OWN);
    let [transition] = transitions.as_slice() else { panic!("{transitions:?}") };
    assert!(matches!(&transition.turn, Turn::Lifted { strength: Strength::Hint, .. }), "{transition:?}");
    assert_eq!(transition.cause.as_ref().map(ToString::to_string), Some(format!("{}", mark("proxy-2", 2))));
    assert!(state.whole.blocks.active(Strength::Hint, at(161)).is_none());
    // What says that it is broken isn't a limit, whoever is served.
    let broken = with(told(3, 1, 200, Strength::Hard, 900), |outcome| outcome.kind = FailureKind::ServerError);
    drop(apply(&mut state, &broken, Place::OWN));
    assert!(apply(&mut state, &ok(3, 300), Place::OWN).is_empty());
    assert!(state.whole.blocks.active(Strength::Hard, at(300)).is_some());
}

#[test]
fn a_limit_told_again_is_published_at_once() {
    let mut fleet = FleetState::default();
    let mut urgency = |sequence: u64, event: &Event| {
        fleet
            .apply(event, Position::new(sequence, 0), event.draft.at)
            .unwrap()
            .touched
            .first()
            .map(|(_, urgency)| *urgency)
    };
    assert_eq!(urgency(1, &told(1, 1, 100, Strength::Hint, 86_400)), Some(Urgency::Now));
    assert_eq!(urgency(2, &told(2, 1, 170, Strength::Hint, 3_600)), Some(Urgency::Now));
    assert_eq!(urgency(3, &told(3, 1, 170, Strength::Hint, 3_600)), Some(Urgency::Lacks), "it was under way");
}

#[test]
fn the_time_of_the_next_try_is_policy() {
    let mut state = state();
    state.policy.retry_limited_ms = 5_000;
    drop(apply(&mut state, &told(1, 1, 100, Strength::Hint, 86_400), Place::OWN));
    let held = state.whole.blocks.active(Strength::Hint, at(101)).unwrap();
    assert_eq!(held.retry_from(Duration::from_secs(5)), at(105));
    assert_eq!(apply(&mut state, &outcome("proxy-2", 1, 1, 105, Health::Ok), Place::OWN).len(), 1);
}

proptest! {
    #[test]
    fn when_it_was_last_told_is_the_same_in_whatever_order(
        told_at in proptest::collection::vec((0_i64..200, 1_u64..400), 1..12),
        turn in 0_usize..12,
    ) {
        let confirmed = |order: &[(i64, u64)]| -> LogTime {
            let mut state = state();
            for ((second, seconds), n) in order.iter().zip(1..) {
                drop(apply(&mut state, &told(n, 1, *second, Strength::Hint, *seconds), Place::OWN));
            }
            state.whole.blocks.active(Strength::Hint, at(-1)).unwrap().retry_from(Duration::ZERO)
        };
        let mut turned = told_at.clone();
        turned.rotate_left(turn % told_at.len());
        prop_assert_eq!(confirmed(&told_at), confirmed(&turned));
    }
}

#[test]
fn a_limit_is_why_it_is_out() {
    let table = table(1, &[told(1, 1, 100, Strength::Hint, 400)], 110);
    assert_eq!(table.rows()[0].skip, Some(SkipReason::HintBlocked));
    assert!(table.rows()[0].busy);
}
