//! One row per request: what was asked, and how it ended.

use std::fmt;
use std::str::FromStr;

use serde::de::IntoDeserializer;
use serde::{Deserialize, Serialize, Serializer};
use waybill_event::control::{LossReason, OwnerLost};
use waybill_event::money::{Usage, UsageReport};
use waybill_event::selection::{Skip, TableHash};
use waybill_event::traffic::{FinalState, Protocol, RequestAdmitted, RequestFinished};
use waybill_event::{
    Boot, ConfigPosition, FallbackReason, GroupId, KeyId, LogTime, Position, ProducerId, RequestId, Source, SourceRef,
    TokenCount,
};

use super::text::{bounded, bounded_u32, optional, without_nul};
use super::{Day, Placed};

/// How a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestState {
    /// Its end isn't in the log yet.
    Open,
    /// Its end isn't in the log, and its owner will not write one, as far as is known.
    OwnerLost,
    /// It has ended.
    Ended(FinalState),
}

impl RequestState {
    /// The state as it is written in columns and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::OwnerLost => "owner_lost",
            Self::Ended(state) => state.as_str(),
        }
    }
}

impl fmt::Display for RequestState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for RequestState {
    type Err = serde::de::value::Error;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "open" => Ok(Self::Open),
            "owner_lost" => Ok(Self::OwnerLost),
            ended => FinalState::deserialize(ended.into_deserializer()).map(Self::Ended),
        }
    }
}

impl Serialize for RequestState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Where the figures of a usage come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageFrom {
    /// The upstream reported them.
    Reported,
    /// The upstream said nothing.
    Absent,
}

/// A request. Fields are empty until the event that tells them is folded.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[expect(missing_docs, reason = "each field is the field of the event that fills it, which is documented")]
pub struct RequestRow {
    pub day: Day,
    pub request_id: RequestId,
    pub state: RequestState,

    // From `request_admitted`.
    pub key_id: Option<KeyId>,
    pub group_id: Option<GroupId>,
    pub protocol: Option<Protocol>,
    pub client_model: Option<String>,
    pub model: Option<String>,
    pub stream: Option<bool>,
    pub body_bytes: Option<u64>,
    pub deadline_ms: Option<u64>,
    pub table_hash: Option<TableHash>,
    pub candidates: Vec<Source>,
    pub candidate_count: Option<u32>,
    pub skips: Vec<Skip>,
    pub client_retry: Option<u32>,
    pub client_request_id: Option<String>,
    pub config: Option<ConfigPosition>,
    pub replica: Option<ProducerId>,
    pub boot: Option<Boot>,
    pub admitted_at: Option<LogTime>,
    pub admitted_position: Option<Position>,
    pub admitted_rn: Option<u32>,

    // From `request_finished`.
    pub status: Option<u16>,
    pub error: Option<String>,
    pub served_source: Option<Source>,
    pub served_rev: Option<u64>,
    pub served_model: Option<String>,
    pub attempts: Option<u32>,
    pub fallback: Option<FallbackReason>,
    pub degraded: Option<bool>,
    pub last_skips: Vec<Skip>,
    pub usage_from: Option<UsageFrom>,
    pub prompt_tokens: Option<TokenCount>,
    pub completion_tokens: Option<TokenCount>,
    pub cached_tokens: Option<TokenCount>,
    pub reasoning_tokens: Option<TokenCount>,
    pub first_content_ms: Option<u32>,
    pub took_ms: Option<u32>,
    pub maybe_billed: Option<bool>,
    pub finished_at: Option<LogTime>,
    pub finished_position: Option<Position>,
    pub finished_rn: Option<u32>,

    // From `owner_lost`.
    pub lost_why: Option<LossReason>,
    pub lost_at: Option<LogTime>,
    pub lost_position: Option<Position>,
}

impl RequestRow {
    /// A request of which nothing is known but its id.
    #[must_use]
    pub fn new(request_id: RequestId) -> Self {
        Self {
            day: Day::of_request(request_id),
            request_id,
            state: RequestState::Open,
            key_id: None,
            group_id: None,
            protocol: None,
            client_model: None,
            model: None,
            stream: None,
            body_bytes: None,
            deadline_ms: None,
            table_hash: None,
            candidates: Vec::new(),
            candidate_count: None,
            skips: Vec::new(),
            client_retry: None,
            client_request_id: None,
            config: None,
            replica: None,
            boot: None,
            admitted_at: None,
            admitted_position: None,
            admitted_rn: None,
            status: None,
            error: None,
            served_source: None,
            served_rev: None,
            served_model: None,
            attempts: None,
            fallback: None,
            degraded: None,
            last_skips: Vec::new(),
            usage_from: None,
            prompt_tokens: None,
            completion_tokens: None,
            cached_tokens: None,
            reasoning_tokens: None,
            first_content_ms: None,
            took_ms: None,
            maybe_billed: None,
            finished_at: None,
            finished_position: None,
            finished_rn: None,
            lost_why: None,
            lost_at: None,
            lost_position: None,
        }
    }

    /// Folds the admission; a second one of the same request changes nothing.
    pub(super) fn admit(&mut self, placed: &Placed, rn: u32, data: &RequestAdmitted) {
        if self.admitted_position.is_some() {
            return;
        }
        self.key_id = Some(KeyId::new(bounded(data.key.get())));
        self.group_id = Some(GroupId::new(bounded(data.group.get())));
        self.protocol = Some(data.protocol);
        self.client_model = Some(without_nul(&data.client_model));
        self.model = Some(without_nul(&data.model));
        self.stream = Some(data.stream);
        self.body_bytes = Some(bounded(data.body_bytes));
        self.deadline_ms = Some(bounded(data.deadline_ms));
        self.table_hash = data.table;
        self.candidates.clone_from(&data.candidates);
        self.candidate_count = Some(bounded_u32(data.candidate_count));
        self.skips.clone_from(&data.skips);
        self.client_retry = data.client_retry.map(bounded_u32);
        self.client_request_id = optional(data.client_request_id.as_deref());
        self.config = placed.event.draft.config.map(|c| ConfigPosition(bounded(c.0)));
        self.replica = Some(placed.event.identity.producer().clone());
        self.boot = placed.event.identity.mark().map(|mark| mark.boot);
        self.admitted_at = Some(placed.time());
        self.admitted_position = Some(placed.position);
        self.admitted_rn = Some(bounded_u32(rn));
    }

    /// Folds that the owner was lost: a provisional end, until a real one is there. A second one changes nothing.
    pub(super) fn lose(&mut self, placed: &Placed, data: &OwnerLost) {
        if self.lost_position.is_some() {
            return;
        }
        if self.state == RequestState::Open {
            self.state = RequestState::OwnerLost;
        }
        self.lost_why = Some(data.why);
        self.lost_at = Some(placed.time());
        self.lost_position = Some(placed.position);
    }

    /// Folds the end; a second one of the same request changes nothing.
    pub(super) fn finish(&mut self, placed: &Placed, rn: u32, data: &RequestFinished) {
        if self.finished_position.is_some() {
            return;
        }
        let (from, usage) = match data.usage {
            UsageReport::Reported(usage) => (UsageFrom::Reported, usage),
            UsageReport::Absent => (UsageFrom::Absent, Usage::default()),
        };
        let tokens = |count: Option<TokenCount>| count.map(|t| TokenCount(bounded(t.0)));
        let served: Option<SourceRef> = placed.event.draft.source;
        self.state = RequestState::Ended(data.state);
        self.status = Some(data.status.min(i16::MAX.unsigned_abs()));
        self.error = optional(data.error.as_deref());
        self.served_source = served.map(|s| s.source);
        self.served_rev = served.map(|s| bounded(s.rev));
        self.served_model = optional(data.served_model.as_deref());
        self.attempts = Some(bounded_u32(data.attempts));
        self.fallback = data.fallback;
        self.degraded = Some(data.degraded);
        self.last_skips.clone_from(&data.skips);
        self.usage_from = Some(from);
        self.prompt_tokens = tokens(usage.prompt_tokens);
        self.completion_tokens = tokens(usage.completion_tokens);
        self.cached_tokens = tokens(usage.cached_tokens);
        self.reasoning_tokens = tokens(usage.reasoning_tokens);
        self.first_content_ms = data.first_content_ms.map(bounded_u32);
        self.took_ms = Some(bounded_u32(data.took_ms));
        self.maybe_billed = Some(data.maybe_billed);
        self.finished_at = Some(placed.time());
        self.finished_position = Some(placed.position);
        self.finished_rn = Some(bounded_u32(rn));
    }
}
