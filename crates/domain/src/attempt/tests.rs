use std::collections::VecDeque;

use waybill_event::failure::{Health, Sent};
use waybill_event::selection::{Chosen, Next};
use waybill_event::{Source, SourceKind, SourceRef};

use waybill_event::config::{Capabilities, RetryUnknown};

use super::*;
use crate::observation::{Ending, ErrorFields, Fault, Headers, Limit, Observation, Phase, Shape, TransportFault};
use crate::verdict::{RuleSet, classify};

pub(super) struct List(pub(super) VecDeque<Candidate>);

impl Candidates for List {
    fn next_candidate(&mut self) -> Option<Candidate> {
        self.0.pop_front()
    }

    fn next_target(&mut self) -> bool {
        false
    }

    fn may_strain(&mut self, _: &Candidate) -> bool {
        true
    }
}

pub(super) fn candidate(id: u64) -> Candidate {
    Candidate {
        source: SourceRef { source: Source { kind: SourceKind::Channel, id }, rev: 1 },
        upstream_model: "m".into(),
        priority: 100,
        place: u32::try_from(id).unwrap_or(0),
        probe_of: None,
        probes: 1,
        last_resort: false,
        despite_open: false,
        capabilities: Capabilities::default(),
        target: 0,
        health: 100,
        sticky: false,
        waiting: None,
    }
}

pub(super) fn list(count: u64) -> List {
    List((1..=count).map(candidate).collect())
}

/// What an upstream does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    Answer,
    Status(u16),
    Limited { wait_ms: u64 },
    Quota,
    TimeOut,
    Refuse,
    Reset,
    Stale,
    BreakAfterContent,
    Leave,
    Overflow,
}

pub(super) fn observation(does: Does) -> Observation {
    let transport = |fault, phase, sent| {
        Ending::Transport(TransportFault { phase, fault, sent, received: 0, detail: String::new() })
    };
    let mut error = ErrorFields::default();
    let mut headers = Headers::default();
    let ending = match does {
        Does::Answer => Ending::Success,
        Does::Status(status) => Ending::Status { status, shape: Shape::Error },
        Does::Limited { wait_ms } => {
            headers.push("retry-after-ms", &wait_ms.to_string());
            Ending::Status { status: 429, shape: Shape::Error }
        }
        Does::Quota => {
            error.code = Some("insufficient_quota".to_owned());
            Ending::Status { status: 429, shape: Shape::Error }
        }
        Does::TimeOut => Ending::TimedOut { limit: Limit::FirstContent, sent: Sent::Request },
        Does::Refuse => transport(Fault::Refused, Phase::Connect, Sent::Nothing),
        Does::Reset => transport(Fault::Reset, Phase::Head, Sent::Request),
        Does::Stale => transport(Fault::Closed, Phase::Head, Sent::Nothing),
        Does::BreakAfterContent => Ending::Wrong2xx { status: 200, shape: Shape::Cut },
        Does::Leave => Ending::ClientGone,
        Does::Overflow => {
            error.code = Some("context_length_exceeded".to_owned());
            Ending::Status { status: 400, shape: Shape::Error }
        }
    };
    let committed = does == Does::BreakAfterContent;
    Observation { error, headers, committed, ..Observation::new("openai", ending) }
}

/// A request that meets these upstreams, one answer per dispatch, each taking 100 ms.
struct Given<'a> {
    opening: Opening,
    candidates: u64,
    does: &'a [Does],
    refuse: &'a [(u64, SkipReason)],
}

fn given(candidates: u64, does: &[Does]) -> Given<'_> {
    Given { opening: Opening::new(true, 0), candidates, does, refuse: &[] }
}

#[derive(Debug, Default)]
struct Ran {
    /// Source, attempt, why and time of each dispatch.
    asked: Vec<(u64, u32, Chosen, u64)>,
    nexts: Vec<Next>,
    outcomes: Vec<Outcome>,
    skips: Vec<Skip>,
    conclusion: Option<Conclusion>,
    fallback: Option<FallbackReason>,
    machine_failures: Vec<FailureRecord>,
    maybe_billed: bool,
}

fn run(given: Given<'_>) -> Ran {
    let mut machine = Machine::new(given.opening);
    let mut candidates = list(given.candidates);
    let mut does = given.does.iter();
    let mut recheck = |candidate: &Candidate| {
        let soft = |why| why == SkipReason::SoftBlocked && candidate.last_resort;
        let refused = given.refuse.iter().find(|(id, why)| *id == candidate.source.source.id && !soft(*why));
        refused.map_or(Ok(()), |(_, why)| Err(*why))
    };
    let mut ran = Ran::default();
    let mut now = Duration::ZERO;
    let mut after_failure = false;
    for _ in 0..200 {
        let step = machine.next(now, &mut candidates, &mut recheck);
        if std::mem::take(&mut after_failure) {
            ran.nexts.push(step.follows());
        }
        while let Some(outcome) = machine.take_outcome() {
            ran.outcomes.push(outcome);
        }
        match step {
            Step::Queue { .. } => unreachable!("nobody is full"),
            Step::Wait { until, .. } => now = until,
            Step::Dispatch(order) => {
                let id = order.candidate.source.source.id;
                ran.asked.push((id, order.attempt, order.why, u64::try_from(now.as_millis()).unwrap()));
                ran.skips.extend(order.skips);
                now += Duration::from_millis(100);
                let does = *does.next().expect("one answer for each dispatch");
                match does {
                    Does::Answer => {
                        machine.committed(now);
                        machine.succeeded(now + Duration::from_millis(400));
                    }
                    Does::BreakAfterContent => {
                        machine.committed(now);
                        machine.failed(&classify(RuleSet::builtin(), &observation(does)));
                        after_failure = true;
                    }
                    Does::Leave => machine.cancelled(),
                    _ => {
                        machine.failed(&classify(RuleSet::builtin(), &observation(does)));
                        after_failure = true;
                    }
                }
            }
            Step::Stop(conclusion) => {
                ran.conclusion = Some(conclusion);
                break;
            }
        }
    }
    ran.skips.extend(machine.take_skips());
    ran.fallback = machine.fallback();
    ran.machine_failures = machine.failures().to_vec();
    ran.maybe_billed = machine.maybe_billed();
    assert_eq!(does.next(), None, "every answer was asked for");
    ran
}

fn check(given: Given<'_>, asked: &[u64], conclusion: Conclusion) -> Ran {
    let ran = run(given);
    assert_eq!(ran.asked.iter().map(|a| a.0).collect::<Vec<_>>(), asked, "{ran:#?}");
    assert_eq!(ran.conclusion, Some(conclusion));
    let mut sources: Vec<u64> = ran.outcomes.iter().map(|o| o.candidate.source.source.id).collect();
    sources.sort_unstable();
    let mut once: Vec<u64> = asked.to_vec();
    once.sort_unstable();
    once.dedup();
    assert_eq!(sources, once, "one outcome for each source");
    ran
}

use Conclusion as C;
use Does::{Answer, BreakAfterContent, Leave, Limited, Quota, Refuse, Reset, Stale, Status, TimeOut};

#[test]
fn the_first_candidate_serves() {
    let ran = check(given(3, &[Answer]), &[1], C::Served);
    assert_eq!(ran.asked, [(1, 1, Chosen::First, 0)]);
    assert_eq!(ran.outcomes[0].latency, Some(Duration::from_millis(100)), "to the first content");
    assert_eq!((ran.fallback, ran.maybe_billed), (None, false));
}

#[test]
fn a_failure_goes_to_a_sibling_at_once() {
    let ran = check(given(3, &[Status(500), Status(401), Answer]), &[1, 2, 3], C::Served);
    assert_eq!(ran.asked[1], (2, 2, Chosen::FailOver, 100));
    assert_eq!(ran.nexts, [Next::Elsewhere, Next::Elsewhere]);
    assert_eq!(ran.fallback, Some(FallbackReason::Upstream5xx), "made from the first failure");
    assert_eq!(ran.outcomes[0].source_health, Health::Fail);
    assert_eq!(ran.outcomes[0].latency, None);
    assert!(ran.maybe_billed);
}

#[test]
fn the_last_source_gets_one_more_try() {
    let ran = check(given(1, &[Status(500), Answer]), &[1, 1], C::Served);
    assert_eq!(ran.asked[1], (1, 2, Chosen::SameSource, 350));
    assert_eq!(ran.nexts, [Next::Same]);
    assert_eq!(ran.outcomes[0].attempts, 2);
    assert_eq!(ran.outcomes[0].source_health, Health::Ok, "a final success settles it");
    assert_eq!(ran.fallback, None, "it never asked a second source");
    check(given(1, &[Status(500), Status(500)]), &[1, 1], C::Exhausted);
    check(given(2, &[Reset, Reset, Answer]), &[1, 2, 2], C::Served);
}

#[test]
fn a_hint_within_patience_is_waited_out() {
    let ran = check(given(1, &[Limited { wait_ms: 2_000 }, Answer]), &[1, 1], C::Served);
    assert!(ran.asked[1].3 >= 2_100, "never sooner than the hint");
    let ran = check(given(1, &[Limited { wait_ms: 6_000 }]), &[1], C::Exhausted);
    let answer = crate::verdict::answer(&ran.machine_failures);
    assert_eq!((answer.status, answer.retry_after, answer.no_retry), (429, Some(Duration::from_secs(6)), false));
    let ran = check(given(1, &[Status(429), Answer]), &[1, 1], C::Served);
    assert!(ran.asked[1].3 >= 1_100, "without a hint it backs off");
}

#[test]
fn a_clients_own_retry_gets_none_of_ours_at_the_same_source() {
    let opening = Opening { client_retry: 1, ..Opening::new(true, 0) };
    check(Given { opening: opening.clone(), ..given(1, &[Status(500)]) }, &[1], C::Exhausted);
    check(Given { opening, ..given(2, &[Status(500), Answer]) }, &[1, 2], C::Served);
}

#[test]
fn a_conflict_is_tried_three_times_before_the_sibling() {
    let does = [Status(409), Status(409), Status(409), Status(409), Answer];
    let ran = check(given(2, &does), &[1, 1, 1, 1, 2], C::Served);
    assert_eq!(ran.asked.iter().map(|a| a.3).collect::<Vec<_>>(), [0, 600, 1_200, 1_800, 1_900]);
    assert_eq!(ran.outcomes[0].attempts, 4);
}

#[test]
fn a_dead_pooled_connection_is_tried_again_at_once() {
    let ran = check(given(2, &[Stale, Answer]), &[1, 1], C::Served);
    assert_eq!(ran.asked[1].3, 100);
}

#[test]
fn a_timeout_gets_one_further_source_and_never_the_same() {
    check(given(1, &[TimeOut]), &[1], C::Exhausted);
    check(given(3, &[TimeOut, TimeOut]), &[1, 2], C::TimeoutsSpent);
    check(given(3, &[TimeOut, Answer]), &[1, 2], C::Served);
}

#[test]
fn a_refusal_by_policy_stops_the_walk() {
    let opening = Opening::new(false, 0);
    let ran = check(Given { opening, ..given(3, &[Status(451)]) }, &[1], C::Refused);
    assert_eq!(ran.nexts, [Next::Stop]);
    check(given(3, &[Status(400)]), &[1], C::Refused);
    check(given(3, &[Status(413)]), &[1], C::Refused);
}

#[test]
fn only_attempts_that_may_have_cost_work_count() {
    check(given(5, &[Status(500), Status(500), Status(500)]), &[1, 2, 3], C::AttemptsSpent);
    let does = [Status(401), Quota, Refuse, Status(429), Status(500), Status(503), Answer];
    check(given(7, &does), &[1, 2, 3, 4, 5, 6, 7], C::Served);
    let many: Vec<Does> = std::iter::repeat_n(Quota, 32).collect();
    check(given(40, &many), &(1..=32).collect::<Vec<_>>(), C::WalkSpent);
}

#[test]
fn nothing_happens_after_content_has_gone_out() {
    let ran = check(given(3, &[BreakAfterContent]), &[1], C::Broken);
    assert_eq!(ran.outcomes[0].source_health, Health::Fail);
    assert_eq!(ran.outcomes[0].latency, None);
}

#[test]
fn a_client_that_leaves_says_nothing_about_the_source() {
    let ran = check(given(3, &[Leave]), &[1], C::Cancelled);
    assert!(ran.maybe_billed, "what was under way may be charged all the same");
    assert_eq!(ran.outcomes[0].kind, FailureKind::ClientCancelled);
    assert_eq!((ran.outcomes[0].source_health, ran.outcomes[0].model_health), (Health::None, Health::None));
}

#[test]
fn a_candidate_that_has_changed_is_skipped_with_its_reason() {
    let refuse = &[(2, SkipReason::HardBlocked)];
    let ran = check(Given { refuse, ..given(3, &[Status(500), Answer]) }, &[1, 3], C::Served);
    assert_eq!(ran.skips, [Skip { source: candidate(2).source.source, why: SkipReason::HardBlocked }]);
    let refuse = &[(1, SkipReason::NotAuthorised)];
    let ran = check(Given { refuse, ..given(1, &[Status(500)]) }, &[1], C::Exhausted);
    assert_eq!(ran.skips.len(), 1, "the same source is asked about again too");
}

#[test]
fn who_was_softly_blocked_meanwhile_is_a_last_resort() {
    let refuse = &[(2, SkipReason::SoftBlocked)];
    let ran = check(Given { refuse, ..given(3, &[Status(500), Status(500), Answer]) }, &[1, 3, 2], C::Served);
    assert_eq!(ran.asked[2].2, Chosen::LastResort);
    assert_eq!(ran.skips, [], "it was asked after all");
    let ran = check(Given { refuse, ..given(3, &[Status(500), Answer]) }, &[1, 3], C::Served);
    assert_eq!(ran.asked.len(), 2, "not while a sibling is left");
    // And who is waited for already is asked again, for there is nobody better.
    let refuse = &[(1, SkipReason::SoftBlocked)];
    let ran = check(Given { refuse, ..given(1, &[Status(409), Status(409), Answer]) }, &[1, 1, 1], C::Served);
    assert_eq!(ran.asked[1].2, Chosen::SameSource);
}

#[test]
fn who_comes_after_a_soft_block_that_came_meanwhile_is_looked_at_too() {
    // Its limits were asked first, which took its time: by now the first one is softly blocked, and a limit was told of
    // the last resort that the plan has.
    let mut candidates = List([candidate(1), Candidate { last_resort: true, ..candidate(2) }].into());
    let mut recheck = |candidate: &Candidate| match candidate.source.source.id {
        1 if !candidate.last_resort => Err(SkipReason::SoftBlocked),
        2 => Err(SkipReason::HintBlocked),
        _ => Ok(()),
    };
    let mut machine = Machine::new(Opening::new(true, 0));
    assert!(matches!(machine.next(Duration::ZERO, &mut candidates, &mut recheck), Step::Dispatch(_)));
    machine.passed_over(SkipReason::SoftBlocked);
    let step = machine.next(Duration::from_millis(12), &mut candidates, &mut recheck);
    let Step::Dispatch(order) = step else { panic!("{step:?}") };
    assert_eq!((order.candidate.source.source.id, order.why), (1, Chosen::LastResort));
    assert_eq!(order.skips.as_slice(), [Skip { source: candidate(2).source.source, why: SkipReason::HintBlocked }]);
}

#[test]
fn an_order_that_is_not_carried_out_does_not_count() {
    let mut machine = Machine::new(Opening::new(true, 0));
    let mut candidates = list(2);
    let fine = &mut |_: &Candidate| Ok(());
    let Step::Dispatch(first) = machine.next(Duration::ZERO, &mut candidates, fine) else { panic!("an order") };
    assert_eq!(first.candidate.source.source.id, 1);
    machine.passed_over(SkipReason::Probing);
    let Step::Dispatch(second) = machine.next(Duration::ZERO, &mut candidates, fine) else { panic!("an order") };
    assert_eq!((second.candidate.source.source.id, second.attempt, second.why), (2, 1, Chosen::First));
    assert_eq!(second.skips[0].why, SkipReason::Probing);
    machine.succeeded(Duration::from_millis(5));
    assert_eq!(machine.take_outcome().map(|o| o.candidate.source.source.id), Some(2));
    assert_eq!(machine.take_outcome(), None);
    assert_eq!(machine.fallback(), None);
}

#[test]
fn what_cannot_be_recorded_ends_the_loop_and_leaves_no_outcome() {
    let mut machine = Machine::new(Opening::new(true, 0));
    let mut candidates = list(3);
    let fine = &mut |_: &Candidate| Ok(());
    let Step::Dispatch(_) = machine.next(Duration::ZERO, &mut candidates, fine) else { panic!("an order") };
    machine.failed(&classify(RuleSet::builtin(), &observation(Does::Status(500))));
    let Step::Dispatch(second) = machine.next(Duration::ZERO, &mut candidates, fine) else { panic!("an order") };
    assert_eq!(second.candidate.source.source.id, 2);
    machine.unrecordable();
    assert_eq!(machine.next(Duration::ZERO, &mut candidates, fine), Step::Stop(Conclusion::Unrecordable));
    assert_eq!(machine.take_outcome().map(|o| o.candidate.source.source.id), Some(1));
    assert_eq!((machine.take_outcome(), machine.attempts(), machine.failures().len()), (None, 1, 1));
    assert_eq!(machine.fallback(), None, "nobody else was asked");
}

#[test]
fn an_attempt_gets_its_own_limit_or_what_is_left() {
    let limits = |streamed, now_s| {
        let mut machine = Machine::new(Opening::new(streamed, 0));
        match machine.next(Duration::from_secs(now_s), &mut list(1), &mut |_| Ok(())) {
            Step::Queue { .. } => unreachable!("nobody is full"),
            Step::Dispatch(order) => Ok(order.limits),
            Step::Stop(conclusion) => Err(conclusion),
            Step::Wait { .. } => panic!("nothing to wait for"),
        }
    };
    let s = Duration::from_secs;
    let total = s(600);
    let streamed = Limits { connect: s(5), first_content: Some(s(300)), idle: Some(s(60)), whole: None, total };
    assert_eq!(limits(true, 0), Ok(streamed));
    let whole = Limits { connect: s(5), first_content: None, idle: None, whole: Some(s(10)), total: s(10) };
    assert_eq!(limits(false, 590), Ok(whole));
    assert_eq!(limits(false, 600), Err(C::DeadlineExceeded));
}

#[test]
fn a_client_may_shorten_the_deadline_and_never_lengthen_it() {
    let of = |asked: Option<u64>| Policy::default().within(asked.map(Duration::from_secs)).deadline.as_secs();
    assert_eq!((of(None), of(Some(20)), of(Some(6_000))), (600, 20, 600));
}

#[test]
fn an_unknown_fate_is_retried_as_policy_says() {
    let with = |retry_unknown, idempotent| Opening {
        policy: Policy { retry_unknown, ..Policy::default() },
        idempotent,
        ..Opening::new(true, 0)
    };
    let never = with(RetryUnknown::Never, true);
    check(Given { opening: never.clone(), ..given(2, &[Reset]) }, &[1], C::Refused);
    check(Given { opening: never, ..given(2, &[Refuse, Answer]) }, &[1, 2], C::Served);
    let only = with(RetryUnknown::IdempotentOnly, true);
    check(Given { opening: only, ..given(2, &[Reset, Answer]) }, &[1, 2], C::Served);
}

#[test]
fn without_candidates_there_is_nothing_to_do() {
    let ran = check(given(0, &[]), &[], C::NoCandidate);
    assert_eq!(crate::verdict::answer(&ran.machine_failures).code.as_str(), "no_source_available");
}

#[test]
fn a_probe_and_a_last_resort_are_named_as_such() {
    let mut special = list(3);
    special.0[0].probe_of = Some("source:channel:1@p:b:9".into());
    special.0[1].last_resort = true;
    let mut machine = Machine::new(Opening::new(true, 0));
    let fine = &mut |_: &Candidate| Ok(());
    let mut whys = Vec::new();
    while let Step::Dispatch(order) = machine.next(Duration::ZERO, &mut special, fine) {
        whys.push(order.why);
        machine.failed(&classify(RuleSet::builtin(), &observation(Status(500))));
    }
    assert_eq!(whys, [Chosen::Probe, Chosen::LastResort, Chosen::FailOver]);
    assert!(machine.take_outcome().unwrap().probe);
}

#[test]
fn what_broke_off_is_asked_for_elsewhere_only_where_the_policy_resumes() {
    let ran = |resume: bool| {
        let mut opening = Opening::new(true, 0);
        opening.policy.resume = resume;
        let mut machine = Machine::new(opening);
        let mut candidates = list(2);
        let mut next = |machine: &mut Machine| machine.next(Duration::ZERO, &mut candidates, &mut |_| Ok(()));
        assert!(matches!(next(&mut machine), Step::Dispatch(_)));
        machine.committed(Duration::ZERO);
        machine.failed(&classify(RuleSet::builtin(), &observation(Reset)));
        match next(&mut machine) {
            Step::Queue { .. } => unreachable!("nobody is full"),
            Step::Dispatch(order) => Ok(order.candidate.source.source.id),
            Step::Stop(conclusion) => Err(conclusion),
            Step::Wait { .. } => panic!("nothing is waited for"),
        }
    };
    assert_eq!(ran(true), Ok(2));
    assert_eq!(ran(false), Err(C::Broken));
}
