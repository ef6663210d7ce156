//! Arbitrary traffic: requests that fail over, stay open or end badly, cut into messages of several producers.

use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use waybill_event::control::{BlockSet, BreakerOpened, OutboxDrained};
use waybill_event::failure::{BlockVerdict, Health, Recovery, Sent, Strength};
use waybill_event::money::{TokenCount, Usage, UsageReport};
use waybill_event::selection::{Chosen, Next, Skip, SkipReason, TableHash};
use waybill_event::traffic::{
    AttemptFinished, AttemptStarted, Evidence, Factors, FinalState, Protocol, RequestAdmitted, RequestFinished,
    SelectionTable, SourceOutcome, TableCandidate,
};
use waybill_event::{
    Body, Boot, ChannelId, ConfigPosition, Draft, Event, FailureKind, FallbackReason, GroupId, Identity, KeyId,
    LogTime, Mark, Position, RequestId, Scope, Source, SourceRef,
};

use crate::ground::start_of_time;

const MODELS: [&str; 4] = ["gpt-4o", "Größe \"XL\"/模型", "nul\0in\0it", ""];
const PRODUCERS: [&str; 3] = ["proxy-1", "proxy-2", "proxy-3"];

#[derive(Debug, Clone)]
pub(crate) struct Try {
    source: u64,
    ok: bool,
    tokens: Option<u64>,
    text: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    producer: usize,
    at_ms: u64,
    random: [u8; 10],
    model: usize,
    key: u64,
    tries: Vec<Try>,
    ends: bool,
    first_table: bool,
    body_bytes: u64,
}

fn plans(count: usize) -> impl Strategy<Value = Vec<Plan>> {
    let attempt = (1u64..5, any::<bool>(), any::<Option<u64>>(), prop::option::of(".{0,12}"))
        .prop_map(|(source, ok, tokens, text)| Try { source, ok, tokens, text });
    let plan = (
        0..PRODUCERS.len(),
        0u64..60_000,
        any::<[u8; 10]>(),
        0..MODELS.len(),
        1u64..4,
        prop::collection::vec(attempt, 0..4),
        prop::bool::weighted(0.9),
        any::<bool>(),
        any::<u64>(),
    )
        .prop_map(|(producer, at_ms, random, model, key, tries, ends, first_table, body_bytes)| Plan {
            producer,
            at_ms,
            random,
            model,
            key,
            tries,
            ends,
            first_table,
            body_bytes,
        });
    prop::collection::vec(plan, count)
}

/// What the tests throw at the fold besides well-behaved messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Twist {
    None,
    SendTwice,
    SendLater,
    MalformOne,
    AddUnknown,
}

fn twists(count: usize) -> impl Strategy<Value = Vec<(Twist, usize)>> {
    let twist = prop_oneof![
        12 => Just(Twist::None),
        2 => Just(Twist::SendTwice),
        2 => Just(Twist::SendLater),
        1 => Just(Twist::MalformOne),
        1 => Just(Twist::AddUnknown),
    ];
    prop::collection::vec((twist, 1usize..12), count)
}

/// Traffic of one boot of each producer.
pub(crate) struct Traffic {
    boot: u32,
    n: [u64; PRODUCERS.len()],
    runner: TestRunner,
}

impl Traffic {
    pub(crate) fn new() -> Self {
        Self { boot: 1, n: [0; PRODUCERS.len()], runner: TestRunner::deterministic() }
    }

    fn boot(&self) -> Boot {
        Boot::new(start_of_time() + Duration::from_secs(u64::from(self.boot)), self.boot)
    }

    fn sequenced(&mut self, producer: usize, draft: Draft) -> Event {
        self.n[producer] += 1;
        let mark = Mark { producer: PRODUCERS[producer].parse().unwrap(), boot: self.boot(), n: self.n[producer] };
        Event { identity: Identity::Sequenced(mark), draft }
    }

    /// Messages with the events of that many requests; the next call goes on with the producers' ordinals.
    pub(crate) fn messages(&mut self, requests: usize) -> Vec<Vec<u8>> {
        let plans = plans(requests).new_tree(&mut self.runner).unwrap().current();
        let mut queues: Vec<Vec<Event>> = vec![Vec::new(); PRODUCERS.len()];
        for plan in &plans {
            for draft in drafts(plan) {
                let event = self.sequenced(plan.producer, draft);
                queues[plan.producer].push(event);
            }
        }
        let control = self.announcements(requests / 10);
        let mut messages = Vec::new();
        let mut late = Vec::new();
        let count = queues.iter().map(Vec::len).sum::<usize>();
        let twists = twists(count + 1).new_tree(&mut self.runner).unwrap().current();
        let mut twists = twists.into_iter().cycle();
        while queues.iter().any(|queue| !queue.is_empty()) {
            for queue in &mut queues {
                let (twist, size) = twists.next().unwrap();
                let events: Vec<Event> = queue.drain(..size.min(queue.len())).collect();
                let mut items: Vec<Vec<u8>> = events.iter().map(|event| event.encode().unwrap()).collect();
                match twist {
                    Twist::None => {}
                    Twist::SendTwice => messages.push(message(&items)),
                    Twist::SendLater => late.push(message(&items)),
                    Twist::MalformOne => {
                        items.push(br#"{"id":"x","producer":"proxy-1","type":"attempt_started","v":1}"#.to_vec());
                    }
                    Twist::AddUnknown => items.push(unknown(messages.len())),
                }
                if !items.is_empty() && twist != Twist::SendLater {
                    messages.push(message(&items));
                }
            }
        }
        messages.extend(late);
        messages.push(message(&control.iter().map(|event| event.encode().unwrap()).collect::<Vec<_>>()));
        messages.push(b"not a list".to_vec());
        messages
    }

    /// Ends the boots: notes that everything is there, and begins new ones.
    pub(crate) fn drained(&mut self) -> Vec<u8> {
        let (boot, last) = (self.boot(), self.n);
        self.boot += 1;
        self.n = [0; PRODUCERS.len()];
        let mut items = Vec::new();
        for (producer, last) in last.into_iter().enumerate() {
            let replica = PRODUCERS[producer].parse().unwrap();
            let draft = Draft::new(start_of_time(), OutboxDrained { replica, boot, last });
            items.push(self.sequenced(producer, draft).encode().unwrap());
        }
        message(&items)
    }

    fn announcements(&self, count: usize) -> Vec<Event> {
        let at = start_of_time();
        (0..count as u64)
            .map(|i| {
                let cause = Mark { producer: "proxy-1".parse().unwrap(), boot: self.boot(), n: i / 2 + 1 };
                let scope = Scope { source: channel(i % 4), model: (i % 3 == 0).then(|| MODELS[2].to_owned()) };
                let id = format!("{scope}@{cause}");
                let position = Position::new(i + 1, 0);
                let body: Body = if i % 2 == 0 {
                    BreakerOpened {
                        opening: id.clone(),
                        scope,
                        cause,
                        cause_position: position,
                        ok: 1,
                        fail: 9,
                        times: 1,
                        since: at,
                        open_until: at + Duration::from_secs(30),
                    }
                    .into()
                } else {
                    BlockSet {
                        block: id.clone(),
                        scope,
                        strength: Strength::Soft,
                        kind: FailureKind::Overloaded,
                        cause,
                        cause_position: position,
                        since: at,
                        until: at + Duration::from_secs(5),
                    }
                    .into()
                };
                let identity = Identity::Derived { id, producer: "projector-1".parse().unwrap() };
                Event { identity, draft: Draft::new(at, body) }
            })
            .collect()
    }
}

pub(crate) fn message(items: &[Vec<u8>]) -> Vec<u8> {
    let mut message = vec![b'['];
    message.extend(items.join(&b','));
    message.push(b']');
    message
}

fn unknown(n: usize) -> Vec<u8> {
    format!(
        r#"{{"id":"unknown-{n}","producer":"proxy-9","type":"quota_exceeded","v":3,"at":"2026-11-29T12:00:00Z","data":{{"n":{n}}}}}"#
    )
    .into_bytes()
}

fn channel(id: u64) -> Source {
    ChannelId::new(id).into()
}

fn drafts(plan: &Plan) -> Vec<Draft> {
    let admitted_at = start_of_time() + Duration::from_millis(plan.at_ms);
    let id = RequestId::from_parts(admitted_at, plan.random);
    let model = MODELS[plan.model];
    let hash = TableHash(u128::from(plan.key) << 8 | plan.model as u128);
    let mut drafts = Vec::new();
    let mut rn = 0;
    let mut push = |at: LogTime, source: Option<u64>, body: Body| {
        rn += 1;
        drafts.push(Draft {
            request: Some((id, rn)),
            source: source.map(|id| SourceRef { source: channel(id), rev: 4 }),
            config: Some(ConfigPosition(12)),
            ..Draft::new(at, body)
        });
    };
    if plan.first_table {
        push(admitted_at, None, table(plan, hash, admitted_at).into());
    }
    push(admitted_at, None, admitted(plan, hash).into());
    let mut at = admitted_at;
    let mut judged = Vec::new();
    for (n, attempt) in (1u32..).zip(&plan.tries) {
        push(at, Some(attempt.source), started(n, model, judged.contains(&attempt.source)).into());
        at = at + Duration::from_millis(u64::from(plan.random[0]) + 1);
        push(at, Some(attempt.source), ended(n, model, attempt).into());
        if !judged.contains(&attempt.source) {
            judged.push(attempt.source);
            push(at, Some(attempt.source), outcome(model, attempt).into());
        }
        if attempt.ok {
            break;
        }
    }
    if plan.ends {
        let served = plan.tries.iter().find(|attempt| attempt.ok);
        push(at, served.map(|attempt| attempt.source), finished(plan, served).into());
    }
    drafts
}

fn table(plan: &Plan, hash: TableHash, as_of: LogTime) -> SelectionTable {
    let factors = Factors { health: 100, latency: 87, load: 100, recovery: 10 };
    let candidate = |id| TableCandidate {
        source: channel(id),
        priority: 100,
        weight: 5,
        factors,
        skip: (id == 3).then_some(SkipReason::Disabled),
        position: (id == 2).then_some(Position::new(9, 1)),
        own: None,
    };
    let model = MODELS[plan.model].to_owned();
    SelectionTable { hash, group: GroupId::new(1), model, as_of, candidates: (1..5).map(candidate).collect() }
}

fn admitted(plan: &Plan, hash: TableHash) -> RequestAdmitted {
    RequestAdmitted {
        key: KeyId::new(plan.key),
        group: GroupId::new(1),
        protocol: Protocol::OpenaiChat,
        client_model: MODELS[plan.model].to_owned(),
        model: MODELS[plan.model].to_owned(),
        route: None,
        needs: Vec::new(),
        stream: plan.ends,
        body_bytes: plan.body_bytes,
        deadline_ms: 300_000,
        table: plan.first_table.then_some(hash),
        candidates: plan.tries.iter().map(|attempt| channel(attempt.source)).collect(),
        candidate_count: 4,
        skips: vec![Skip { source: channel(9), why: SkipReason::NotAuthorised }],
        client_retry: plan.ends.then_some(1),
        client_request_id: plan.first_table.then(|| "order 7".to_owned()),
        session: None,
    }
}

fn started(attempt: u32, model: &str, again: bool) -> AttemptStarted {
    AttemptStarted {
        attempt,
        model: model.to_owned(),
        upstream_model: model.to_owned(),
        why: if again { Chosen::SameSource } else { Chosen::FailOver },
        priority: -5,
        place: attempt,
        target: 0,
        table: None,
        skips: Vec::new(),
        credential_revision: 3,
        timeout_ms: 60_000,
    }
}

fn ended(attempt: u32, model: &str, plan: &Try) -> AttemptFinished {
    let kind = if plan.ok { FailureKind::Success } else { FailureKind::RateLimited };
    let evidence = || Evidence { message: plan.text.clone(), param: Some("a\0b".to_owned()), ..Evidence::default() };
    AttemptFinished {
        attempt,
        model: model.to_owned(),
        upstream_model: model.to_owned(),
        kind,
        rule: "openai/429@v1".to_owned(),
        status: plan.tokens.map(|tokens| tokens as u16),
        first_content_ms: plan.tokens.map(|tokens| tokens as u32),
        took_ms: plan.source as u32,
        sent: Sent::Request,
        maybe_billed: !plan.ok,
        next: (!plan.ok).then_some(Next::Elsewhere),
        evidence: (!plan.ok).then(evidence),
        upstream_request_id: plan.text.clone(),
        shadow: None,
    }
}

fn outcome(model: &str, plan: &Try) -> SourceOutcome {
    let block = match plan.source {
        1 => None,
        2 => Some(BlockVerdict::Disable { recovery: Recovery::Probe }),
        _ => Some(BlockVerdict::Block { strength: Strength::Hint, model_only: true, duration_ms: u64::MAX }),
    };
    SourceOutcome {
        upstream_model: model.to_owned(),
        kind: FailureKind::ServerError,
        source_health: if plan.ok { Health::Ok } else { Health::Fail },
        model_health: Health::Busy,
        latency_ms: plan.tokens.map(|tokens| tokens as u32),
        block: if plan.ok { None } else { block },
        attempts: 1,
        credential_revision: 3,
        base_url_revision: 1,
        probe: plan.ok,
        usage: plan.tokens.map(|tokens| Usage { prompt_tokens: Some(TokenCount(tokens)), ..Usage::default() }),
    }
}

fn finished(plan: &Plan, served: Option<&Try>) -> RequestFinished {
    let usage = served.and_then(|attempt| attempt.tokens).map_or(UsageReport::Absent, |tokens| {
        UsageReport::Reported(Usage { completion_tokens: Some(TokenCount(tokens)), ..Usage::default() })
    });
    RequestFinished {
        state: if served.is_some() { FinalState::Succeeded } else { FinalState::Failed },
        status: if served.is_some() { 200 } else { 502 },
        error: served.is_none().then(|| "no_source".to_owned()),
        served_model: served.and_then(|attempt| attempt.text.clone()),
        attempts: plan.tries.len() as u32,
        fallback: (plan.tries.len() > 1).then_some(FallbackReason::RateLimited),
        degraded: false,
        missing: Vec::new(),
        skips: Vec::new(),
        usage,
        first_content_ms: None,
        took_ms: 900,
        maybe_billed: true,
    }
}
