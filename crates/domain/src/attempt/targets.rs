//! The loop over several targets of a route, and what strains the ill.

use waybill_event::config::Capabilities;
use waybill_event::selection::Chosen;

use super::tests::Does::{self, Answer, Limited, Overflow, Quota, Status};
use super::tests::{candidate, observation};
use super::*;
use crate::observation::{Ending, Observation, Shape};
use crate::verdict::{RuleSet, classify};
use Conclusion as C;

/// Candidates of two targets, and a budget that allows so many strains.
pub(super) struct Targets(pub(super) Vec<Vec<Candidate>>, pub(super) u32);

impl Candidates for Targets {
    fn next_candidate(&mut self) -> Option<Candidate> {
        let target = self.0.first_mut()?;
        if target.is_empty() { None } else { Some(target.remove(0)) }
    }

    fn next_target(&mut self) -> bool {
        if self.0.len() < 2 {
            return false;
        }
        self.0.remove(0);
        true
    }

    fn may_strain(&mut self, _: &Candidate) -> bool {
        self.1 = self.1.saturating_sub(1);
        self.1 > 0
    }
}

pub(super) fn of_target(id: u64, target: u32, context_window: Option<u64>) -> Candidate {
    let capabilities = Capabilities { context_window, ..Capabilities::default() };
    Candidate { target, capabilities, upstream_model: format!("m{target}").into(), ..candidate(id) }
}

/// Who was asked and why, what was said of them, who was passed over, and how it ended.
type Went = (Vec<(u64, Chosen)>, Vec<Outcome>, Vec<Skip>, Conclusion);

/// Runs a request over these targets; each dispatch meets the next of these upstreams.
fn over(mut targets: Targets, opening: Opening, does: &[Does]) -> Went {
    let mut machine = Machine::new(opening);
    let (mut asked, mut outcomes, mut skips) = (Vec::new(), Vec::new(), Vec::new());
    let mut does = does.iter();
    let mut now = Duration::ZERO;
    let conclusion = loop {
        let step = machine.next(now, &mut targets, &mut |_| Ok(()));
        outcomes.extend(std::iter::from_fn(|| machine.take_outcome()));
        match step {
            Step::Queue { .. } => unreachable!("nobody is full"),
            Step::Wait { until, .. } => now = until,
            Step::Stop(conclusion) => break conclusion,
            Step::Dispatch(order) => {
                asked.push((order.candidate.source.source.id, order.why));
                skips.extend(order.skips);
                match *does.next().unwrap() {
                    Does::Answer => machine.succeeded(now),
                    does => machine.failed(&classify(RuleSet::builtin(), &observation(does))),
                }
            }
        }
    };
    outcomes.extend(std::iter::from_fn(|| machine.take_outcome()));
    skips.extend(machine.take_skips());
    (asked, outcomes, skips, conclusion)
}

#[test]
fn siblings_come_first_then_patience_then_the_next_target() {
    let targets = || Targets(vec![vec![of_target(1, 0, None), of_target(2, 0, None)], vec![of_target(3, 1, None)]], 99);
    let opening = || Opening::new(true, 0);
    let (asked, ..) = over(targets(), opening(), &[Status(503), Status(503), Status(503), Answer]);
    let why = [(1, Chosen::First), (2, Chosen::FailOver), (2, Chosen::SameSource), (3, Chosen::NextTarget)];
    assert_eq!(asked, why);
    let mut honest = opening();
    honest.policy.degrade = false;
    let (asked, _, _, conclusion) = over(targets(), honest, &[Status(503), Status(503), Status(503)]);
    assert_eq!((asked.len(), conclusion), (3, C::Exhausted));
    let nobody = Targets(vec![Vec::new(), vec![of_target(3, 1, None)]], 99);
    let (asked, ..) = over(nobody, opening(), &[Answer]);
    assert_eq!(asked, [(3, Chosen::NextTarget)]);
}

#[test]
fn only_a_larger_window_is_asked_after_an_overflow() {
    let small = || of_target(1, 0, Some(8_000));
    let targets = Targets(
        vec![vec![small(), of_target(2, 0, None)], vec![of_target(3, 1, Some(8_000)), of_target(4, 1, Some(9_000))]],
        99,
    );
    let (asked, outcomes, skips, _) = over(targets, Opening::new(true, 0), &[Overflow, Answer]);
    assert_eq!(asked, [(1, Chosen::First), (4, Chosen::NextTarget)]);
    let skipped: Vec<(u64, SkipReason)> = skips.iter().map(|skip| (skip.source.id, skip.why)).collect();
    assert_eq!(skipped, [(2, SkipReason::CapabilityMissing), (3, SkipReason::CapabilityMissing)]);
    assert_eq!(outcomes.len(), 2);
    let alone = Targets(vec![vec![small(), of_target(2, 0, None)]], 99);
    let (asked, _, _, conclusion) = over(alone, Opening::new(true, 0), &[Overflow]);
    assert_eq!((asked.len(), conclusion), (1, C::Refused));
}

#[test]
fn a_source_that_failed_as_a_whole_is_not_asked_for_another_model() {
    let again = || Targets(vec![vec![of_target(1, 0, None)], vec![of_target(1, 1, None), of_target(2, 1, None)]], 99);
    let (asked, _, skips, _) = over(again(), Opening::new(true, 0), &[Status(503), Status(503), Answer]);
    assert_eq!(asked.iter().map(|a| a.0).collect::<Vec<_>>(), [1, 1, 2]);
    assert_eq!(skips.iter().map(|skip| skip.why).collect::<Vec<_>>(), [SkipReason::Excluded]);
    let (asked, outcomes, ..) = over(again(), Opening::new(true, 0), &[Overflow, Status(400)]);
    assert_eq!(asked.len(), 1, "no window is declared: {asked:?} {outcomes:?}");
    // A model that isn't there says nothing against the source: its other model is asked.
    let (asked, outcomes, ..) = over(again(), Opening::new(true, 0), &[Status(404), Answer]);
    assert_eq!(asked, [(1, Chosen::First), (1, Chosen::NextTarget)]);
    let told: Vec<(Health, Health)> = outcomes.iter().map(|o| (o.source_health, o.model_health)).collect();
    assert_eq!(told[1], (Health::None, Health::Ok), "a source's health is told once, a model's for each: {told:?}");
}

#[test]
fn a_source_that_calls_two_targets_alike_is_asked_once() {
    let alike = |target| Candidate { upstream_model: "m".into(), ..of_target(1, target, None) };
    let targets = Targets(vec![vec![alike(0)], vec![alike(1), of_target(2, 1, None)]], 99);
    let (asked, outcomes, skips, _) = over(targets, Opening::new(true, 0), &[Status(404), Answer]);
    assert_eq!(asked, [(1, Chosen::First), (2, Chosen::NextTarget)]);
    assert_eq!((outcomes.len(), skips[0].why), (2, SkipReason::Excluded));
}

#[test]
fn a_source_that_has_just_closed_itself_is_not_asked_for_another_model() {
    let check = |does: Does| {
        let first = vec![of_target(1, 0, None)];
        let targets = Targets(vec![first, vec![of_target(1, 1, None), of_target(2, 1, None)]], 99);
        let (asked, _, skips, _) = over(targets, Opening::new(true, 0), &[does, Answer]);
        assert_eq!(asked, [(1, Chosen::First), (2, Chosen::NextTarget)], "{does:?}");
        assert_eq!(skips[0].why, SkipReason::Excluded, "{does:?}");
    };
    check(Limited { wait_ms: 60_000 });
    check(Quota);
    check(Status(401));
}

#[test]
fn what_strains_the_ill_is_within_the_budget() {
    let ill = |id| Candidate { health: 20, ..candidate(id) };
    let targets = Targets(vec![vec![candidate(1), ill(2), candidate(3), ill(4)]], 2);
    let (asked, _, skips, _) = over(targets, Opening::new(true, 0), &[Status(503), Status(503), Status(503)]);
    assert_eq!(asked.iter().map(|a| a.0).collect::<Vec<_>>(), [1, 2, 3], "a healthy one is never suppressed");
    let skipped: Vec<(u64, SkipReason)> = skips.iter().map(|skip| (skip.source.id, skip.why)).collect();
    assert!(skipped.iter().all(|(_, why)| *why == SkipReason::RetryBudget), "{skipped:?}");
}

#[test]
fn a_further_try_that_is_passed_over_leaves_what_the_first_one_said() {
    let of_model =
        |target: u32| Candidate { upstream_model: format!("m{target}").into(), ..of_target(1, target, None) };
    let mut targets = Targets(vec![vec![of_model(0)], vec![of_model(1)]], 99);
    let mut machine = Machine::new(Opening::new(false, 0));
    let mut now = Duration::ZERO;
    let (mut asked, mut outcomes) = (Vec::new(), Vec::new());
    loop {
        match machine.next(now, &mut targets, &mut |_| Ok(())) {
            Step::Queue { .. } => unreachable!("nobody is full"),
            Step::Wait { until, .. } => now = until,
            Step::Stop(_) => break,
            // Its permit is somebody else's by now.
            Step::Dispatch(order) if order.why == Chosen::SameSource => machine.passed_over(SkipReason::Probing),
            Step::Dispatch(order) => {
                asked.push(order.candidate.upstream_model.to_string());
                let ending = Ending::Wrong2xx { status: 200, shape: Shape::EmptyOutput };
                machine.failed(&classify(RuleSet::builtin(), &Observation { ending, ..observation(Status(500)) }));
            }
        }
        outcomes.extend(std::iter::from_fn(|| machine.take_outcome()));
    }
    outcomes.extend(std::iter::from_fn(|| machine.take_outcome()));
    assert_eq!(asked, ["m0", "m1"]);
    let told: Vec<_> =
        outcomes.iter().map(|o| (&*o.candidate.upstream_model, o.source_health, o.model_health)).collect();
    assert_eq!(told, [("m0", Health::Ok, Health::Fail), ("m1", Health::None, Health::Fail)]);
}
