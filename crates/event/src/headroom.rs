//! What upstreams tell of their own usage windows: how much of each is used, and when it begins anew.

use serde::{Deserialize, Serialize};

use crate::LogTime;

/// One usage window of an account, as its upstream told of it last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageWindow {
    /// The upstream's word for it: `5h`, `7d_opus`, `primary`, `requests`.
    pub name: String,
    /// How much of it is used, in thousandths; absent where only its state is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_permille: Option<u32>,
    /// When it begins anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<LogTime>,
    /// How long it is, in minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minutes: Option<u32>,
    /// Whether the upstream turns away what comes before it begins anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exhausted: bool,
    /// When this was told.
    pub seen_at: LogTime,
}

impl UsageWindow {
    /// Whether it still says anything: one that has begun anew since is unknown.
    #[must_use]
    pub fn holds(&self, now: LogTime) -> bool {
        self.resets_at.is_none_or(|resets_at| now < resets_at)
    }
}
