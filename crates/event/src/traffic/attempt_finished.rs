//! `attempt_finished`: one dispatch ended, with the verdict on it. The envelope names the source.

use serde::{Deserialize, Serialize};

use crate::body::Payload;
use crate::failure::{FailureKind, Sent};
use crate::selection::Next;

/// What is kept of an upstream's error: bounded and masked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Evidence {
    /// The protocol's error code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The protocol's error type.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The parameter at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
    /// The message, masked, at most 300 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How long it asked to wait before anybody asks again, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// What a candidate of rules would have said, where that differs from what the rules in force said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shadow {
    /// The candidate's rule, with its version.
    pub rule: String,
    /// The candidate's kind.
    pub kind: FailureKind,
    /// What else differs, by the names of the verdict's parts (`retry_elsewhere`, `block`, …).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<String>,
}

/// One dispatch ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptFinished {
    /// Number of the attempt within the request, from 1.
    pub attempt: u32,
    /// The resolved model.
    pub model: String,
    /// What was sent as model.
    pub upstream_model: String,
    /// The verdict's kind.
    pub kind: FailureKind,
    /// The rule that gave the verdict, with its version (`openai/429@v1`).
    pub rule: String,
    /// The upstream's HTTP status, if it gave one.
    pub status: Option<u16>,
    /// Time to the first content, in milliseconds.
    pub first_content_ms: Option<u32>,
    /// Time the attempt took, in milliseconds.
    pub took_ms: u32,
    /// How far the request had got.
    pub sent: Sent,
    /// Whether the upstream may charge for it although it failed.
    pub maybe_billed: bool,
    /// What comes next; absent after success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Next>,
    /// What the upstream said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// The upstream's own id of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_request_id: Option<String>,
    /// What a candidate of rules would have said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<Shadow>,
}

impl Payload for AttemptFinished {
    const TYPE: &'static str = "attempt_finished";
    const VERSION: u16 = 1;
}
