//! The events of one request, in their order.

use std::time::Duration;

use waybill_domain::attempt::Outcome;
use waybill_domain::observation::{Ending, Observation};
use waybill_domain::selector::Revisions;
use waybill_event::control::{BreakerHalfOpened, ProbeFinished, ProbeOf};
use waybill_event::failure::Sent;
use waybill_event::money::Usage;
use waybill_event::selection::{Next, TableHash};
use waybill_event::traffic::{AttemptFinished, AttemptStarted, RequestAdmitted, RequestFinished, SourceOutcome};
use waybill_event::{Body, ConfigPosition, Draft, FailureKind, LogTime, RequestId, Scope, SourceRef};

use super::Running;
use crate::replica::Clock;
use crate::tables::FirstUse;

/// The failed attempt among these was the last one after all.
pub(super) fn nothing_follows(drafts: &mut [Draft]) {
    for draft in drafts {
        if let Body::AttemptFinished(finished) = &mut draft.body {
            finished.next = Some(Next::Stop);
        }
    }
}

/// Writes a request's events.
pub struct Story {
    /// The request.
    pub id: RequestId,
    /// Whether the client wants a stream.
    pub stream: bool,
    /// The table of the admission.
    pub table: TableHash,
    /// The configuration in force.
    pub config: ConfigPosition,
    /// When it was admitted; later times come from the clock.
    pub admitted_at: LogTime,
    /// The clock.
    pub clock: Clock,
    /// Ordinal of the request's last event.
    pub rn: u32,
    /// When what is being put together happened: events that are written as one bear one time.
    pub now: Option<LogTime>,
}

impl Story {
    fn at(&mut self) -> LogTime {
        let (clock, admitted_at) = (&self.clock, self.admitted_at);
        *self.now.get_or_insert_with(|| clock().unwrap_or(admitted_at).max(admitted_at))
    }

    /// What was put together is written; what follows happens later.
    pub(super) const fn written(&mut self) {
        self.now = None;
    }

    fn draft(&mut self, source: Option<SourceRef>, body: impl Into<Body>) -> Draft {
        self.rn += 1;
        Draft { request: Some((self.id, self.rn)), source, config: Some(self.config), ..Draft::new(self.at(), body) }
    }

    /// The table's first use. It belongs to no request, and has a configuration of its own: that of a later target may be
    /// newer than the request's.
    pub(super) fn table(&self, first_use: &FirstUse) -> Draft {
        Draft { config: Some(first_use.config()), ..Draft::new(self.admitted_at, first_use.event()) }
    }

    pub(super) fn admitted(&mut self, admitted: RequestAdmitted) -> Draft {
        self.draft(None, admitted)
    }

    pub(super) fn attempt_started(&mut self, running: &Running, credential_revision: u64) -> Draft {
        let order = &running.order;
        let started = AttemptStarted {
            attempt: order.attempt,
            model: String::from(&*running.model),
            upstream_model: String::from(&*order.candidate.upstream_model),
            why: order.why,
            priority: order.candidate.priority,
            place: order.candidate.place,
            target: order.candidate.target,
            table: running.table,
            skips: order.skips.to_vec(),
            credential_revision,
            timeout_ms: u64::from(millis(order.limits.whole.or(order.limits.first_content).unwrap_or_default())),
        };
        self.draft(Some(order.candidate.source), started)
    }

    /// The end of an attempt, with nothing said yet about how.
    pub(super) fn attempt_finished(&self, running: &Running, now: Duration) -> AttemptFinished {
        AttemptFinished {
            attempt: running.order.attempt,
            model: String::from(&*running.model),
            upstream_model: String::from(&*running.order.candidate.upstream_model),
            kind: FailureKind::Success,
            rule: "local/success@v1".to_owned(),
            status: None,
            first_content_ms: running.first_content.map(millis),
            took_ms: millis(now.saturating_sub(running.started)),
            sent: Sent::Response,
            maybe_billed: false,
            next: None,
            evidence: None,
            upstream_request_id: None,
            shadow: None,
        }
    }

    pub(super) fn of_source(&mut self, running: &Running, body: impl Into<Body>) -> Draft {
        self.draft(Some(running.order.candidate.source), body)
    }

    pub(super) fn outcome(&mut self, outcome: &Outcome, used: Revisions, usage: Option<Usage>) -> Draft {
        let body = SourceOutcome {
            upstream_model: String::from(&*outcome.candidate.upstream_model),
            kind: outcome.kind,
            source_health: outcome.source_health,
            model_health: outcome.model_health,
            latency_ms: outcome.latency.map(millis),
            block: outcome.block.clone(),
            attempts: outcome.attempts,
            credential_revision: used.credential,
            base_url_revision: used.base_url,
            probe: outcome.probe,
            usage,
        };
        self.draft(Some(outcome.candidate.source), body)
    }

    pub(super) fn finished(&mut self, finished: RequestFinished, served: Option<SourceRef>) -> Draft {
        self.draft(served, finished)
    }

    pub(super) fn half_opened(&mut self, running: &Running, opening: &str) -> Draft {
        let body = BreakerHalfOpened { opening: opening.to_owned(), scope: scope(running, opening) };
        self.draft(Some(running.order.candidate.source), body)
    }

    pub(super) fn probe_finished(&mut self, running: &Running, ok: bool, kind: FailureKind) -> Option<Draft> {
        let opening = running.order.candidate.probe_of.as_deref()?;
        let body = ProbeFinished {
            probe: ProbeOf::Opening { opening: opening.to_owned() },
            scope: scope(running, opening),
            ok,
            kind,
            credential_revision: running.credential_revision,
            base_url_revision: running.entity.revisions().base_url,
            upstream_model: Some(String::from(&*running.order.candidate.upstream_model)),
            rule: None,
            message: None,
        };
        Some(self.draft(Some(running.order.candidate.source), body))
    }
}

/// Whether an opening is that of a model's breaker; its id begins with its scope.
pub(super) fn is_of_model(opening: &str) -> bool {
    opening.starts_with("model:")
}

fn scope(running: &Running, opening: &str) -> Scope {
    let candidate = &running.order.candidate;
    let model = is_of_model(opening).then(|| String::from(&*candidate.upstream_model));
    Scope { source: candidate.source.source, model }
}

/// How much of the request had left, by what was seen.
pub(super) fn sent(observation: &Observation) -> Sent {
    match &observation.ending {
        Ending::Success | Ending::Status { .. } | Ending::Wrong2xx { .. } => Sent::Response,
        Ending::Transport(fault) => fault.sent,
        Ending::TimedOut { sent, .. } => *sent,
        Ending::ClientGone => Sent::Request,
        Ending::Local => Sent::Nothing,
    }
}

/// Whole milliseconds, as events have them.
pub(super) fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}
