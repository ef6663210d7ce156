//! What may be asked once there is room: others were asked while it was waited for, and what they said counts for those
//! that wait.

use waybill_event::selection::Chosen;

use super::limits::limited;
use super::targets::{Targets, of_target};
use super::tests::Does::{self, Limited, Overflow, Status};
use super::tests::{List, candidate, observation};
use super::*;
use crate::verdict::{RuleSet, classify};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn machine() -> Machine {
    let mut opening = Opening::new(false, 0);
    opening.policy.queue = ms(5_000);
    Machine::new(opening)
}

fn any(_: &Candidate) -> Result<(), SkipReason> {
    Ok(())
}

fn ordered(step: Step) -> (u64, u32, Chosen) {
    match step {
        Step::Dispatch(order) => (order.candidate.source.source.id, order.candidate.target, order.why),
        other => panic!("{other:?}"),
    }
}

fn queued(step: Step) -> Vec<Candidate> {
    match step {
        Step::Queue { full, .. } => full,
        other => panic!("{other:?}"),
    }
}

fn fails(machine: &mut Machine, does: Does) {
    machine.failed(&classify(RuleSet::builtin(), &observation(does)));
}

fn skipped(machine: &mut Machine) -> Vec<(u64, SkipReason)> {
    machine.take_skips().iter().map(|skip| (skip.source.id, skip.why)).collect()
}

/// A source is full for both of its models; then there is room for the first one.
fn room_for_the_first_of_two_models() -> (Machine, Targets) {
    let mut targets = Targets(vec![vec![of_target(1, 0, None)], vec![of_target(1, 1, None)]], 99);
    let mut machine = machine();
    assert_eq!(ordered(machine.next(ms(0), &mut targets, &mut any)), (1, 0, Chosen::First));
    machine.passed_over(SkipReason::Concurrency);
    assert_eq!(ordered(machine.next(ms(0), &mut targets, &mut any)), (1, 1, Chosen::NextTarget));
    machine.passed_over(SkipReason::Concurrency);
    let full = queued(machine.next(ms(0), &mut targets, &mut any));
    assert_eq!(full.len(), 2);
    assert_eq!(ordered(machine.freed(ms(10), &full[0], &mut targets, &mut any)), (1, 0, Chosen::RoomFreed));
    (machine, targets)
}

#[test]
fn a_source_that_has_failed_as_a_whole_is_not_waited_for_with_another_model() {
    let (mut machine, mut targets) = room_for_the_first_of_two_models();
    fails(&mut machine, Status(401));
    assert_eq!(machine.next(ms(20), &mut targets, &mut any), Step::Stop(Conclusion::Exhausted));
    assert_eq!(skipped(&mut machine).last(), Some(&(1, SkipReason::Excluded)));
}

#[test]
fn a_source_whose_limit_is_not_told_yet_is_not_waited_for_with_another_model() {
    let (mut machine, mut targets) = room_for_the_first_of_two_models();
    fails(&mut machine, Limited { wait_ms: 1_000 });
    let Step::Wait { until, .. } = machine.next(ms(20), &mut targets, &mut any) else { panic!("its limit's end") };
    assert_eq!(ordered(machine.next(until, &mut targets, &mut any)), (1, 0, Chosen::SameSource));
    // Somebody else has its slot by now.
    machine.passed_over(SkipReason::Concurrency);
    assert_eq!(machine.next(until, &mut targets, &mut any), Step::Stop(Conclusion::Exhausted));
    assert_eq!(skipped(&mut machine), [(1, SkipReason::Concurrency), (1, SkipReason::Excluded)]);
    assert!(machine.take_outcome().is_some_and(|outcome| outcome.block.is_some()));
}

#[test]
fn a_model_that_is_not_there_leaves_the_other_one_to_be_waited_for() {
    let (mut machine, mut targets) = room_for_the_first_of_two_models();
    fails(&mut machine, Status(404));
    let full = queued(machine.next(ms(20), &mut targets, &mut any));
    assert_eq!(ordered(machine.freed(ms(30), &full[0], &mut targets, &mut any)), (1, 1, Chosen::RoomFreed));
}

#[test]
fn a_window_that_has_shown_to_be_too_small_is_not_waited_for() {
    let mut targets = Targets(
        vec![vec![of_target(1, 0, Some(8_000)), of_target(2, 0, Some(8_000)), of_target(3, 0, Some(9_000))]],
        99,
    );
    let mut machine = machine();
    for id in [1, 2, 3] {
        assert_eq!(ordered(machine.next(ms(0), &mut targets, &mut any)).0, id);
        if id != 2 {
            machine.passed_over(SkipReason::Concurrency);
        } else {
            fails(&mut machine, Overflow);
        }
    }
    let full = queued(machine.next(ms(0), &mut targets, &mut any));
    assert_eq!(full.iter().map(|full| full.source.source.id).collect::<Vec<_>>(), [3]);
    assert!(skipped(&mut machine).contains(&(1, SkipReason::CapabilityMissing)));
}

#[test]
fn room_at_what_is_ill_is_a_further_try_within_the_budget() {
    let ill = |id| Candidate { health: 20, ..candidate(id) };
    let check = |budget: u32, list: Vec<Candidate>, expected: Option<u64>| {
        let mut targets = Targets(vec![list], budget);
        let mut machine = machine();
        let mut full = Vec::new();
        for _ in 0..4 {
            match machine.next(ms(0), &mut targets, &mut any) {
                Step::Dispatch(order) if order.candidate.health < 50 => machine.passed_over(SkipReason::Concurrency),
                Step::Dispatch(_) => fails(&mut machine, Status(401)),
                step => {
                    full = queued(step);
                    break;
                }
            }
        }
        let step = machine.freed(ms(10), &full[0], &mut targets, &mut any);
        match expected {
            Some(id) => assert_eq!(ordered(step), (id, 0, Chosen::RoomFreed)),
            None => {
                assert_eq!(step, Step::Stop(Conclusion::Exhausted));
                assert_eq!(skipped(&mut machine).last(), Some(&(1, SkipReason::RetryBudget)));
            }
        }
    };
    check(1, vec![ill(1), candidate(2)], None);
    check(2, vec![ill(1), candidate(2)], Some(1));
    // What was within the budget at its turn isn't counted again.
    check(2, vec![candidate(2), ill(1)], Some(1));
    // The first try strains nobody further.
    check(1, vec![ill(1)], Some(1));
}

#[test]
fn a_limit_that_was_lifted_while_room_was_waited_for_is_not_tried_again() {
    let mut machine = machine();
    let mut list = List(vec![limited(1, 86_400_000, true)].into());
    assert_eq!(ordered(machine.next(ms(0), &mut list, &mut any)).2, Chosen::LimitRetried);
    machine.passed_over(SkipReason::Concurrency);
    let full = queued(machine.next(ms(0), &mut list, &mut any));
    let step = machine.freed(ms(10), &full[0], &mut list, &mut |_| Err(SkipReason::SoftBlocked));
    let Step::Dispatch(order) = step else { panic!("{step:?}") };
    assert_eq!((order.why, order.candidate.retry_of()), (Chosen::LastResort, None));
}
