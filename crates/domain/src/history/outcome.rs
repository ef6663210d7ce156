//! One row per request and source: what the request says about the source.

use serde::Serialize;
use waybill_event::failure::{BlockVerdict, Health};
use waybill_event::traffic::SourceOutcome;
use waybill_event::{FailureKind, LogTime, Position, RequestId, Source, SourceRef, TokenCount};

use super::text::{bounded, bounded_u32, without_nul};
use super::{Day, Placed};

/// An outcome.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[expect(missing_docs, reason = "each field is the field of the event that fills it, which is documented")]
pub struct OutcomeRow {
    pub day: Day,
    pub request_id: RequestId,
    pub source: Source,
    pub source_rev: u64,
    pub upstream_model: String,
    pub kind: FailureKind,
    pub source_health: Health,
    pub model_health: Health,
    pub latency_ms: Option<u32>,
    pub block: Option<BlockVerdict>,
    pub attempts: u32,
    pub credential_revision: u64,
    pub base_url_revision: u64,
    pub probe: bool,
    pub prompt_tokens: Option<TokenCount>,
    pub completion_tokens: Option<TokenCount>,
    pub cached_tokens: Option<TokenCount>,
    pub reasoning_tokens: Option<TokenCount>,
    pub at: LogTime,
    pub position: Position,
    pub rn: u32,
}

impl OutcomeRow {
    pub(super) fn new(
        placed: &Placed,
        request_id: RequestId,
        rn: u32,
        source: SourceRef,
        data: &SourceOutcome,
    ) -> Self {
        let usage = data.usage.unwrap_or_default();
        let tokens = |count: Option<TokenCount>| count.map(|t| TokenCount(bounded(t.0)));
        Self {
            day: Day::of_request(request_id),
            request_id,
            source: source.source,
            source_rev: bounded(source.rev),
            upstream_model: without_nul(&data.upstream_model),
            kind: data.kind,
            source_health: data.source_health,
            model_health: data.model_health,
            latency_ms: data.latency_ms.map(bounded_u32),
            block: data.block.clone(),
            attempts: bounded_u32(data.attempts),
            credential_revision: bounded(data.credential_revision),
            base_url_revision: bounded(data.base_url_revision),
            probe: data.probe,
            prompt_tokens: tokens(usage.prompt_tokens),
            completion_tokens: tokens(usage.completion_tokens),
            cached_tokens: tokens(usage.cached_tokens),
            reasoning_tokens: tokens(usage.reasoning_tokens),
            at: placed.time(),
            position: placed.position,
            rn: bounded_u32(rn),
        }
    }
}
