//! The failure kinds: the low-cardinality fact that is recorded of every attempt. `docs/GLOSSARY.md` explains each.

use serde::{Deserialize, Serialize};

/// What became of an attempt. `Success` is a kind too, so that every attempt has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The caller's request is wrong.
    InvalidRequest,
    /// The body is too large for the upstream.
    PayloadTooLarge,
    /// The prompt doesn't fit the model's context window.
    ContextOverflow,
    /// This source can't do what the request needs; another might.
    CapabilityMismatch,
    /// The model or its provider refused the content.
    PolicyRefusal,
    /// A reseller's own word filter refused the content.
    RelayFilter,
    /// Our credential is dead.
    AuthInvalid,
    /// Our credential has expired and can be refreshed.
    AuthRefreshable,
    /// Our account is banned; a human must act.
    AccountBanned,
    /// Our wallet or quota is empty.
    BillingExhausted,
    /// Our address or region is refused.
    EgressBlocked,
    /// The source is set up wrongly (base URL, deployment).
    ChannelMisconfigured,
    /// This model isn't available here.
    ModelUnavailable,
    /// The upstream as a whole is overloaded.
    Overloaded,
    /// We are too fast.
    RateLimited,
    /// A usage window is used up until a known time.
    WindowExhausted,
    /// A momentary conflict.
    TransientConflict,
    /// The upstream failed.
    ServerError,
    /// An edge or proxy in front of the upstream failed.
    EdgeError,
    /// The upstream took too long.
    Timeout,
    /// The connection failed.
    Network,
    /// The answer hasn't the protocol's shape.
    MalformedResponse,
    /// The answer has the right shape and nothing in it.
    EmptyOutput,
    /// The caller went away.
    ClientCancelled,
    /// The gateway itself failed.
    LocalFailure,
    /// A limit of the gateway's own was met.
    LocalLimit,
    /// It worked.
    Success,
}

impl FailureKind {
    /// The kind as it is written in events, metrics and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::PayloadTooLarge => "payload_too_large",
            Self::ContextOverflow => "context_overflow",
            Self::CapabilityMismatch => "capability_mismatch",
            Self::PolicyRefusal => "policy_refusal",
            Self::RelayFilter => "relay_filter",
            Self::AuthInvalid => "auth_invalid",
            Self::AuthRefreshable => "auth_refreshable",
            Self::AccountBanned => "account_banned",
            Self::BillingExhausted => "billing_exhausted",
            Self::EgressBlocked => "egress_blocked",
            Self::ChannelMisconfigured => "channel_misconfigured",
            Self::ModelUnavailable => "model_unavailable",
            Self::Overloaded => "overloaded",
            Self::RateLimited => "rate_limited",
            Self::WindowExhausted => "window_exhausted",
            Self::TransientConflict => "transient_conflict",
            Self::ServerError => "server_error",
            Self::EdgeError => "edge_error",
            Self::Timeout => "timeout",
            Self::Network => "network",
            Self::MalformedResponse => "malformed_response",
            Self::EmptyOutput => "empty_output",
            Self::ClientCancelled => "client_cancelled",
            Self::LocalFailure => "local_failure",
            Self::LocalLimit => "local_limit",
            Self::Success => "success",
        }
    }
}

impl std::fmt::Display for FailureKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a request changed its source: made from the first failure only, so that its cardinality stays low.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FallbackReason {
    /// The first source lacked a capability.
    CapabilityMismatch,
    /// The model wasn't available at the first source.
    ModelUnavailable,
    /// A filter refused the content.
    PolicyRejection,
    /// The first source limited us.
    RateLimited,
    /// The first source failed.
    #[serde(rename = "upstream_5xx")]
    Upstream5xx,
    /// The first source took too long.
    Timeout,
    /// The connection failed.
    Network,
    /// Anything else.
    Other,
}

impl FallbackReason {
    /// The reason as it is written in events and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CapabilityMismatch => "capability_mismatch",
            Self::ModelUnavailable => "model_unavailable",
            Self::PolicyRejection => "policy_rejection",
            Self::RateLimited => "rate_limited",
            Self::Upstream5xx => "upstream_5xx",
            Self::Timeout => "timeout",
            Self::Network => "network",
            Self::Other => "other",
        }
    }
}

/// How much of a request had left us when an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sent {
    /// Provably nothing that the upstream could have worked on.
    Nothing,
    /// The request was sent, wholly or in part.
    Request,
    /// The upstream's answer had begun.
    Response,
}

impl Sent {
    /// The stored word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Request => "request",
            Self::Response => "response",
        }
    }
}

/// What one outcome says about a breaker's subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It works, or at least answers.
    Ok,
    /// It is broken.
    Fail,
    /// It is overloaded: lowers the weight, never trips a breaker.
    Busy,
    /// The outcome says nothing about it.
    None,
}

impl Health {
    /// The stored word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Fail => "fail",
            Self::Busy => "busy",
            Self::None => "none",
        }
    }
}

/// How strictly a block takes a source out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strength {
    /// Only while another candidate is left.
    Soft,
    /// Never asked before its end, which the upstream itself named.
    Hint,
    /// Taken out until its end.
    Hard,
}

/// Who brings a disabled source back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recovery {
    /// Probes, until one succeeds.
    Probe,
    /// An operator's edit only; never probed.
    Operator,
}

/// What a verdict asks to be taken out, as the outcome records it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum BlockVerdict {
    /// Block the source, or the one model of it, for a time.
    Block {
        /// How strictly.
        strength: Strength,
        /// Whether only the outcome's upstream model is meant.
        model_only: bool,
        /// For how long, from the outcome's time; growth on repetition is the fold's.
        duration_ms: u64,
    },
    /// Disable the source.
    Disable {
        /// Who brings it back.
        recovery: Recovery,
    },
}
