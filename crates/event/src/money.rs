//! Money and tokens, as integers.

use serde::{Deserialize, Serialize};

/// Nano-dollars: $0.02 per million tokens is 20 n$ a token. Rounded for display only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NanoUsd(pub i64);

/// A number of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenCount(pub u64);

/// Tokens as an upstream reported them; a field it didn't report is `None`, which is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<TokenCount>,
    /// Tokens of the answer, reasoning included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<TokenCount>,
    /// Part of the prompt that was read from the upstream's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<TokenCount>,
    /// Part of the answer that was hidden reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<TokenCount>,
}

/// Where the figures of a usage come from. "Reported zero" and "not reported" are different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum UsageReport {
    /// The upstream reported it.
    Reported(Usage),
    /// The upstream said nothing.
    Absent,
}
