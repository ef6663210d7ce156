//! Requests: each that a client sent has at most one history, and its end is what the client and the upstreams saw.

use std::collections::{BTreeMap, BTreeSet};

use waybill_domain::history::{RequestRow, RequestState};
use waybill_event::failure::Health;
use waybill_event::selection::Chosen;
use waybill_event::traffic::FinalState;
use waybill_event::{Body, Boot, FailureKind, LogTime, RequestId, Source};
use waybill_proxy::{Durability, OutboxFull};

use super::log::Log;
use crate::client::{End, Seen};
use crate::fleet::Fleet;
use crate::ground::Ground;
use crate::upstream::Call;

/// Codes of refusals that leave nothing in the log.
const NOT_ADMITTED: [&str; 6] =
    ["invalid_api_key", "permission_denied", "model_not_found", "gateway_not_ready", "outbox_full", "internal_error"];

/// How many requests are in the log.
pub fn admitted(log: &Log) -> u64 {
    log.events.iter().filter(|placed| matches!(placed.event.draft.body, Body::RequestAdmitted(_))).count() as u64
}

/// What is in the log of one request beside its row.
#[derive(Debug, Default)]
struct Told {
    /// When the log took its admission.
    admitted: Option<LogTime>,
    /// The attempts, in order.
    attempts: Vec<Begun>,
    /// A probe was claimed for the attempt that begins next.
    claimed: bool,
    /// Attempts that ended.
    finished: usize,
    /// Attempts that failed before anything was sent.
    local: usize,
    /// Sources and models, as they are asked for, with their number of outcomes.
    outcomes: BTreeMap<(Source, String), u32>,
    /// Outcomes that say something of a source as a whole.
    told_of: BTreeMap<Source, u32>,
    ends: u32,
}

impl Told {
    /// Why a source was asked for a model in the first place.
    fn first_why(&self, source: Source, model: &str) -> Option<Chosen> {
        self.attempts.iter().find(|begun| begun.source == source && begun.model == model).map(|begun| begun.why)
    }
}

/// An attempt that began.
#[derive(Debug)]
struct Begun {
    source: Source,
    model: String,
    why: Chosen,
    probe: bool,
}

pub fn check(ground: &Ground, fleet: &Fleet, log: &Log) {
    let lossy: BTreeSet<Boot> = fleet.proxies.iter().flat_map(|proxy| proxy.lossy.clone()).collect();
    let told = told(log);
    let mut by_client: BTreeMap<u64, Vec<RequestRow>> = BTreeMap::new();
    fleet.store.with(|kept| {
        for row in kept.rows.requests.values() {
            let client = row.client_request_id.as_deref().and_then(|id| id.strip_prefix("client-")?.parse().ok());
            match client {
                Some(client) => by_client.entry(client).or_default().push(row.clone()),
                None if row.boot.is_some_and(|boot| lossy.contains(&boot)) => {}
                None => ground.violated("a request in the log is nobody's", &format!("{row:?}")),
            }
        }
    });
    let calls = calls(fleet);
    for seen in fleet.proxies.iter().flat_map(|proxy| &proxy.seen) {
        let seen = seen.lock();
        let client = seen.asked.client;
        let rows = by_client.get(&client).map(Vec::as_slice).unwrap_or_default();
        let lossy = lossy.contains(&seen.boot);
        let wrong = match rows {
            [] => without_history(ground, &seen, lossy, calls.contains_key(&client)),
            [row] => {
                let none = Told::default();
                let told = told.get(&row.request_id).unwrap_or(&none);
                let called = calls.get(&client).map(Vec::as_slice).unwrap_or_default();
                with_history(&seen, row, lossy)
                    .or_else(|| whole(row, told, called, lossy))
                    .or_else(|| known_first(ground, told, called))
            }
            _ => Some(format!("it has {} histories", rows.len())),
        };
        if let Some(wrong) = wrong {
            let rows: Vec<_> = rows.iter().map(|row| (row.request_id, row.state, row.status)).collect();
            ground.violated("a history isn't what happened", &format!("{wrong}: {seen:?} {rows:?}"));
        }
    }
}

fn calls(fleet: &Fleet) -> BTreeMap<u64, Vec<Call>> {
    let mut calls: BTreeMap<u64, Vec<Call>> = BTreeMap::new();
    for call in fleet.calls.lock().iter() {
        if let Some(client) = call.client {
            calls.entry(client).or_default().push(call.clone());
        }
    }
    calls
}

fn told(log: &Log) -> BTreeMap<RequestId, Told> {
    let mut all: BTreeMap<RequestId, Told> = BTreeMap::new();
    for placed in &log.events {
        let draft = &placed.event.draft;
        let Some((id, _)) = draft.request else { continue };
        let told = all.entry(id).or_default();
        let source = draft.source.map(|source| source.source);
        match (&draft.body, source) {
            (Body::RequestAdmitted(_), _) => told.admitted = Some(placed.stored_at),
            (Body::BreakerHalfOpened(_), _) => told.claimed = true,
            (Body::AttemptStarted(started), Some(source)) => {
                let probe = std::mem::take(&mut told.claimed);
                let model = started.upstream_model.clone();
                told.attempts.push(Begun { source, model, why: started.why, probe });
            }
            (Body::AttemptFinished(finished), _) => {
                told.finished += 1;
                told.local += usize::from(finished.kind == FailureKind::LocalFailure);
            }
            (Body::SourceOutcome(outcome), Some(source)) => {
                *told.outcomes.entry((source, outcome.upstream_model.clone())).or_default() += 1;
                *told.told_of.entry(source).or_default() += u32::from(outcome.source_health != Health::None);
            }
            (Body::RequestFinished(_), _) => told.ends += 1,
            _ => {}
        }
    }
    all
}

/// Nothing of it is in the log: it was refused before, or its replica died before it was admitted.
fn without_history(ground: &Ground, seen: &Seen, lossy: bool, called: bool) -> Option<String> {
    let recording = ground.setting.recording;
    if recording.durability == Durability::Acked && called {
        return Some("an upstream was called and the log doesn't know why".to_owned());
    }
    if recording.outbox_full == OutboxFull::Count {
        return None;
    }
    let refused = seen.code.as_deref().is_some_and(|code| NOT_ADMITTED.contains(&code));
    let early = seen.status.is_none() && matches!(seen.end, End::Reset | End::Left);
    (!refused && !early && !lossy).then(|| "it has no history".to_owned())
}

fn with_history(seen: &Seen, row: &RequestRow, lossy: bool) -> Option<String> {
    let allowed: &[FinalState] = match (seen.end, seen.status) {
        (End::Whole, Some(200)) => &[FinalState::Succeeded],
        (End::Whole, _) => &[FinalState::Failed, FinalState::Refused],
        (End::ErrorEvent, _) => &[FinalState::Partial],
        (End::Left | End::Reset, _) => &[
            FinalState::Succeeded,
            FinalState::Partial,
            FinalState::Failed,
            FinalState::Refused,
            FinalState::Cancelled,
        ],
        (End::Waiting, _) => &[],
    };
    let fits = match row.state {
        RequestState::Ended(state) => allowed.contains(&state),
        // A replica that died leaves its requests open, and they are declared lost.
        RequestState::OwnerLost => seen.end == End::Reset || seen.unnoticed || lossy,
        RequestState::Open => false,
    };
    if !fits {
        return Some("its end is another one".to_owned());
    }
    if let (RequestState::Ended(_), End::Whole, Some(status)) = (row.state, seen.end, seen.status)
        && row.status != Some(status)
    {
        return Some("its status is another one".to_owned());
    }
    if seen.id.as_ref().is_some_and(|id| *id != row.request_id.to_string()) {
        return Some("the client was told another id".to_owned());
    }
    None
}

/// Where that is asked for, the log has the admission before anybody is called.
fn known_first(ground: &Ground, told: &Told, called: &[Call]) -> Option<String> {
    let acked = ground.setting.recording.durability == Durability::Acked && ground.setting.jump_every.is_none();
    let early = called.iter().find(|call| told.admitted.is_none_or(|admitted| call.at < admitted));
    early.filter(|_| acked).map(|call| format!("{} was called before the log knew", call.source))
}

/// The history is complete in itself, and the upstreams saw the attempts that it tells of.
fn whole(row: &RequestRow, told: &Told, called: &[Call], lossy: bool) -> Option<String> {
    use waybill_event::selection::SkipReason;
    if lossy {
        return None;
    }
    let mut attempts = told.attempts.iter();
    for Call { source, model, unpicked, .. } in called {
        // Attempts that failed here were never called.
        let attempt = attempts.by_ref().find(|begun| begun.source == *source && begun.model == *model);
        let Some(Begun { why, probe, .. }) = attempt else {
            return Some(format!("{source} was called and not announced: {told:?}"));
        };
        // Nothing comes between the last look at the view and the call.
        let fits = match unpicked {
            None => true,
            Some(SkipReason::SourceBreakerOpen | SkipReason::ModelBreakerOpen) => {
                told.first_why(*source, model) == Some(Chosen::LeastBad)
            }
            Some(SkipReason::SoftBlocked) => matches!(why, Chosen::LastResort | Chosen::SameSource),
            Some(SkipReason::HintBlocked | SkipReason::HardBlocked) => *why == Chosen::LimitRetried,
            Some(SkipReason::Probing) => *probe,
            Some(_) => false,
        };
        if !fits {
            return Some(format!("{source} was called as {why:?} although it was {unpicked:?}"));
        }
    }
    let ended = matches!(row.state, RequestState::Ended(_));
    if ended && called.len() + told.local < told.attempts.len() {
        return Some(format!("{} calls for {told:?}", called.len()));
    }
    let asked = told.attempts.iter().map(|begun| (begun.source, begun.model.clone()));
    let asked: BTreeSet<(Source, String)> = asked.collect();
    let outcomes = asked.iter().all(|asked| told.outcomes.get(asked) == Some(&1));
    if ended && (told.finished != told.attempts.len() || !outcomes || told.ends != 1) {
        return Some(format!("it isn't whole: {told:?}"));
    }
    if let Some(stray) = told.outcomes.keys().find(|said| !asked.contains(said)) {
        return Some(format!("{stray:?} was never asked: {told:?}"));
    }
    let twice = told.outcomes.values().chain(told.told_of.values()).any(|count| *count > 1);
    if twice || told.ends > 1 {
        return Some(format!("something is told twice: {told:?}"));
    }
    None
}
