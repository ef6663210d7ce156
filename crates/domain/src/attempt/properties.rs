use std::collections::BTreeSet;

use proptest::prelude::*;
use waybill_event::selection::Chosen;

use super::tests::{Does, candidate, list, observation};
use super::*;
use crate::verdict::{RuleSet, classify};

/// What happens at one step, whatever the machine asks for.
#[derive(Debug, Clone, Copy)]
enum Event {
    Dispatched { does: Does, took_ms: u64, commit: bool },
    PassedOver,
    Left,
}

fn events() -> impl Strategy<Value = Event> {
    let does = prop_oneof![
        3 => (400_u16..600).prop_map(Does::Status),
        1 => (0_u64..9_000).prop_map(|wait_ms| Does::Limited { wait_ms }),
        1 => Just(Does::Quota),
        1 => Just(Does::TimeOut),
        1 => Just(Does::Refuse),
        1 => Just(Does::Reset),
        1 => Just(Does::Stale),
        1 => Just(Does::Answer),
    ];
    prop_oneof![
        12 => (does, 0_u64..120_000, prop::bool::weighted(0.1))
            .prop_map(|(does, took_ms, commit)| Event::Dispatched { does, took_ms, commit }),
        1 => Just(Event::PassedOver),
        1 => Just(Event::Left),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn the_loop_keeps_its_promises(
        count in 0_u64..50,
        dice in any::<u64>(),
        client_retry in 0_u32..2,
        events in prop::collection::vec(events(), 1..80),
        refused in prop::collection::btree_set(1_u64..50, 0..10),
    ) {
        let mut machine = Machine::new(Opening { client_retry, ..Opening::new(true, dice) });
        let policy = Policy::default();
        let mut candidates = list(count);
        let mut recheck = |c: &Candidate| {
            if refused.contains(&c.source.source.id) { Err(SkipReason::HardBlocked) } else { Ok(()) }
        };
        let (mut now, mut steps) = (Duration::ZERO, 0);
        let (mut dispatched, mut skipped) = (BTreeSet::new(), BTreeSet::new());
        let (mut outcomes, mut counted, mut attempts) = (BTreeSet::new(), BTreeSet::new(), 0_u32);
        let mut events = events.into_iter().cycle();
        let mut committed = false;
        let conclusion = loop {
            steps += 1;
            prop_assert!(steps < 1_000, "it ends");
            let step = machine.next(now, &mut candidates, &mut recheck);
            while let Some(outcome) = machine.take_outcome() {
                prop_assert!(outcomes.insert(outcome.candidate.source.source.id), "one outcome for each source");
            }
            match step {
            Step::Queue { .. } => unreachable!("nobody is full"),
                Step::Wait { until, .. } => {
                    prop_assert!(until > now && until + policy.min_attempt <= policy.deadline);
                    now = until;
                }
                Step::Stop(conclusion) => break conclusion,
                Step::Dispatch(order) => {
                    let id = order.candidate.source.source.id;
                    prop_assert!(!committed, "nothing after content");
                    prop_assert!(now + policy.min_attempt <= policy.deadline);
                    prop_assert!(order.limits.total <= policy.deadline - now);
                    prop_assert_eq!(order.attempt, attempts + 1);
                    prop_assert!(order.why == Chosen::SameSource || !outcomes.contains(&id));
                    prop_assert!(order.why != Chosen::SameSource || client_retry == 0);
                    skipped.extend(order.skips.iter().map(|skip| skip.source.id));
                    match events.next().expect("a cycle doesn't end") {
                        Event::PassedOver => machine.passed_over(SkipReason::Probing),
                        Event::Left => {
                            dispatched.insert(id);
                            machine.cancelled();
                        }
                        Event::Dispatched { does, took_ms, commit } => {
                            dispatched.insert(id);
                            attempts += 1;
                            now += Duration::from_millis(took_ms).min(order.limits.total);
                            if commit || does == Does::Answer {
                                committed = true;
                                machine.committed(now);
                            }
                            if does == Does::Answer {
                                machine.succeeded(now);
                            } else {
                                let verdict = classify(RuleSet::builtin(), &observation(does));
                                if verdict.counts_attempt {
                                    counted.insert(id);
                                }
                                machine.failed(&verdict);
                            }
                        }
                    }
                }
            }
        };
        skipped.extend(machine.take_skips().iter().map(|skip| skip.source.id));
        prop_assert_eq!(&outcomes, &dispatched);
        prop_assert!(counted.len() <= 3 && dispatched.len() <= 32);
        prop_assert!(matches!(machine.next(now, &mut candidates, &mut recheck), Step::Stop(_)), "it stays over");
        prop_assert_eq!(machine.take_outcome(), None);
        if conclusion == Conclusion::Exhausted || conclusion == Conclusion::NoCandidate {
            let seen: BTreeSet<u64> = dispatched.union(&skipped).copied().collect();
            prop_assert_eq!(seen, (1..=count).map(|id| candidate(id).source.source.id).collect::<BTreeSet<_>>());
        }
        prop_assert_eq!(machine.fallback().is_some(), dispatched.len() > 1);
    }
}
