//! What of an event the selector's fold goes by: outcomes, decided probes and what became of an account's tokens, and
//! nothing else.

use std::time::Duration;

use waybill_event::control::{CheckEvidence, CredentialRefreshFailed, CredentialRefreshed, ProbeOf, SourceChecked};
use waybill_event::failure::{BlockVerdict, FailureKind, Health};
use waybill_event::{Body, Event, LogTime, Mark, Position, Source};

use super::state::{Revisions, SourceState, is_of_token};

/// Where an event stands, as far as it stands anywhere yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// Its position; a replica's own events have none until the log has taken them.
    pub position: Option<Position>,
    /// When the store took it.
    pub stored_at: Option<LogTime>,
}

impl Place {
    /// An event of one's own, which isn't in the log yet.
    pub const OWN: Self = Self { position: None, stored_at: None };

    /// An event that was read from the log.
    #[must_use]
    pub const fn stored(position: Position, stored_at: LogTime) -> Self {
        Self { position: Some(position), stored_at: Some(stored_at) }
    }
}

/// An event that is evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// The event.
    pub mark: Mark,
    /// The source it speaks of.
    pub source: Source,
    /// When it happened, by its producer.
    pub at: LogTime,
    /// When the request was admitted; `at` where there was none.
    pub admitted: LogTime,
    /// Credential and base URL that were used.
    pub revisions: Revisions,
    /// What it says.
    pub says: Says,
}

/// What evidence says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Says {
    /// What one request says about a source.
    Outcome {
        /// The model that was asked for upstream.
        upstream_model: String,
        /// The kind of the last attempt.
        kind: FailureKind,
        /// Evidence on the source.
        source_health: Health,
        /// Evidence on the model at the source.
        model_health: Health,
        /// Response time, in milliseconds.
        latency_ms: Option<u32>,
        /// What is to be taken out.
        block: Option<BlockVerdict>,
        /// Whether a probe has already decided about the breaker.
        probe: bool,
    },
    /// The source's tokens were refreshed.
    Refreshed {
        /// Revision of the new ones.
        credential: u64,
    },
    /// Its tokens can't be refreshed any more.
    RefreshFailed {
        /// What that amounts to.
        kind: FailureKind,
    },
    /// What a probe has decided.
    Probe {
        /// What it was for.
        of: ProbeOf,
        /// The upstream model, where only that was probed.
        model: Option<String>,
        /// Whether the upstream works again.
        ok: bool,
    },
}

/// What a check says.
fn checked(checked: &SourceChecked, evidence: &CheckEvidence) -> Says {
    let CheckEvidence { upstream_model, source_health, model_health, latency_ms, block } = evidence.clone();
    let kind = checked.kind;
    Says::Outcome { upstream_model, kind, source_health, model_health, latency_ms, block, probe: false }
}

impl Evidence {
    /// The evidence in an event; `None` for every event that is none. Evidence has a mark: without one it couldn't be
    /// told from its own repetition.
    #[must_use]
    pub fn of(event: &Event) -> Option<Self> {
        let at = event.draft.at;
        let (source, revisions, says) = match &event.draft.body {
            Body::SourceOutcome(outcome) => (
                event.draft.source?.source,
                Revisions { credential: outcome.credential_revision, base_url: outcome.base_url_revision },
                Says::Outcome {
                    upstream_model: outcome.upstream_model.clone(),
                    kind: outcome.kind,
                    source_health: outcome.source_health,
                    model_health: outcome.model_health,
                    latency_ms: outcome.latency_ms,
                    block: outcome.block.clone(),
                    probe: outcome.probe,
                },
            ),
            Body::ProbeFinished(probe) => (
                probe.scope.source,
                Revisions { credential: probe.credential_revision, base_url: probe.base_url_revision },
                Says::Probe { of: probe.probe.clone(), model: probe.scope.model.clone(), ok: probe.ok },
            ),
            Body::SourceChecked(check) => (
                check.scope.source,
                Revisions { credential: check.credential_revision, base_url: check.base_url_revision },
                checked(check, check.evidence.as_ref()?),
            ),
            Body::CredentialRefreshed(CredentialRefreshed { scope, credential_revision: credential, .. }) => {
                let revisions = Revisions { credential: *credential, base_url: 0 };
                (scope.source, revisions, Says::Refreshed { credential: *credential })
            }
            Body::CredentialRefreshFailed(failed) if failed.is_final => {
                let CredentialRefreshFailed { scope, credential_revision, base_url_revision, kind, .. } = failed;
                let revisions = Revisions { credential: *credential_revision, base_url: *base_url_revision };
                (scope.source, revisions, Says::RefreshFailed { kind: *kind })
            }
            Body::RequestAdmitted(_)
            | Body::AttemptStarted(_)
            | Body::AttemptFinished(_)
            | Body::RequestFinished(_)
            | Body::SelectionTable(_)
            | Body::BreakerOpened(_)
            | Body::BreakerHalfOpened(_)
            | Body::BreakerClosed(_)
            | Body::CredentialRefreshFailed(_)
            | Body::BlockSet(_)
            | Body::BlockLifted(_)
            | Body::SourceDisabled(_)
            | Body::SourceEnabled(_)
            | Body::ConfigApplied(_)
            | Body::OutboxDrained(_)
            | Body::OwnerLost(_)
            | Body::Config(_)
            | Body::Unknown(_) => return None,
        };
        let mark = event.identity.mark()?.clone();
        let admitted = event.draft.request.map_or(at, |(id, _)| id.admitted_at());
        Some(Self { mark, source, at, admitted, revisions, says })
    }

    /// Whether newer credentials or another base URL have made it void. Of an account that was refreshed, only what says
    /// that an older token was refused is void: limits and faults are the account's, whichever token met them.
    #[must_use]
    pub fn is_void(&self, state: &SourceState) -> bool {
        let kind = match self.says {
            Says::Refreshed { .. } => return false,
            Says::Outcome { kind, .. } | Says::RefreshFailed { kind } => Some(kind),
            Says::Probe { .. } => None,
        };
        let of_token = kind.is_some_and(is_of_token) && self.revisions.credential < state.token;
        of_token || self.revisions.older_than(state.revisions)
    }

    /// The time the fold counts it at.
    #[must_use]
    pub fn t(&self, place: Place) -> LogTime {
        place.stored_at.map_or(self.at, |stored_at| self.at.min(stored_at))
    }

    /// Whether it reached the log too late to be evidence still.
    #[must_use]
    pub fn is_late(&self, place: Place, late_after: Duration) -> bool {
        match self.says {
            // How a source does, an old outcome doesn't tell; which tokens are void, revisions tell at any time.
            Says::Refreshed { .. } | Says::RefreshFailed { .. } => return false,
            Says::Outcome { .. } | Says::Probe { .. } => {}
        }
        place.stored_at.is_some_and(|stored_at| stored_at.since(self.at) > late_after)
    }
}
