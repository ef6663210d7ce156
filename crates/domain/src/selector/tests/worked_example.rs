//! Moments 1 to 9 of a fleet of two replicas and a leader: A (1) and B (2) in tier 100, C (3) in tier 50.

use std::sync::Arc;

use waybill_event::config::Change;
use waybill_event::failure::{Health, Recovery};
use waybill_event::selection::SkipReason;
use waybill_event::{ConfigPosition, Event, GroupId, LogTime, Position, Source};

use super::fixture::*;
use crate::selector::fleet::{Effects, FleetState, NeedConfig, Urgency};
use crate::selector::plan::Manner;
use crate::selector::table::{Table, Unavailable};
use crate::selector::transition::Turn;
use crate::selector::{Load, Plan, Revisions, View, Wheel};

const A: u64 = 1;
const B: u64 = 2;
const C: u64 = 3;

fn fleet() -> FleetState {
    let mut fleet = FleetState::default();
    for (position, id, priority) in [(1, A, 100), (2, B, 100), (3, C, 50)] {
        fleet.feed_config(&channel_edit(channel(id, priority, 5), Change::Created), ConfigPosition(position)).unwrap();
    }
    let effects = fold(&mut fleet, 100, &applied(3, 1));
    assert_eq!(effects.touched.len(), 3);
    fleet
}

fn fold(fleet: &mut FleetState, sequence: u64, event: &Event) -> Effects {
    fleet.apply(event, Position::new(sequence, 0), event.draft.at).unwrap()
}

fn view(id: u64, producer: &str) -> View {
    View::new(source(id), producer.parse().unwrap(), boot(1))
}

fn table_of(views: &[&View], as_of: LogTime) -> Table {
    table_with(views, as_of, &[channel(A, 100, 5), channel(B, 100, 5), channel(C, 50, 5)])
}

fn table_with(views: &[&View], as_of: LogTime, channels: &[waybill_event::config::Channel]) -> Table {
    let find = |source: Source| views.iter().find(|view| view.state().source == source).copied();
    let candidates = abilities(channels);
    let load = |_: &crate::catalog::Ability| Load::default();
    Table::build((GroupId::new(1), MODEL.into()), &candidates, find, load, as_of, ConfigPosition(3))
}

fn order(table: Table, probe_free: bool) -> Vec<(u64, bool)> {
    let mut plan = Plan::new(Arc::new(table), &mut Wheel::new(1), Manner::default(), &mut Free(probe_free));
    let first: Vec<u64> = plan.first_candidates(8).iter().map(|source| source.id).collect();
    let drawn: Vec<(u64, bool)> = std::iter::from_fn(|| plan.next_candidate())
        .map(|candidate| (candidate.source.source.id, candidate.probe_of.is_some()))
        .collect();
    assert_eq!(first, drawn.iter().map(|(id, _)| *id).collect::<Vec<_>>(), "what was told is what is drawn");
    drawn
}

/// A fails eight times of ten, told by both replicas; the tenth outcome is p2's n 41.
fn failures() -> Vec<Event> {
    let mut events: Vec<Event> =
        (1..=5).map(|n| outcome("p1", n, A, 10 + i64::try_from(n).unwrap(), Health::Fail)).collect();
    events.push(outcome("p2", 38, A, 16, Health::Ok));
    events.push(outcome("p2", 39, A, 17, Health::Ok));
    events.push(outcome("p2", 40, A, 18, Health::Fail));
    events.push(outcome("p1", 6, A, 18, Health::Fail));
    events.push(outcome("p2", 41, A, 19, Health::Fail));
    // Models have a breaker of their own, which three failures in a row trip; here only the source's is looked at.
    events.into_iter().map(|event| with(event, |outcome| outcome.model_health = Health::None)).collect()
}

fn opened() -> (FleetState, Effects) {
    let mut fleet = fleet();
    let mut last = Effects::default();
    for (sequence, event) in (122..).zip(failures()) {
        assert!(last.transitions.is_empty());
        last = fold(&mut fleet, sequence, &event);
    }
    (fleet, last)
}

#[test]
fn three_and_four_the_view_holds_each_own_event_once() {
    let mut fleet = fleet();
    let mut p1 = view(A, "p1");
    p1.replace(fleet.value(source(A), 1).unwrap());

    let fail = outcome("p1", 5, A, 7, Health::Fail);
    p1.own(&fail);
    assert_eq!(p1.state().whole.window.totals(at(7)).fail, 1);
    assert_eq!((p1.own_range(), p1.position()), (Some((5, 5)), Some(Position::new(100, 0))));

    for n in 1..=4 {
        fold(&mut fleet, 100 + n, &outcome("p1", n, B, 6, Health::Ok));
    }
    let effects = fold(&mut fleet, 105, &fail);
    assert_eq!(effects.touched.as_slice(), [(source(A), Urgency::Factor)]);
    p1.replace(fleet.value(source(A), 1).unwrap());
    assert_eq!(p1.state().whole.window.totals(at(7)).fail, 1, "counted by the value, dropped from the overlay");
    assert_eq!(p1.own_range(), None);
}

#[test]
fn five_the_outcome_that_satisfies_the_policy_is_the_opening_everywhere() {
    let (fleet, last) = opened();
    let opened = &last.transitions[0];
    let id = format!("source:channel:1@{}", mark("p2", 41));
    match &opened.turn {
        Turn::Opened { opening, ok, fail, times, open_until } => {
            assert_eq!((&**opening, *ok, *fail, *times, *open_until), (id.as_str(), 2, 8, 1, at(49)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        (last.touched.as_slice(), opened.position),
        ([(source(A), Urgency::Now)].as_slice(), Some(Position::new(131, 0)))
    );
    assert_eq!(opened.event_id(), format!("breaker_opened:{id}"));

    // p2 has p1's six failures from the value, its own outcomes itself, and comes to the same opening.
    let mut p2 = view(A, "p2");
    let mut before = self::fleet();
    for (sequence, event) in (122..).zip(failures()).filter(|(_, e)| e.identity.producer().as_str() == "p1") {
        fold(&mut before, sequence, &event);
    }
    p2.replace(before.value(source(A), 1).unwrap());
    for event in failures().iter().filter(|e| e.identity.producer().as_str() == "p2") {
        p2.own(event);
    }
    let own = p2.state().whole.breaker.opening().unwrap().clone();
    assert_eq!((&*own.id, own.open_until), (id.as_str(), at(49)));

    let table = table_of(&[&p2], at(20));
    assert_eq!(table.row_of(source(A)).unwrap().skip, Some(SkipReason::SourceBreakerOpen));
    assert_eq!(order(table, true), [(B, false), (C, false)]);
    drop(fleet);
}

#[test]
fn six_a_new_leader_comes_to_the_same_state_and_skips_what_values_cover() {
    let (whole, last) = opened();
    // Checkpoint at 118; L wrote A's value at 125 before it died, the other values are those of the beginning.
    let mut first = fleet();
    let mut checkpoint = first.checkpoint(1);
    checkpoint.position = Position::new(118, 0);
    let (b, c) = (first.value(source(B), 1).unwrap(), first.value(source(C), 1).unwrap());
    let stored: Vec<Event> = failures();
    for (sequence, event) in (122..=125).zip(&stored) {
        fold(&mut first, sequence, event);
    }
    let a = first.value(source(A), 1).unwrap();

    let mut second = FleetState::restore(checkpoint, [a.clone(), b, c]);
    assert_eq!(second.apply(&stored[0], Position::new(122, 0), at(11)), Err(NeedConfig(ConfigPosition(3))));
    for (position, id, priority) in [(1, A, 100), (2, B, 100), (3, C, 50)] {
        let event = channel_edit(channel(id, priority, 5), Change::Created);
        second.feed_config(&event, ConfigPosition(position)).unwrap();
    }
    assert_eq!(second.reconcile(), Effects::default());
    let rewritten = second.value(source(A), 2).unwrap();
    assert_eq!((rewritten.position, &rewritten.marks), (a.position, &a.marks), "ahead of the fold, as it was");
    let mut again = Effects::default();
    for (sequence, event) in (122..).zip(&stored) {
        again = fold(&mut second, sequence, event);
    }
    assert_eq!(again.transitions, last.transitions, "the same opening, with the same id");
    assert_eq!(second.value(source(A), 2), whole.value(source(A), 2));
}

#[test]
fn seven_half_open_needs_no_event_and_one_probe_decides() {
    let (mut fleet, last) = opened();
    let Turn::Opened { opening, .. } = &last.transitions[0].turn else { panic!() };
    let mut p1 = view(A, "p1");
    p1.replace(fleet.value(source(A), 1).unwrap());

    assert_eq!(order(table_of(&[&p1], at(48)), true), [(B, false), (C, false)]);
    let half_open = table_of(&[&p1], at(49));
    assert_eq!(half_open.row_of(source(A)).unwrap().skip, Some(SkipReason::Probing));
    assert_eq!(order(half_open.clone(), true), [(A, true), (B, false), (C, false)]);
    assert_eq!(order(half_open, false), [(B, false), (C, false)]);

    // Failures of requests that were under way, foreign and late results decide nothing.
    fold(&mut fleet, 150, &outcome("p1", 7, A, 50, Health::Fail));
    fold(&mut fleet, 151, &probe("p1", 8, A, 50, "source:channel:1@other", true));
    let late = probe("p2", 42, A, 50, opening, false);
    fleet.apply(&late, Position::new(152, 0), at(90)).unwrap();
    let held = fleet.value(source(A), 1).unwrap();
    assert_eq!(held.whole.breaker.opening().unwrap().open_until, at(49), "not prolonged");

    let effects = fold(&mut fleet, 153, &probe("p1", 9, A, 51, opening, true));
    assert_eq!(effects.transitions[0].turn, Turn::Closed { opening: Arc::clone(opening) });
    let probes_own = with(outcome("p1", 10, A, 52, Health::Fail), |outcome| outcome.probe = true);
    fold(&mut fleet, 154, &probes_own);
    p1.replace(fleet.value(source(A), 1).unwrap());
    assert_eq!(p1.state().whole.window.totals(at(52)).all(), 0, "cleared, and not counted again");
    let recovery = |seconds| table_of(&[&p1], at(seconds)).row_of(source(A)).unwrap().factors.recovery;
    assert_eq!((recovery(51), recovery(66), recovery(81)), (10, 55, 100));

    // A second result for the same opening comes too late to flip it.
    assert!(fold(&mut fleet, 155, &probe("p2", 43, A, 52, opening, false)).transitions.is_empty());
}

#[test]
fn seven_a_failed_probe_opens_again() {
    let (mut fleet, last) = opened();
    let Turn::Opened { opening, .. } = &last.transitions[0].turn else { panic!() };
    let effects = fold(&mut fleet, 150, &probe("p1", 7, A, 55, opening, false));
    let again = format!("source:channel:1@{}", mark("p1", 7));
    match &effects.transitions[0].turn {
        Turn::Opened { opening, times, open_until, .. } => {
            assert_eq!((&**opening, *times, *open_until), (again.as_str(), 2, at(85)));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn eight_a_new_key_heals_at_once_and_old_evidence_counts_no_more() {
    let (mut fleet, _) = opened();
    let mut p1 = view(A, "p1");
    p1.replace(fleet.value(source(A), 1).unwrap());
    let mut edited = channel(A, 100, 5);
    edited.version = 2;
    edited.credential.as_mut().unwrap().revision = 2;

    // The catalogue alone is enough, before the view is told and after.
    let channels = [edited.clone(), channel(B, 100, 5), channel(C, 50, 5)];
    assert_eq!(table_with(&[&p1], at(30), &channels).row_of(source(A)).unwrap().skip, None);
    assert!(p1.adopt(Revisions { credential: 2, base_url: 1 }));
    assert_eq!(p1.state().whole.window.totals(at(30)).all(), 0);

    fleet.feed_config(&channel_edit(edited, Change::Edited), ConfigPosition(4)).unwrap();
    assert!(fleet.value(source(A), 1).unwrap().whole.breaker.opening().is_some(), "not before its marker");
    let effects = fold(&mut fleet, 140, &applied(4, 30));
    assert_eq!(effects.touched.as_slice(), [(source(A), Urgency::Now)]);
    for n in 7..=20 {
        fold(&mut fleet, 134 + n, &outcome("p1", n, A, 31, Health::Fail));
    }
    let value = fleet.value(source(A), 1).unwrap();
    assert_eq!((value.whole.window.totals(at(31)).all(), value.whole.breaker.opening()), (0, None));
    assert_eq!(value.config, ConfigPosition(4));
}

#[test]
fn eight_an_edit_and_an_operator_end_a_disabling() {
    let check = |change: Change, credential: u64, recovery: Recovery, ends: bool| {
        let mut fleet = fleet();
        let disabled = fold(&mut fleet, 110, &disabling(outcome("p1", 1, A, 10, Health::None), recovery));
        let Turn::Disabled { disabling, .. } = &disabled.transitions[0].turn else { panic!() };
        let mut edited = channel(A, 100, 5);
        edited.version = 2;
        edited.credential.as_mut().unwrap().revision = credential;
        fleet.feed_config(&channel_edit(edited, change), ConfigPosition(4)).unwrap();
        let effects = fold(&mut fleet, 120, &applied(4, 30));
        let expected = ends.then(|| Turn::Enabled { disabling: Arc::clone(disabling) });
        assert_eq!(effects.transitions.first().map(|t| t.turn.clone()), expected, "{change:?} {credential}");
        assert!(effects.transitions.iter().all(|t| t.cause.is_none() && t.t == at(30)));
    };
    check(Change::Edited, 1, Recovery::Probe, false);
    check(Change::Edited, 2, Recovery::Probe, true);
    check(Change::Edited, 2, Recovery::Operator, true);
    check(Change::Enabled, 1, Recovery::Operator, true);
}

#[test]
fn eight_a_deleted_source_is_no_more() {
    let (mut fleet, _) = opened();
    fleet.feed_config(&channel_edit(channel(A, 100, 5), Change::Deleted), ConfigPosition(4)).unwrap();
    let effects = fold(&mut fleet, 140, &applied(4, 30));
    assert_eq!(effects.removed.as_slice(), [source(A)]);
    let after = fold(&mut fleet, 141, &outcome("p1", 7, A, 31, Health::Fail));
    assert_eq!((after.touched.len(), fleet.value(source(A), 1)), (0, None));
}

#[test]
fn nine_late_events_are_history_and_no_evidence() {
    let mut fleet = fleet();
    let refused = disabling(outcome("p1", 1, B, 110, Health::None), Recovery::Probe);
    let mut p1 = view(B, "p1");
    p1.replace(fleet.value(source(B), 1).unwrap());
    p1.own(&refused);
    assert_eq!(table_of(&[&p1], at(111)).row_of(source(B)).unwrap().skip, Some(SkipReason::Disabled));

    let effects = fleet.apply(&refused, Position::new(120, 0), at(161)).unwrap();
    assert!(effects.transitions.is_empty());
    assert_eq!(fleet.value(source(B), 1).unwrap().marks, [mark("p1", 1)], "folded all the same");
}

#[test]
fn when_nothing_is_left_the_plan_says_why_and_when() {
    let (fleet, _) = opened();
    let mut a = view(A, "p9");
    a.replace(fleet.value(source(A), 1).unwrap());
    let hint = |id, seconds| {
        let mut view = view(id, "p1");
        let event = outcome("p1", 1, id, 10, Health::None);
        view.own(&blocking(
            event,
            waybill_event::FailureKind::RateLimited,
            waybill_event::failure::Strength::Hint,
            seconds,
        ));
        view
    };
    let check = |views: &[&View], channels: &[u64], expected: Option<Unavailable>| {
        let channels: Vec<_> = channels.iter().map(|id| channel(*id, 100, 5)).collect();
        let table = Arc::new(table_with(views, at(20), &channels));
        assert_eq!(Plan::new(table, &mut Wheel::new(3), Manner::default(), &mut Free(true)).unavailable(), expected);
    };
    check(&[&a], &[A], Some(Unavailable::Down { retry_at: Some(at(49)) }));
    check(&[&hint(B, 60), &hint(C, 40)], &[B, C], Some(Unavailable::Busy { retry_at: Some(at(50)) }));
    check(&[&a, &hint(C, 60)], &[A, C], Some(Unavailable::Down { retry_at: Some(at(49)) }));
    check(&[&a], &[A, B], None);
}
