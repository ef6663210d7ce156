//! Events and candidates for the tests.

use std::sync::Arc;

use waybill_event::config::{
    Change, Changed, Channel, ChannelModel, ConfigChange, CredentialRef, Limits, Policy, PolicyScope, SelectorPolicy,
};
use waybill_event::control::{ConfigApplied, OutboxDrained, ProbeFinished, ProbeOf};
use waybill_event::failure::{BlockVerdict, Health, Recovery, Strength};
use waybill_event::traffic::SourceOutcome;
use waybill_event::{
    Body, Boot, ChannelId, ConfigPosition, Draft, Event, FailureKind, GroupId, Identity, LogTime, Mark, Scope, Source,
    SourceRef,
};

use crate::catalog::{Ability, Index};
use crate::selector::plan::Moment;
use crate::selector::table::Row;

pub(super) const MODEL: &str = "m";

pub(super) fn at(seconds: i64) -> LogTime {
    LogTime::from_micros(seconds * 1_000_000)
}

pub(super) fn source(id: u64) -> Source {
    ChannelId::new(id).into()
}

pub(super) fn boot(number: i64) -> Boot {
    Boot::new(LogTime::from_micros(number * 1_000), 7)
}

pub(super) fn mark(producer: &str, n: u64) -> Mark {
    Mark { producer: producer.parse().unwrap(), boot: boot(1), n }
}

fn sequenced(producer: &str, n: u64, at: LogTime, body: impl Into<Body>) -> Event {
    Event { identity: Identity::Sequenced(mark(producer, n)), draft: Draft::new(at, body) }
}

/// An outcome with this evidence on source and model, made with revision 1 of everything.
pub(super) fn outcome(producer: &str, n: u64, id: u64, seconds: i64, health: Health) -> Event {
    let kind = match health {
        Health::Ok => FailureKind::Success,
        Health::Fail => FailureKind::ServerError,
        Health::Busy => FailureKind::Overloaded,
        Health::None => FailureKind::RateLimited,
    };
    let body = SourceOutcome {
        upstream_model: MODEL.to_owned(),
        kind,
        source_health: health,
        model_health: health,
        latency_ms: Some(80),
        block: None,
        attempts: 1,
        credential_revision: 1,
        base_url_revision: 1,
        probe: false,
        usage: None,
    };
    let mut event = sequenced(producer, n, at(seconds), body);
    event.draft.source = Some(SourceRef { source: source(id), rev: 1 });
    event
}

/// Changes an outcome.
pub(super) fn with(mut event: Event, change: impl FnOnce(&mut SourceOutcome)) -> Event {
    if let Body::SourceOutcome(outcome) = &mut event.draft.body {
        change(outcome);
    }
    event
}

pub(super) fn blocking(event: Event, kind: FailureKind, strength: Strength, seconds: u64) -> Event {
    with(event, |outcome| {
        outcome.kind = kind;
        outcome.source_health = Health::None;
        outcome.model_health = Health::None;
        outcome.block = Some(BlockVerdict::Block { strength, model_only: false, duration_ms: seconds * 1_000 });
    })
}

pub(super) fn disabling(event: Event, recovery: Recovery) -> Event {
    with(event, |outcome| {
        outcome.kind = FailureKind::AuthInvalid;
        outcome.source_health = Health::None;
        outcome.model_health = Health::None;
        outcome.block = Some(BlockVerdict::Disable { recovery });
    })
}

pub(super) fn probe(producer: &str, n: u64, id: u64, seconds: i64, opening: &str, ok: bool) -> Event {
    let scope = Scope { source: source(id), model: None };
    let of = ProbeOf::Opening { opening: opening.to_owned() };
    let kind = if ok { FailureKind::Success } else { FailureKind::ServerError };
    let body = ProbeFinished {
        probe: of,
        scope,
        ok,
        kind,
        credential_revision: 1,
        base_url_revision: 1,
        upstream_model: None,
        rule: None,
        message: None,
    };
    sequenced(producer, n, at(seconds), body)
}

pub(super) fn drained(producer: &str, n: u64, seconds: i64, last: u64) -> Event {
    let body = OutboxDrained { replica: producer.parse().unwrap(), boot: boot(1), last };
    sequenced(producer, n, at(seconds), body)
}

pub(super) fn applied(position: u64, seconds: i64) -> Event {
    let body = ConfigApplied { position: ConfigPosition(position), epoch: 1 };
    let id = format!("config_applied:{position}@1");
    let identity = Identity::Derived { id, producer: "projector".parse().unwrap() };
    Event { identity, draft: Draft::new(at(seconds), body) }
}

pub(super) fn edit(change: impl Into<Body>) -> Event {
    let identity = Identity::Derived { id: "edit".to_owned(), producer: "admin".parse().unwrap() };
    Event { identity, draft: Draft::new(at(0), change) }
}

pub(super) fn channel(id: u64, priority: i32, weight: u32) -> Channel {
    Channel {
        id: ChannelId::new(id),
        name: format!("c{id}"),
        provider: "openai".to_owned(),
        base_url: "http://upstream/v1".to_owned(),
        base_url_revision: 1,
        credential: Some(CredentialRef { revision: 1, fingerprint: "f".to_owned() }),
        models: vec![ChannelModel::named(MODEL)],
        groups: vec![GroupId::new(1)],
        priority,
        weight,
        limits: Limits::default(),
        multiplier_milli: 1_000,
        allow_private: true,
        probe: Default::default(),
        enabled: true,
        version: 1,
    }
}

pub(super) fn channel_edit(state: Channel, change: Change) -> Event {
    edit(ConfigChange::Channel(Changed { change, state, changed: Vec::new() }))
}

pub(super) fn policy_edit(scope: PolicyScope, selector: SelectorPolicy) -> Event {
    let state = Policy { scope, selector: selector.into(), request: Default::default(), version: 1 };
    edit(ConfigChange::Policy(Changed { change: Change::Created, state, changed: Vec::new() }))
}

/// The candidates that these channels are for the model in their group.
pub(super) fn abilities(channels: &[Channel]) -> Vec<Ability> {
    let channels: Vec<Arc<Channel>> = channels.iter().cloned().map(Arc::new).collect();
    let index = Index::of(channels.into_iter().map(Into::into));
    let found = index.model(GroupId::new(1), MODEL).unwrap();
    found.iter().cloned().collect()
}

/// A moment at which all probe permits are free or none is, and nothing is in flight.
pub(super) struct Free(pub(super) bool);

impl Moment for Free {
    fn probe_free(&mut self, _: &Row) -> bool {
        self.0
    }

    fn in_flight(&self, _: &Row) -> u32 {
        0
    }
}
