//! What happened to sources (one row per announcement), and the selection tables that plans were made from.

use serde::Serialize;
use serde_json::Value;
use waybill_event::control::{
    BlockLifted, BlockSet, BreakerClosed, BreakerHalfOpened, BreakerOpened, CredentialRefreshFailed,
    CredentialRefreshed, ProbeFinished, ProbeOf, SourceChecked, SourceDisabled, SourceEnabled,
};
use waybill_event::selection::TableHash;
use waybill_event::traffic::SelectionTable;
use waybill_event::{Body, GroupId, LogTime, Mark, Position, ProducerId, Scope, Source};

use super::Placed;
use super::text::{bounded, optional, value_without_nul, without_nul};

/// A breaker opened or closed, a block was set, a source was disabled or enabled, a probe decided.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TransitionRow {
    /// The announcing event's id.
    pub id: String,
    /// The event's type, e.g. `breaker_opened`.
    pub kind: String,
    /// The opening, block or disabling it is about.
    pub subject: String,
    /// The source it covers.
    pub source: Source,
    /// The one model of the source it covers; `None` covers the source.
    pub model: Option<String>,
    /// The event that caused it.
    pub cause: Option<Mark>,
    /// Where that event stands.
    pub cause_position: Option<Position>,
    /// Since when it holds.
    pub since: LogTime,
    /// Until when.
    pub until: Option<LogTime>,
    /// Everything the event says.
    pub detail: Value,
    /// Who announced it.
    pub producer: ProducerId,
    /// When it was announced.
    pub at: LogTime,
    /// Where the announcement stands.
    pub position: Position,
}

struct Parts<'a> {
    subject: &'a str,
    scope: &'a Scope,
    cause: Option<(&'a Mark, Position)>,
    since: Option<LogTime>,
    until: Option<LogTime>,
}

fn parts(body: &Body) -> Option<Parts<'_>> {
    let parts = match body {
        Body::BreakerOpened(BreakerOpened { opening, scope, cause, cause_position, since, open_until, .. }) => Parts {
            subject: opening,
            scope,
            cause: Some((cause, *cause_position)),
            since: Some(*since),
            until: Some(*open_until),
        },
        Body::BreakerHalfOpened(BreakerHalfOpened { opening, scope }) => {
            Parts { subject: opening, scope, cause: None, since: None, until: None }
        }
        Body::BreakerClosed(BreakerClosed { opening, scope, cause, cause_position, since }) => {
            let cause = cause.as_ref().map(|cause| (cause, *cause_position));
            Parts { subject: opening, scope, cause, since: Some(*since), until: None }
        }
        Body::BlockLifted(BlockLifted { block, scope, cause, cause_position, since, .. }) => Parts {
            subject: block,
            scope,
            cause: cause.as_ref().map(|cause| (cause, *cause_position)),
            since: Some(*since),
            until: None,
        },
        Body::ProbeFinished(ProbeFinished { probe, scope, .. }) => {
            let subject = match probe {
                ProbeOf::Opening { opening } => opening,
                ProbeOf::Disabled { disabling } => disabling,
            };
            Parts { subject, scope, cause: None, since: None, until: None }
        }
        Body::SourceChecked(SourceChecked { scope, .. }) => {
            Parts { subject: "check", scope, cause: None, since: None, until: None }
        }
        Body::CredentialRefreshed(CredentialRefreshed { scope, expires_at, .. }) => {
            Parts { subject: "credential", scope, cause: None, since: None, until: *expires_at }
        }
        Body::CredentialRefreshFailed(CredentialRefreshFailed { scope, expires_at, .. }) => {
            Parts { subject: "credential", scope, cause: None, since: None, until: *expires_at }
        }
        Body::BlockSet(BlockSet { block, scope, cause, cause_position, since, until, .. }) => Parts {
            subject: block,
            scope,
            cause: Some((cause, *cause_position)),
            since: Some(*since),
            until: Some(*until),
        },
        Body::SourceDisabled(SourceDisabled { disabling, scope, cause, cause_position, since, .. }) => {
            Parts { subject: disabling, scope, cause: Some((cause, *cause_position)), since: Some(*since), until: None }
        }
        Body::SourceEnabled(SourceEnabled { disabling, scope, cause, cause_position, since }) => Parts {
            subject: disabling,
            scope,
            cause: cause.as_ref().map(|cause| (cause, *cause_position)),
            since: Some(*since),
            until: None,
        },
        Body::RequestAdmitted(_)
        | Body::AttemptStarted(_)
        | Body::AttemptFinished(_)
        | Body::SourceOutcome(_)
        | Body::RequestFinished(_)
        | Body::SelectionTable(_)
        | Body::ConfigApplied(_)
        | Body::OutboxDrained(_)
        | Body::OwnerLost(_)
        | Body::Config(_)
        | Body::Unknown(_) => return None,
    };
    Some(parts)
}

impl TransitionRow {
    /// The row of an event, if it announces a transition.
    pub(super) fn new(placed: &Placed) -> Option<Self> {
        let body = &placed.event.draft.body;
        let Parts { subject, scope, cause, since, until } = parts(body)?;
        Some(Self {
            id: without_nul(&placed.event.identity.to_string()),
            kind: body.kind(),
            subject: without_nul(subject),
            source: scope.source,
            model: optional(scope.model.as_deref()),
            cause: cause.map(|(mark, _)| mark.clone()),
            cause_position: cause.map(|(_, position)| position),
            since: since.unwrap_or_else(|| placed.time()),
            until,
            detail: value_without_nul(serde_json::to_value(body).unwrap_or_default()),
            producer: placed.event.identity.producer().clone(),
            at: placed.time(),
            position: placed.position,
        })
    }
}

/// A selection table, named by the hash of its content. The first announcement of a hash makes the row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SelectionTableRow {
    /// The content's hash.
    pub hash: TableHash,
    /// The group.
    pub group_id: GroupId,
    /// The model.
    pub model: String,
    /// The time expiry and half-open were judged at.
    pub as_of: LogTime,
    /// The candidates with their factors.
    pub content: Value,
    /// Who announced it first.
    pub producer: ProducerId,
    /// Where it was announced first.
    pub position: Position,
}

impl SelectionTableRow {
    pub(super) fn new(placed: &Placed, data: &SelectionTable) -> Self {
        Self {
            hash: data.hash,
            group_id: GroupId::new(bounded(data.group.get())),
            model: without_nul(&data.model),
            as_of: data.as_of,
            content: value_without_nul(serde_json::to_value(&data.candidates).unwrap_or_default()),
            producer: placed.event.identity.producer().clone(),
            position: placed.position,
        }
    }
}
