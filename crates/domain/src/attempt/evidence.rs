//! What a request says of its sources: once for each source and upstream model, however often it asked there, and of a
//! source as a whole once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use proptest::prelude::*;
use waybill_event::config::SelectorPolicy;
use waybill_event::traffic::SourceOutcome;
use waybill_event::{ConfigPosition, Draft, Event, Identity, LogTime, Mark, Source};

use super::tests::{Does, candidate, observation};
use super::*;
use crate::selector::{Place, Revisions, SourceState, apply};
use crate::verdict::{RuleSet, classify};

/// The targets of a route, each with the sources that offer it.
struct Targets(VecDeque<VecDeque<Candidate>>);

impl Candidates for Targets {
    fn next_candidate(&mut self) -> Option<Candidate> {
        self.0.front_mut()?.pop_front()
    }

    fn next_target(&mut self) -> bool {
        self.0.pop_front();
        !self.0.is_empty()
    }

    fn may_strain(&mut self, _: &Candidate) -> bool {
        true
    }
}

/// Targets with these sources. Every third source knows all targets by one name, the others each by one of its own.
fn targets(sources: &[BTreeSet<u64>]) -> Targets {
    let of = |(target, ids): (u32, &BTreeSet<u64>)| {
        let named = |id: &u64| {
            let upstream_model = if id.is_multiple_of(3) { "m".to_owned() } else { format!("m{target}") };
            Candidate { target, upstream_model: upstream_model.into(), ..candidate(*id) }
        };
        ids.iter().map(named).collect()
    };
    Targets((0..).zip(sources).map(of).collect())
}

fn troubles() -> impl Strategy<Value = Does> {
    prop_oneof![
        // 409 and 423 are asked again at the same source at once, the others when nobody else is left.
        4 => Just(Does::Status(409)),
        2 => Just(Does::Status(423)),
        3 => Just(Does::Status(503)),
        2 => Just(Does::Reset),
        1 => (0u64..4_000).prop_map(|wait_ms| Does::Limited { wait_ms }),
        1 => Just(Does::Status(404)),
        1 => Just(Does::Stale),
        1 => Just(Does::Answer),
    ]
}

/// Tries at each (source, upstream model).
type Tries = BTreeMap<(Source, Arc<str>), u32>;

/// Walks to the end; gives the tries at each (source, upstream model), and what was said.
fn walk(sources: &[BTreeSet<u64>], does: &[Does], dice: u64) -> (Tries, Vec<Outcome>) {
    let policy = Policy { max_attempts: 32, ..Policy::default() };
    let mut machine = Machine::new(Opening { policy, ..Opening::new(true, dice) });
    let (mut targets, mut now) = (targets(sources), Duration::ZERO);
    let (mut tries, mut outcomes) = (BTreeMap::new(), Vec::new());
    let mut does = does.iter().cycle();
    for _ in 0..500 {
        let step = machine.next(now, &mut targets, &mut |_| Ok(()));
        outcomes.extend(std::iter::from_fn(|| machine.take_outcome()));
        match step {
            Step::Queue { .. } => unreachable!("nobody is full"),
            Step::Wait { until, .. } => now = until,
            Step::Stop(_) => break,
            Step::Dispatch(order) => {
                let asked = (order.candidate.source.source, Arc::clone(&order.candidate.upstream_model));
                *tries.entry(asked).or_default() += 1;
                now += Duration::from_millis(20);
                match does.next() {
                    Some(Does::Answer) | None => machine.succeeded(now),
                    Some(does) => machine.failed(&classify(RuleSet::builtin(), &observation(*does))),
                }
            }
        }
    }
    outcomes.extend(std::iter::from_fn(|| machine.take_outcome()));
    (tries, outcomes)
}

/// The event of an outcome, as the log has it.
fn event(n: u64, outcome: &Outcome) -> Event {
    let body = SourceOutcome {
        upstream_model: outcome.candidate.upstream_model.to_string(),
        kind: outcome.kind,
        source_health: outcome.source_health,
        model_health: outcome.model_health,
        latency_ms: None,
        block: None,
        attempts: outcome.attempts,
        credential_revision: 1,
        base_url_revision: 1,
        probe: false,
        usage: None,
    };
    let boot = waybill_event::Boot::new(LogTime::from_micros(1), 1);
    let mark = Mark { producer: "p1".parse().unwrap(), boot, n };
    let mut draft = Draft::new(LogTime::from_micros(1_000_000), body);
    draft.source = Some(outcome.candidate.source);
    Event { identity: Identity::Sequenced(mark), draft }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn same_source_retries_never_multiply_evidence(
        sources in proptest::collection::vec(proptest::collection::btree_set(1u64..5, 1..4), 1..4),
        does in proptest::collection::vec(troubles(), 1..20),
        dice: u64,
    ) {
        let (tries, outcomes) = walk(&sources, &does, dice);
        let mut told = BTreeMap::new();
        let mut of_sources: BTreeMap<Source, u32> = BTreeMap::new();
        for outcome in &outcomes {
            let asked = (outcome.candidate.source.source, Arc::clone(&outcome.candidate.upstream_model));
            if outcome.source_health != Health::None {
                *of_sources.entry(asked.0).or_default() += 1;
            }
            prop_assert!(told.insert(asked, outcome.attempts).is_none(), "told twice: {outcomes:?}");
        }
        prop_assert_eq!(&told, &tries, "one for each that was asked, with all its tries");
        prop_assert!(of_sources.values().all(|times| *times == 1), "a source's health is told once: {outcomes:?}");

        // And the fold counts each once.
        for id in 1..5 {
            let source = Source { kind: waybill_event::SourceKind::Channel, id };
            let mut state =
                SourceState::new(source, Revisions::default(), SelectorPolicy::default(), ConfigPosition(0));
            for (n, outcome) in (1..).zip(&outcomes).filter(|(_, outcome)| outcome.candidate.source.source == source) {
                apply(&mut state, &event(n, outcome), Place::OWN);
            }
            let at = LogTime::from_micros(1_000_000);
            prop_assert!(state.whole.window.totals(at).all() <= 1);
            prop_assert!(state.models.values().all(|model| model.window.totals(at).all() <= 1));
        }
    }
}
