//! What becomes of candidates that wait for the end of a limit, where nobody better is left.

use waybill_event::LogTime;
use waybill_event::selection::{Chosen, Next};

use super::tests::Does::{self, Answer, Limited, Status};
use super::tests::{List, candidate, observation};
use super::*;
use crate::candidate::Waiting;
use crate::verdict::{RuleSet, classify};

/// A candidate whose limit ends so long after the admission; `retried` if it may be tried again before.
pub(super) fn limited(id: u64, ends_ms: u64, retried: bool) -> Candidate {
    let waiting = Waiting {
        why: SkipReason::HintBlocked,
        ends: LogTime::from_micros(i64::try_from(ends_ms).unwrap() * 1_000),
        not_before: Duration::from_millis(ends_ms),
        retry_of: retried.then(|| "block".into()),
    };
    Candidate { waiting: Some(waiting), ..candidate(id) }
}

/// Who was asked, why and when in milliseconds; what followed failures; who was passed over; how it ended.
type Went = (Vec<(u64, Chosen, u64)>, Vec<Next>, Vec<u64>, Conclusion);

/// Each dispatch takes 100 ms and meets the next of these upstreams; `still` says whose limit holds after the wait.
fn went(list: Vec<Candidate>, opening: Opening, does: &[Does], still: &[u64]) -> Went {
    let mut machine = Machine::new(opening);
    let (mut list, mut does) = (List(list.into()), does.iter());
    let (mut asked, mut nexts, mut skips) = (Vec::new(), Vec::new(), Vec::new());
    let (mut now, mut failed) = (Duration::ZERO, false);
    let mut recheck = |candidate: &Candidate| {
        let holds = still.contains(&candidate.source.source.id);
        if holds { Err(SkipReason::HintBlocked) } else { Ok(()) }
    };
    let conclusion = loop {
        let step = machine.next(now, &mut list, &mut recheck);
        if std::mem::take(&mut failed) {
            nexts.push(step.follows());
        }
        skips.extend(machine.take_skips());
        match step {
            Step::Queue { .. } => unreachable!("nobody is full"),
            Step::Wait { until, .. } => {
                assert!(matches!(machine.next(now, &mut list, &mut recheck), Step::Wait { .. }), "asked too soon");
                now = until;
            }
            Step::Stop(conclusion) => break conclusion,
            Step::Dispatch(order) => {
                let id = order.candidate.source.source.id;
                asked.push((id, order.why, u64::try_from(now.as_millis()).unwrap()));
                skips.extend(order.skips);
                now += Duration::from_millis(100);
                match *does.next().unwrap() {
                    Answer => machine.succeeded(now),
                    does => {
                        machine.failed(&classify(RuleSet::builtin(), &observation(does)));
                        failed = true;
                    }
                }
            }
        }
    };
    let skips = skips.into_iter().map(|skip| skip.source.id).collect();
    (asked, nexts, skips, conclusion)
}

fn opening() -> Opening {
    Opening::new(true, 0)
}

#[test]
fn a_limit_that_ends_within_patience_is_waited_for_and_never_asked_sooner() {
    let (asked, _, skips, conclusion) = went(vec![limited(1, 3_000, false)], opening(), &[Answer], &[]);
    assert_eq!((asked, conclusion), (vec![(1, Chosen::LimitEnded, 3_000)], Conclusion::Served));
    assert!(skips.is_empty());
    // Whoever fails before is the reason to go there, and the wait is on the way elsewhere.
    let list = vec![candidate(1), limited(2, 1_000, false)];
    let (asked, nexts, ..) = went(list, opening(), &[Status(503), Answer], &[]);
    assert_eq!(asked, [(1, Chosen::First, 0), (2, Chosen::LimitEnded, 1_000)]);
    assert_eq!(nexts, [Next::Elsewhere]);
}

#[test]
fn those_that_wait_for_the_same_come_one_after_the_other() {
    let times: Vec<u64> = (0..8)
        .map(|n| {
            let opening = Opening::new(true, n * 127);
            went(vec![limited(1, 2_000, false)], opening, &[Answer], &[]).0[0].2
        })
        .collect();
    assert!(times.iter().all(|ms| (2_000..=2_250).contains(ms)), "{times:?}");
    assert!(times.iter().max().unwrap() - times.iter().min().unwrap() > 100, "{times:?}");
}

#[test]
fn a_limit_that_holds_too_long_is_left_alone() {
    let check = |ends_ms, deadline_ms| {
        let policy = Policy { deadline: Duration::from_millis(deadline_ms), ..Policy::default() };
        let opening = Opening { policy, ..opening() };
        let (asked, _, skips, conclusion) = went(vec![limited(1, ends_ms, false)], opening, &[], &[]);
        assert_eq!((asked, skips, conclusion), (vec![], vec![1], Conclusion::NoCandidate), "{ends_ms} {deadline_ms}");
    };
    check(5_001, 600_000);
    check(3_000, 3_200);
}

#[test]
fn a_limit_that_was_lengthened_meanwhile_isnt_asked() {
    let list = vec![limited(1, 1_000, false), limited(2, 2_000, false)];
    let (asked, _, skips, conclusion) = went(list.clone(), opening(), &[Answer], &[1]);
    assert_eq!((asked, skips, conclusion), (vec![(2, Chosen::LimitEnded, 2_000)], vec![1], Conclusion::Served));
    let (asked, _, skips, conclusion) = went(list, opening(), &[], &[1, 2]);
    assert_eq!((asked, skips, conclusion), (vec![], vec![1, 2], Conclusion::NoCandidate));
}

#[test]
fn a_limit_that_may_be_tried_again_is_tried_at_once_unless_its_end_is_near() {
    let day = 86_400_000;
    let (asked, ..) = went(vec![limited(1, day, true)], opening(), &[Answer], &[]);
    assert_eq!(asked, [(1, Chosen::LimitRetried, 0)]);
    let (asked, ..) = went(vec![limited(1, 2_000, true)], opening(), &[Answer], &[]);
    assert_eq!(asked, [(1, Chosen::LimitEnded, 2_000)]);
    // It is told again: there is nothing to be patient about, and the request ends with it.
    let again = [Limited { wait_ms: day }];
    let (asked, nexts, _, conclusion) = went(vec![limited(1, day, true)], opening(), &again, &[]);
    assert_eq!((asked, nexts), (vec![(1, Chosen::LimitRetried, 0)], vec![Next::Stop]));
    assert_eq!(conclusion, Conclusion::Exhausted);
}

#[test]
fn who_leaves_while_a_limit_is_waited_for_has_asked_nobody() {
    let mut machine = Machine::new(opening());
    let mut list = List(vec![limited(1, 3_000, false)].into());
    assert!(matches!(machine.next(Duration::ZERO, &mut list, &mut |_| Ok(())), Step::Wait { .. }));
    machine.cancelled();
    assert_eq!((machine.attempts(), machine.take_outcome()), (0, None));
    let next = machine.next(Duration::from_secs(9), &mut list, &mut |_| Ok(()));
    assert_eq!(next, Step::Stop(Conclusion::Cancelled));
}

/// Softly blocked, whoever hasn't chosen it as a last resort.
fn softly(candidate: &Candidate) -> Result<(), SkipReason> {
    if candidate.last_resort { Ok(()) } else { Err(SkipReason::SoftBlocked) }
}

fn ordered(step: Step) -> (u64, Chosen) {
    match step {
        Step::Dispatch(order) => (order.candidate.source.source.id, order.why),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_softly_blocked_once_its_limit_has_ended_is_a_last_resort() {
    let mut machine = Machine::new(opening());
    let mut list = List(vec![limited(1, 1_000, false)].into());
    let Step::Wait { until, .. } = machine.next(Duration::ZERO, &mut list, &mut softly) else { panic!("its end") };
    assert_eq!(ordered(machine.next(until, &mut list, &mut softly)), (1, Chosen::LastResort));
    // Somebody else whose limit ends comes first.
    let mut machine = Machine::new(opening());
    let mut list = List(vec![limited(1, 1_000, false), limited(2, 2_000, false)].into());
    let mut first_softly =
        |candidate: &Candidate| if candidate.source.source.id == 1 { softly(candidate) } else { Ok(()) };
    let Step::Wait { until, .. } = machine.next(Duration::ZERO, &mut list, &mut first_softly) else {
        panic!("its end")
    };
    let Step::Wait { until, .. } = machine.next(until, &mut list, &mut first_softly) else { panic!("the other's end") };
    assert_eq!(ordered(machine.next(until, &mut list, &mut first_softly)), (2, Chosen::LimitEnded));
}

#[test]
fn a_limit_that_was_lifted_leaves_a_last_resort_and_nothing_to_try_again() {
    let day = 86_400_000;
    let mut machine = Machine::new(opening());
    let mut list = List(vec![limited(1, day, true)].into());
    assert_eq!(ordered(machine.next(Duration::ZERO, &mut list, &mut softly)), (1, Chosen::LimitRetried));
    machine.passed_over(SkipReason::SoftBlocked);
    assert_eq!(ordered(machine.next(Duration::ZERO, &mut list, &mut softly)), (1, Chosen::LastResort));
}
