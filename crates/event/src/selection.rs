//! The words of selection that events carry: why a candidate was skipped, why one was chosen, and the hash that names
//! the table a plan used.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Source;

/// Why a candidate can't be used now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Disabled by an operator or by a verdict.
    Disabled,
    /// The key or group may not use it.
    NotAuthorised,
    /// Already failed for this request.
    Excluded,
    /// It has no usable credential.
    NoCredential,
    /// Its access token has expired, and the next one isn't there yet.
    CredentialExpired,
    /// It lacks a capability the request needs.
    CapabilityMissing,
    /// The source's breaker is open.
    SourceBreakerOpen,
    /// The breaker of this model at the source is open.
    ModelBreakerOpen,
    /// Softly blocked: used only when nothing else is left.
    SoftBlocked,
    /// Blocked until a time the upstream named.
    HintBlocked,
    /// Hard-blocked.
    HardBlocked,
    /// Half-open and its probe is taken.
    Probing,
    /// An operator holds its breaker open.
    HeldOpen,
    /// A further try would strain what is ill already: the retry budget of the target model is spent.
    RetryBudget,
    /// As many requests as it may have at once are in flight there.
    Concurrency,
    /// It was asked as often within a minute as it may be.
    Rpm,
    /// The session has spent there what it may within its window.
    SessionWindow,
    /// It is of another kind than the source that was asked first, and the policy keeps to one kind.
    OtherKind,
}

impl SkipReason {
    /// The reason as it is written in events and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::NotAuthorised => "not_authorised",
            Self::Excluded => "excluded",
            Self::NoCredential => "no_credential",
            Self::CredentialExpired => "credential_expired",
            Self::CapabilityMissing => "capability_missing",
            Self::SourceBreakerOpen => "source_breaker_open",
            Self::ModelBreakerOpen => "model_breaker_open",
            Self::SoftBlocked => "soft_blocked",
            Self::HintBlocked => "hint_blocked",
            Self::HardBlocked => "hard_blocked",
            Self::Probing => "probing",
            Self::HeldOpen => "held_open",
            Self::RetryBudget => "retry_budget",
            Self::Concurrency => "concurrency",
            Self::Rpm => "rpm",
            Self::SessionWindow => "session_window",
            Self::OtherKind => "other_kind",
        }
    }

    /// Whether the source is merely full: it would serve, only not now.
    #[must_use]
    pub const fn is_full(self) -> bool {
        matches!(self, Self::Concurrency | Self::Rpm | Self::SessionWindow)
    }
}

/// A candidate that was passed over, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skip {
    /// The candidate.
    pub source: Source,
    /// Why.
    pub why: SkipReason,
}

/// Why this source was asked at this point of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Chosen {
    /// The plan's first place.
    First,
    /// The next candidate after a failure.
    FailOver,
    /// The same source again.
    SameSource,
    /// Half-open, and this request holds its probe permit.
    Probe,
    /// Softly blocked, and nothing better was left.
    LastResort,
    /// Every source of the targets before has failed or can't be asked: the route's next target.
    NextTarget,
    /// Its breaker is open, and nothing better was left.
    LeastBad,
    /// Nobody better was left, and the end of its limit was waited for.
    LimitEnded,
    /// Nobody better was left, and it has not said for a while that its limit holds: one request at a time tries.
    LimitRetried,
    /// Every source was full, and here there was room in time.
    RoomFreed,
    /// The conversation is served there.
    Sticky,
}

impl Chosen {
    /// The word as it is written in events and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::FailOver => "fail_over",
            Self::SameSource => "same_source",
            Self::Probe => "probe",
            Self::LastResort => "last_resort",
            Self::NextTarget => "next_target",
            Self::LeastBad => "least_bad",
            Self::LimitEnded => "limit_ended",
            Self::LimitRetried => "limit_retried",
            Self::RoomFreed => "room_freed",
            Self::Sticky => "sticky",
        }
    }
}

/// What comes after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// Another candidate.
    Elsewhere,
    /// The same source again.
    Same,
    /// Nothing: the request ends with this.
    Stop,
}

impl Next {
    /// The word as it is written in events and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Elsewhere => "elsewhere",
            Self::Same => "same",
            Self::Stop => "stop",
        }
    }
}

/// Names the content of a selection table: the first 128 bits of its SHA-256, written as 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableHash(pub u128);

impl fmt::Display for TableHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for TableHash {
    type Err = std::num::ParseIntError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(s, 16).map(Self)
    }
}

impl Serialize for TableHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TableHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
