//! A verdict in the fields of the catalogue of failures: what is printed, compared and kept beside recorded cases.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use waybill_event::FailureKind;
use waybill_event::failure::{BlockVerdict, Health, Strength};

use super::rule::{After, BlockRule, Elsewhere, Treatment};
use super::{BlockSource, PublicCode, Verdict};
use crate::observation::{Ending, Observation};

/// Limits that end sooner than this are worth waiting for at the same source, in milliseconds.
const SHORT_MS: u64 = 3_000;

/// The kind in four words. They can't be the decision: a weekly window and a burst are both `throttle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Nothing failed.
    None,
    /// The client is told; nobody else is asked.
    Transparent,
    /// Somebody else is asked.
    Retryable,
    /// The source is taken out until somebody brings it back.
    Disable,
    /// It passes by itself.
    Throttle,
}

impl Class {
    pub(super) fn of(treatment: &Treatment) -> Self {
        use FailureKind as K;
        match treatment.kind {
            K::Success => Self::None,
            K::InvalidRequest | K::PayloadTooLarge | K::PolicyRefusal | K::ClientCancelled | K::LocalFailure => {
                Self::Transparent
            }
            K::ContextOverflow if treatment.elsewhere != Elsewhere::Anyone => Self::Transparent,
            K::CapabilityMismatch | K::RelayFilter if treatment.elsewhere == Elsewhere::Never => Self::Transparent,
            K::AuthInvalid | K::AccountBanned | K::BillingExhausted => Self::Disable,
            K::EgressBlocked if matches!(treatment.block, BlockRule::Disable { .. }) => Self::Disable,
            K::RateLimited | K::WindowExhausted | K::Overloaded => Self::Throttle,
            K::ContextOverflow
            | K::CapabilityMismatch
            | K::RelayFilter
            | K::AuthRefreshable
            | K::EgressBlocked
            | K::ChannelMisconfigured
            | K::ModelUnavailable
            | K::TransientConflict
            | K::ServerError
            | K::EdgeError
            | K::Timeout
            | K::Network
            | K::MalformedResponse
            | K::EmptyOutput
            | K::LocalLimit => Self::Retryable,
        }
    }
}

/// A verdict in the fields of the catalogue of failures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The kind.
    pub kind: FailureKind,
    /// The rule that said so: `id@vN`.
    pub rule: Arc<str>,
    /// The kind in four words.
    pub class: Class,
    /// Whether any other source may be asked.
    pub retry_elsewhere: bool,
    /// Whether the same source is worth asking again.
    pub retry_same: bool,
    /// Whether it is a failure of the channel.
    pub counts_channel_health: bool,
    /// Whether it is a failure of the model there, or the model is overloaded.
    pub counts_model_health: bool,
    /// What is taken out: `none`, `key`, `account`, `model` or `channel`.
    pub block_scope: &'static str,
    /// For how long, in seconds, rounded up; none where nobody knows.
    pub block_seconds: Option<u64>,
    /// What says so.
    pub block_source: BlockSource,
    /// Whether it is taken out even if nobody else is left.
    pub block_hard: bool,
    /// The status the client sees if it ends here.
    pub client_status: u16,
    /// The error's type in short; none where the client gets an answer.
    pub client_type: Option<&'static str>,
    /// The label of a change of source.
    pub reason: Option<&'static str>,
    /// Whether it is charged: `no`, `maybe` or `yes`.
    pub billable: &'static str,
    /// The fingerprint of what no rule knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmatched: Option<Arc<str>>,
}

impl Report {
    /// The verdict on this observation in the catalogue's fields.
    #[must_use]
    pub fn of(verdict: &Verdict, observation: &Observation) -> Self {
        let answered = observation.ending == Ending::Success;
        let committed = observation.committed;
        let timed = match &verdict.block {
            Some(BlockVerdict::Block { duration_ms, strength, .. }) => Some((*duration_ms, *strength)),
            Some(BlockVerdict::Disable { .. }) | None => None,
        };
        let open_ended = matches!(verdict.block_source, BlockSource::UntilProbe | BlockSource::UntilOperator);
        let (client_status, client_type) = match verdict.client {
            Some(client) if !answered => {
                let code = match client.code {
                    PublicCode::UpstreamError if committed => PublicCode::StreamInterrupted,
                    code => code,
                };
                (if committed { 200 } else { client.status }, Some(code.client_types().short))
            }
            Some(_) | None => (200, None),
        };
        let unlabelled = matches!(verdict.kind, FailureKind::Success | FailureKind::ClientCancelled);
        Self {
            kind: verdict.kind,
            rule: Arc::clone(&verdict.rule),
            class: verdict.class,
            retry_elsewhere: verdict.retry_elsewhere == Elsewhere::Anyone,
            retry_same: verdict.retry_same.is_some_and(|same| match same.after {
                After::AtOnce => true,
                After::Siblings => verdict.class == Class::Throttle && timed.is_some_and(|(ms, _)| ms <= SHORT_MS),
            }),
            counts_channel_health: verdict.source_health == Health::Fail,
            counts_model_health: matches!(verdict.model_health, Health::Fail | Health::Busy),
            block_scope: verdict.scope.map_or("none", |scope| scope.as_str()),
            block_seconds: match timed {
                _ if open_ended => None,
                Some((ms, _)) => Some(ms.div_ceil(1_000)),
                None => Some(0),
            },
            block_source: verdict.block_source.clone(),
            block_hard: open_ended || timed.is_some_and(|(_, strength)| strength == Strength::Hard),
            client_status,
            client_type,
            reason: (!unlabelled).then(|| verdict.fallback.as_str()),
            billable: match verdict.maybe_billed || committed {
                _ if answered => "yes",
                true => "maybe",
                false => "no",
            },
            unmatched: verdict.unmatched.clone(),
        }
    }
}
