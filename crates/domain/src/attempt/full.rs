//! Full is not broken: who is full is passed over, waited for at the end, and never evidence; and one kind of source
//! isn't left for another without leave.

use waybill_event::selection::Chosen;
use waybill_event::{Source, SourceKind, SourceRef};

use super::tests::{Does, List, candidate, list, observation};
use super::*;
use crate::verdict::{RuleSet, classify};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn machine(change: impl FnOnce(&mut Policy)) -> Machine {
    let mut opening = Opening::new(false, 0);
    change(&mut opening.policy);
    Machine::new(opening)
}

fn ordered(step: Step) -> (u64, Chosen) {
    match step {
        Step::Dispatch(order) => (order.candidate.source.source.id, order.why),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_full_are_passed_over_and_room_at_any_of_them_is_waited_for() {
    let mut machine = machine(|policy| policy.queue = ms(500));
    let mut candidates = list(2);
    let mut all = |_: &Candidate| Ok(());
    assert_eq!(ordered(machine.next(ms(0), &mut candidates, &mut all)).0, 1);
    machine.passed_over(SkipReason::Concurrency);
    assert_eq!(ordered(machine.next(ms(1), &mut candidates, &mut all)).0, 2);
    machine.passed_over(SkipReason::Rpm);
    let Step::Queue { full, until } = machine.next(ms(2), &mut candidates, &mut all) else {
        panic!("room is waited for")
    };
    assert_eq!((full.len(), until), (2, ms(502)));
    let told: Vec<_> = machine.clone().take_skips().iter().map(|skip| (skip.source.id, skip.why)).collect();
    assert_eq!(
        told,
        [(1, SkipReason::Concurrency), (2, SkipReason::Rpm)],
        "none is lost with an order not carried out"
    );
    assert!(machine.met_full());
    assert_eq!(ordered(machine.freed(ms(100), &full[1], &mut candidates, &mut all)), (2, Chosen::RoomFreed));
    // It fails, and the other one is still full: what is left of the time is waited for it.
    machine.failed(&classify(RuleSet::builtin(), &observation(Does::Status(401))));
    let Step::Queue { full, until } = machine.next(ms(300), &mut candidates, &mut all) else { panic!("the other one") };
    assert_eq!((full.len(), full[0].source.source.id, until), (1, 1, ms(502)));
    assert_eq!(machine.none_freed(), Step::Stop(Conclusion::Exhausted));
    let outcomes: Vec<u64> =
        std::iter::from_fn(|| machine.take_outcome()).map(|o| o.candidate.source.source.id).collect();
    assert_eq!(outcomes, [2], "who was full is no evidence");
}

#[test]
fn without_a_queue_a_slot_is_given_a_moment_and_then_it_is_over() {
    let mut machine = machine(|_| {});
    let (mut candidates, mut all) = (list(1), |_: &Candidate| Ok(()));
    ordered(machine.next(ms(0), &mut candidates, &mut all));
    machine.passed_over(SkipReason::Concurrency);
    let Step::Queue { until, .. } = machine.next(ms(0), &mut candidates, &mut all) else { panic!("a moment") };
    assert_eq!(until, ms(50));
    assert_eq!(machine.next(ms(60), &mut candidates, &mut all), Step::Stop(Conclusion::Exhausted));
}

#[test]
fn a_spent_session_is_not_waited_for() {
    let mut machine = machine(|policy| policy.queue = ms(500));
    let (mut candidates, mut all) = (list(1), |_: &Candidate| Ok(()));
    ordered(machine.next(ms(0), &mut candidates, &mut all));
    machine.passed_over(SkipReason::SessionWindow);
    assert_eq!(machine.next(ms(0), &mut candidates, &mut all), Step::Stop(Conclusion::NoCandidate));
}

#[test]
fn what_may_no_longer_be_asked_is_not_asked_because_it_has_room() {
    let mut machine = machine(|policy| policy.queue = ms(500));
    let mut candidates = list(1);
    ordered(machine.next(ms(0), &mut candidates, &mut |_| Ok(())));
    machine.passed_over(SkipReason::Concurrency);
    let Step::Queue { full, .. } = machine.next(ms(0), &mut candidates, &mut |_| Ok(())) else { panic!("room") };
    let step = machine.freed(ms(10), &full[0], &mut candidates, &mut |_| Err(SkipReason::Disabled));
    assert_eq!(step, Step::Stop(Conclusion::Exhausted));
    assert_eq!(machine.take_skips().last().map(|skip| skip.why), Some(SkipReason::Disabled));
}

fn of(kind: SourceKind, id: u64) -> Candidate {
    Candidate { source: SourceRef { source: Source { kind, id }, rev: 1 }, ..candidate(id) }
}

#[test]
fn another_kind_of_source_is_asked_only_where_the_policy_says_so() {
    let mixed = || List([of(SourceKind::Account, 1), of(SourceKind::Channel, 2), of(SourceKind::Account, 3)].into());
    for (same_kind, expected) in [(true, 3), (false, 2)] {
        let mut machine = machine(|policy| policy.same_kind = same_kind);
        let (mut candidates, mut all) = (mixed(), |_: &Candidate| Ok(()));
        ordered(machine.next(ms(0), &mut candidates, &mut all));
        // Being full is no reason to go on to what costs something else.
        machine.passed_over(SkipReason::Concurrency);
        assert_eq!(ordered(machine.next(ms(1), &mut candidates, &mut all)).0, expected);
    }
}
