//! `request_finished`: how a request ended; written before the last byte goes to the client. The envelope names the
//! source that served, if one did.

use serde::{Deserialize, Serialize};

use crate::body::Payload;
use crate::config::Capability;
use crate::failure::FallbackReason;
use crate::money::UsageReport;
use crate::selection::Skip;

/// The final state of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinalState {
    /// The client got the complete answer.
    Succeeded,
    /// The client got a part of an answer and an error.
    Partial,
    /// The client got an error.
    Failed,
    /// The content was refused.
    Refused,
    /// The client went away.
    Cancelled,
    /// Nobody can tell.
    Unknown,
}

impl FinalState {
    /// The state as it is written in events, columns and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Partial => "partial",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
        }
    }
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestFinished {
    /// The final state.
    pub state: FinalState,
    /// HTTP status the client got; 499 when it was gone before one was sent.
    pub status: u16,
    /// Public error code, where it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the served answer said its model was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_model: Option<String>,
    /// Number of attempts.
    pub attempts: u32,
    /// Why another source than the first served or was asked; absent when none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackReason>,
    /// Whether a lesser target of the route served.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub degraded: bool,
    /// What the target that served lacks of what the first one declares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Capability>,
    /// Candidates passed over after the last attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skips: Vec<Skip>,
    /// Tokens.
    pub usage: UsageReport,
    /// Time from admission to the first content, in milliseconds.
    pub first_content_ms: Option<u32>,
    /// Time from admission to the end, in milliseconds.
    pub took_ms: u32,
    /// Whether a failed attempt may have been charged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub maybe_billed: bool,
}

impl Payload for RequestFinished {
    const TYPE: &'static str = "request_finished";
    const VERSION: u16 = 1;
}
