//! One row per attempt: which source was asked and why, and what the verdict was.

use serde::Serialize;
use waybill_event::failure::Sent;
use waybill_event::selection::{Chosen, Next, Skip};
use waybill_event::traffic::{AttemptFinished, AttemptStarted, Evidence, Shadow};
use waybill_event::{FailureKind, LogTime, Position, RequestId, Source, SourceRef};

use super::text::{bounded, bounded_u32, optional, without_nul};
use super::{Day, Placed};

/// An attempt. Fields are empty until the event that tells them is folded.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[expect(missing_docs, reason = "each field is the field of the event that fills it, which is documented")]
pub struct AttemptRow {
    pub day: Day,
    pub request_id: RequestId,
    pub attempt: u32,
    pub source: Source,
    pub source_rev: u64,
    pub model: String,
    pub upstream_model: String,

    // From `attempt_started`.
    pub why: Option<Chosen>,
    pub priority: Option<i32>,
    pub place: Option<u32>,
    pub skips: Vec<Skip>,
    pub credential_revision: Option<u64>,
    pub timeout_ms: Option<u64>,
    pub started_at: Option<LogTime>,
    pub started_position: Option<Position>,
    pub started_rn: Option<u32>,

    // From `attempt_finished`.
    pub kind: Option<FailureKind>,
    pub rule: Option<String>,
    pub status: Option<u16>,
    pub first_content_ms: Option<u32>,
    pub took_ms: Option<u32>,
    pub sent: Option<Sent>,
    pub maybe_billed: Option<bool>,
    pub next: Option<Next>,
    pub evidence: Option<Evidence>,
    pub upstream_request_id: Option<String>,
    pub shadow: Option<Shadow>,
    pub finished_at: Option<LogTime>,
    pub finished_position: Option<Position>,
    pub finished_rn: Option<u32>,
}

impl AttemptRow {
    /// An attempt of which neither beginning nor end is known yet.
    pub(super) fn new(
        request_id: RequestId,
        attempt: u32,
        source: SourceRef,
        model: &str,
        upstream_model: &str,
    ) -> Self {
        Self {
            day: Day::of_request(request_id),
            request_id,
            attempt,
            source: source.source,
            source_rev: bounded(source.rev),
            model: without_nul(model),
            upstream_model: without_nul(upstream_model),
            why: None,
            priority: None,
            place: None,
            skips: Vec::new(),
            credential_revision: None,
            timeout_ms: None,
            started_at: None,
            started_position: None,
            started_rn: None,
            kind: None,
            rule: None,
            status: None,
            first_content_ms: None,
            took_ms: None,
            sent: None,
            maybe_billed: None,
            next: None,
            evidence: None,
            upstream_request_id: None,
            shadow: None,
            finished_at: None,
            finished_position: None,
            finished_rn: None,
        }
    }

    /// Folds the beginning; a second one changes nothing.
    pub(super) fn start(&mut self, placed: &Placed, rn: u32, data: &AttemptStarted) {
        if self.started_position.is_some() {
            return;
        }
        self.why = Some(data.why);
        self.priority = Some(data.priority);
        self.place = Some(bounded_u32(data.place));
        self.skips.clone_from(&data.skips);
        self.credential_revision = Some(bounded(data.credential_revision));
        self.timeout_ms = Some(bounded(data.timeout_ms));
        self.started_at = Some(placed.time());
        self.started_position = Some(placed.position);
        self.started_rn = Some(bounded_u32(rn));
    }

    /// Folds the end; a second one changes nothing.
    pub(super) fn finish(&mut self, placed: &Placed, rn: u32, data: &AttemptFinished) {
        if self.finished_position.is_some() {
            return;
        }
        self.kind = Some(data.kind);
        self.rule = Some(without_nul(&data.rule));
        self.status = data.status.map(|status| status.min(i16::MAX.unsigned_abs()));
        self.first_content_ms = data.first_content_ms.map(bounded_u32);
        self.took_ms = Some(bounded_u32(data.took_ms));
        self.sent = Some(data.sent);
        self.maybe_billed = Some(data.maybe_billed);
        self.next = data.next;
        self.evidence = data.evidence.as_ref().map(|evidence| Evidence {
            code: optional(evidence.code.as_deref()),
            kind: optional(evidence.kind.as_deref()),
            param: optional(evidence.param.as_deref()),
            message: optional(evidence.message.as_deref()),
            wait_ms: evidence.wait_ms,
        });
        self.upstream_request_id = optional(data.upstream_request_id.as_deref());
        self.shadow = data.shadow.as_ref().map(|shadow| Shadow {
            rule: without_nul(&shadow.rule),
            kind: shadow.kind,
            differs: shadow.differs.iter().map(|part| without_nul(part)).collect(),
        });
        self.finished_at = Some(placed.time());
        self.finished_position = Some(placed.position);
        self.finished_rn = Some(bounded_u32(rn));
    }
}
