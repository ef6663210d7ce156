//! Whom a fleet's replicas ask, while they learn of the log late and in any order: nobody is asked who was out by what the
//! replica had to know at that position of the log. What it had to know is folded from nothing each time, and judged by a
//! few lines of their own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use waybill_event::config::{
    BreakerPolicy, Change, Changed, Channel, ConfigChange, HeldOpen, Intervention, PolicyScope, SelectorPolicy,
};
use waybill_event::failure::{Health, Recovery, Strength};
use waybill_event::{ConfigPosition, Event, FailureKind, GroupId, LogTime, Position, Scope, Source};

use super::fixture::*;
use crate::attempt::{Machine, Opening, Step};
use crate::candidate::{Candidate, Candidates};
use crate::catalog::{Ability, Snapshot};
use crate::observation::{Ending, Observation, Shape};
use crate::selector::breaker::Phase;
use crate::selector::fleet::FleetState;
use crate::selector::plan::Manner;
use crate::selector::state::{ScopeState, SourceState};
use crate::selector::table::{Row, Table};
use crate::selector::{Load, Place, Plan, Revisions, View, Wheel, apply};
use crate::verdict::{RuleSet, classify};

const GROUP: u64 = 1;
const SOURCES: u64 = 4;
const PRODUCERS: [&str; 3] = ["p1", "p2", "p3"];

/// What an asked source does.
#[derive(Debug, Clone, Copy)]
enum Does {
    Answer,
    Fail,
    Block(u8, u64),
    Disable,
}

#[derive(Debug, Clone, Copy)]
enum ByAnOperator {
    Enable(bool),
    Move(bool),
    Rekey,
    Hold(bool),
    Reset,
    Lift,
}

#[derive(Debug, Clone)]
enum Happens {
    /// A request comes to a replica; what the sources that it asks do, and what happens between two of its attempts.
    Request(usize, Vec<Does>, Vec<Happens>),
    /// A replica's events reach the log.
    Publish(usize),
    /// A replica learns of the authority's value of a source.
    Learn(usize, u64),
    /// A replica learns of the newest configuration.
    Configure(usize),
    /// The log takes note of the newest configuration.
    Mark,
    Edit(u64, ByAnOperator),
    Pass(u64),
}

struct Replica {
    n: u64,
    config: usize,
    views: BTreeMap<Source, View>,
    pending: VecDeque<Event>,
    own: Vec<Event>,
    wheel: Wheel,
}

struct Fleet {
    now: LogTime,
    log: Vec<(Event, LogTime)>,
    edits: Vec<Event>,
    catalogs: Vec<Snapshot>,
    channels: BTreeMap<u64, Channel>,
    by_hand: BTreeMap<u64, Intervention>,
    authority: FleetState,
    replicas: Vec<Replica>,
    asked: usize,
}

struct OfPlan(Plan);

impl Candidates for OfPlan {
    fn next_candidate(&mut self) -> Option<Candidate> {
        self.0.next_candidate()
    }

    fn next_target(&mut self) -> bool {
        false
    }

    fn may_strain(&mut self, _: &Candidate) -> bool {
        true
    }
}

impl Fleet {
    fn new(phases: [u64; 3]) -> Self {
        let views = |name: &str| {
            let view = |id| (source(id), View::new(source(id), name.parse().unwrap(), boot(1)));
            (1..=SOURCES).map(view).collect()
        };
        let replica = |(name, phase): (&str, u64)| Replica {
            n: 0,
            config: 0,
            views: views(name),
            pending: VecDeque::new(),
            own: Vec::new(),
            wheel: Wheel::new(phase),
        };
        let mut fleet = Self {
            now: at(1_000),
            log: Vec::new(),
            edits: Vec::new(),
            catalogs: vec![Snapshot::default()],
            channels: BTreeMap::new(),
            by_hand: BTreeMap::new(),
            authority: FleetState::default(),
            replicas: PRODUCERS.into_iter().zip(phases).map(replica).collect(),
            asked: 0,
        };
        let breaker = BreakerPolicy { open_ms: 4_000, open_max_ms: 4_000, min_outcomes: 4, ..BreakerPolicy::default() };
        let (source_breaker, model_breaker) = (breaker, BreakerPolicy { consecutive_fails: 2, ..breaker });
        fleet.edit(policy_edit(
            PolicyScope::Global,
            SelectorPolicy { source_breaker, model_breaker, ..SelectorPolicy::default() },
        ));
        for id in 1..=SOURCES {
            let state = channel(id, if id > 2 { 50 } else { 100 }, 5);
            fleet.channels.insert(id, state.clone());
            fleet.edit(channel_edit(state, Change::Created));
        }
        fleet.happen(&Happens::Mark);
        (0..3).for_each(|who| fleet.happen(&Happens::Configure(who)));
        fleet
    }

    fn edit(&mut self, event: Event) {
        let position = ConfigPosition(u64::try_from(self.edits.len()).unwrap() + 1);
        let mut next = self.catalogs.last().cloned().unwrap_or_default();
        next.apply(&event, position);
        self.catalogs.push(next);
        self.authority.feed_config(&event, position).unwrap();
        self.edits.push(event);
    }

    fn write(&mut self, event: Event) {
        self.log.push((event, self.now));
        let (event, stored) = self.log.last().unwrap();
        let position = Position::new(u64::try_from(self.log.len()).unwrap(), 0);
        self.authority.apply(event, position, *stored).unwrap();
    }

    fn by_operator(&mut self, id: u64, what: ByAnOperator) {
        let scope = Scope { source: source(id), model: None };
        let fresh = Intervention { scope, held: None, reset: 0, lifted: 0, probe: None, version: 0 };
        let channel = self.channels.get_mut(&id).unwrap();
        let done = self.by_hand.entry(id).or_insert(fresh);
        let (mut change, mut of_channel) = (Change::Edited, true);
        match what {
            ByAnOperator::Enable(on) => {
                channel.enabled = on;
                change = if on { Change::Enabled } else { Change::Disabled };
            }
            ByAnOperator::Move(here) => channel.groups = vec![GroupId::new(if here { GROUP } else { 2 })],
            ByAnOperator::Rekey => channel.credential.as_mut().unwrap().revision += 1,
            ByAnOperator::Hold(open) => {
                done.held = open.then_some(HeldOpen { until: Some(self.now + Duration::from_secs(5)) });
                of_channel = false;
            }
            ByAnOperator::Reset => (done.reset, of_channel) = (done.version + 1, false),
            ByAnOperator::Lift => (done.lifted, of_channel) = (done.version + 1, false),
        }
        let event = if of_channel {
            channel.version += 1;
            channel_edit(channel.clone(), change)
        } else {
            done.version += 1;
            let state = done.clone();
            edit(ConfigChange::Intervention(Changed { change, state, changed: Vec::new() }))
        };
        self.edit(event);
    }

    fn happen(&mut self, what: &Happens) {
        match what {
            Happens::Request(who, does, between) => self.request(*who, does, between),
            Happens::Publish(who) => {
                while let Some(event) = self.replicas[*who].pending.pop_front() {
                    self.write(event);
                }
            }
            Happens::Learn(who, id) => {
                if let Some(value) = self.authority.value(source(*id), 1) {
                    self.replicas[*who].views.get_mut(&source(*id)).unwrap().replace(value);
                }
            }
            Happens::Configure(who) => {
                let one = &mut self.replicas[*who];
                one.config = self.catalogs.len() - 1;
                for channel in self.catalogs[one.config].catalog().channels.values() {
                    one.views.get_mut(&channel.source()).unwrap().adopt(revisions(channel));
                }
            }
            Happens::Mark => {
                let position = u64::try_from(self.edits.len()).unwrap();
                let seconds = self.now.as_micros() / 1_000_000;
                self.write(applied(position, seconds));
            }
            Happens::Edit(id, what) => self.by_operator(*id, *what),
            Happens::Pass(ms) => self.now = self.now + Duration::from_millis(*ms),
        }
    }

    /// What a replica makes of a source now.
    fn row(&self, who: usize, ability: &Ability) -> Row {
        let one = &self.replicas[who];
        let by_hand = self.catalogs[one.config].catalog().by_hand(ability.source, MODEL);
        Row::judge(ability, one.views.get(&ability.source), Load::default(), by_hand, self.now)
    }

    fn abilities(&self, who: usize) -> Vec<Ability> {
        let snapshot = &self.catalogs[self.replicas[who].config];
        let found = snapshot.index().model(GroupId::new(GROUP), MODEL);
        found.into_iter().flat_map(|abilities| abilities.iter().cloned()).collect()
    }

    fn request(&mut self, who: usize, does: &[Does], between: &[Happens]) {
        let rows = self.abilities(who).iter().map(|ability| self.row(who, ability)).collect();
        let table = Table::of((GroupId::new(GROUP), MODEL.into()), rows, self.now, ConfigPosition(1), 100);
        let mut plan =
            OfPlan(Plan::new(Arc::new(table), &mut self.replicas[who].wheel, Manner::default(), &mut Free(true)));
        let mut machine = Machine::new(Opening { client_retry: 1, ..Opening::new(true, 0) });
        let (begun, mut excluded) = (self.now, BTreeSet::new());
        for n in 0.. {
            let passed = self.now.since(begun);
            let step = machine.next(passed, &mut plan, &mut |candidate| {
                let abilities = self.abilities(who);
                let ability = abilities.iter().find(|ability| ability.source == candidate.source.source);
                let ability = ability.ok_or(waybill_event::selection::SkipReason::NotAuthorised)?;
                self.row(who, ability).still_lets(candidate)
            });
            let Step::Dispatch(order) = step else { break };
            let candidate = order.candidate;
            self.asked += 1;
            if let Some(why) = self.out(who, &candidate) {
                panic!("{} is asked by {} although {why}", candidate.source.source, PRODUCERS[who]);
            }
            assert!(excluded.insert(candidate.source.source), "asked again after it had failed");
            let does = does.get(n).copied().unwrap_or(Does::Answer);
            self.tell(who, &candidate, does);
            match does {
                Does::Answer => machine.succeeded(passed),
                Does::Fail | Does::Block(..) | Does::Disable => {
                    machine.failed(&classify(RuleSet::builtin(), &failure()))
                }
            }
            between.iter().for_each(|what| self.happen(what));
        }
    }

    /// What a replica writes of an attempt; its own view has it at once.
    fn tell(&mut self, who: usize, candidate: &Candidate, does: Does) {
        let channel = &self.catalogs[self.replicas[who].config].catalog().channels[&candidate_id(candidate)];
        let revisions = revisions(channel);
        let (id, seconds) = (channel.id.get(), self.now.as_micros() / 1_000_000);
        let name = PRODUCERS[who];
        let one = &mut self.replicas[who];
        let mut emit = |event: &dyn Fn(u64) -> Event| {
            one.n += 1;
            let mut event = event(one.n);
            event.draft.at = self.now;
            one.views.get_mut(&source(id)).unwrap().own(&event);
            one.pending.push_back(event.clone());
            one.own.push(event);
        };
        if let Some(opening) = &candidate.probe_of {
            emit(&|n| {
                let mut event = probe(name, n, id, seconds, opening, matches!(does, Does::Answer));
                if let waybill_event::Body::ProbeFinished(finished) = &mut event.draft.body {
                    finished.scope.model = opening.starts_with("model:").then(|| MODEL.to_owned());
                    finished.credential_revision = revisions.credential;
                }
                event
            });
        }
        emit(&|n| {
            let plain = |health| outcome(name, n, id, seconds, health);
            let event = match does {
                Does::Answer => plain(Health::Ok),
                Does::Fail => plain(Health::Fail),
                Does::Block(0, s) => blocking(plain(Health::None), FailureKind::RateLimited, Strength::Soft, s),
                Does::Block(1, s) => blocking(plain(Health::None), FailureKind::RateLimited, Strength::Hint, s),
                Does::Block(_, s) => blocking(plain(Health::None), FailureKind::WindowExhausted, Strength::Hard, s),
                Does::Disable => disabling(plain(Health::None), Recovery::Probe),
            };
            with(event, |outcome| {
                outcome.credential_revision = revisions.credential;
                outcome.probe = candidate.probe_of.is_some();
            })
        });
    }

    /// Why a candidate is out by what the replica has to know, if it is.
    fn out(&self, who: usize, candidate: &Candidate) -> Option<String> {
        let (one, source) = (&self.replicas[who], candidate.source.source);
        let catalog = self.catalogs[one.config].catalog();
        let channel = catalog.channels.get(&candidate_id(candidate))?;
        if !channel.enabled || !channel.groups.contains(&GroupId::new(GROUP)) {
            return Some("configuration forbids it".to_owned());
        }
        let [done, _] = catalog.by_hand(source, MODEL);
        if done.holds(self.now).is_some() {
            return Some("an operator holds it open".to_owned());
        }
        let state = self.known(who, source, revisions(channel));
        let adopted = state.by_hand(None);
        let (lifted, reset) = (adopted.lifted < done.lifted, adopted.reset < done.reset);
        if !lifted && let Some(disabled) = &state.disabled {
            return Some(format!("a verdict disabled it: {disabled:?}"));
        }
        let model = state.models.get(MODEL);
        // What was done by hand was done to the source as a whole, its models included.
        let scopes: Vec<&ScopeState> = [Some(&state.whole), model].into_iter().flatten().collect();
        for scope in scopes {
            for strength in [Strength::Hard, Strength::Hint, Strength::Soft] {
                let held = scope.blocks.active(strength, self.now).filter(|_| !lifted);
                let bearable = strength == Strength::Soft && (candidate.last_resort || candidate.probe_of.is_some());
                if let Some(block) = held.filter(|_| !bearable) {
                    return Some(format!("it is blocked: {block:?}"));
                }
            }
            match scope.breaker.phase(self.now) {
                _ if reset => {}
                Phase::Closed => {}
                Phase::Open(opening) => return Some(format!("it is open: {opening:?}")),
                // A probe of the source as a whole asks the model as well.
                Phase::HalfOpen(_) if candidate.probe_of.is_some() => {}
                Phase::HalfOpen(opening) => return Some(format!("it is half-open, and this is no probe: {opening:?}")),
            }
        }
        None
    }

    /// The state that a replica has to know: the log up to the position that it has heard of, and its own events.
    fn known(&self, who: usize, source: Source, revisions: Revisions) -> SourceState {
        let one = &self.replicas[who];
        let heard = one.views[&source].position();
        let mut folded = FleetState::default();
        for (position, edit) in (1..).zip(&self.edits) {
            folded.feed_config(edit, ConfigPosition(position)).unwrap();
        }
        let upto = heard.map_or(0, |position| usize::try_from(position.sequence).unwrap());
        for (sequence, (event, stored)) in (1..).zip(self.log.iter().take(upto)) {
            folded.apply(event, Position::new(sequence, 0), *stored).unwrap();
        }
        let nothing = || SourceState::new(source, Revisions::default(), SelectorPolicy::default(), ConfigPosition(0));
        let mut state = folded.value(source, 1).unwrap_or_else(nothing);
        let own = mark(PRODUCERS[who], 0);
        let low_water = state.low_water(&own);
        state.adopt_revisions(revisions);
        for event in one.own.iter().filter(|event| event.identity.mark().is_some_and(|mark| mark.n > low_water)) {
            if event_source(event) == Some(source) {
                apply(&mut state, event, Place::OWN);
            }
        }
        state
    }
}

fn candidate_id(candidate: &Candidate) -> waybill_event::ChannelId {
    waybill_event::ChannelId::new(candidate.source.source.id)
}

fn event_source(event: &Event) -> Option<Source> {
    match &event.draft.body {
        waybill_event::Body::ProbeFinished(finished) => Some(finished.scope.source),
        _ => event.draft.source.map(|source| source.source),
    }
}

fn revisions(channel: &Channel) -> Revisions {
    let credential = channel.credential.as_ref().map_or(0, |credential| credential.revision);
    Revisions { credential, base_url: channel.base_url_revision }
}

fn failure() -> Observation {
    let ending = Ending::Status { status: 502, shape: Shape::Error };
    Observation::new("openai", ending)
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![
        3 => Just(Does::Answer),
        6 => Just(Does::Fail),
        3 => (0u8..3, 1u64..6).prop_map(|(strength, seconds)| Does::Block(strength, seconds)),
        1 => Just(Does::Disable),
    ]
}

fn by_operator() -> impl Strategy<Value = ByAnOperator> {
    prop_oneof![
        any::<bool>().prop_map(ByAnOperator::Enable),
        any::<bool>().prop_map(ByAnOperator::Move),
        Just(ByAnOperator::Rekey),
        any::<bool>().prop_map(ByAnOperator::Hold),
        Just(ByAnOperator::Reset),
        Just(ByAnOperator::Lift),
    ]
}

fn small() -> impl Strategy<Value = Happens> {
    prop_oneof![
        3 => (0usize..3).prop_map(Happens::Publish),
        4 => (0usize..3, 1..=SOURCES).prop_map(|(who, id)| Happens::Learn(who, id)),
        2 => (0usize..3).prop_map(Happens::Configure),
        1 => Just(Happens::Mark),
        2 => (1..=SOURCES, by_operator()).prop_map(|(id, what)| Happens::Edit(id, what)),
        3 => (1u64..3_000).prop_map(Happens::Pass),
    ]
}

fn happenings() -> impl Strategy<Value = Vec<Happens>> {
    let between = proptest::collection::vec(small(), 0..3);
    let request = (0usize..3, proptest::collection::vec(does(), 0..5), between)
        .prop_map(|(who, does, between)| Happens::Request(who, does, between));
    proptest::collection::vec(prop_oneof![1 => request, 1 => small()], 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn nobody_is_picked_who_was_excluded_open_blocked_or_unauthorised_at_that_position_of_the_log(
        phases: [u64; 3],
        happenings in happenings(),
    ) {
        let mut fleet = Fleet::new(phases);
        happenings.iter().for_each(|what| fleet.happen(what));
    }
}

#[test]
fn fleets_of_the_property_ask_somebody() {
    let mut fleet = Fleet::new([1, 2, 3]);
    fleet.happen(&Happens::Request(0, vec![Does::Fail; 5], Vec::new()));
    fleet.happen(&Happens::Request(1, vec![Does::Answer], Vec::new()));
    assert_eq!(fleet.asked, 4);
}
