//! Events about sources and the log itself: transitions of breakers, blocks and disabling, probes, markers.
//!
//! Transitions happen in the fold at the outcome that causes them; the events here that announce one carry the id the
//! fold gave it (scope and cause) and change nothing when folded by the selector.

use serde::{Deserialize, Serialize};

use crate::body::Payload;
use crate::config::CheckBy;
use crate::failure::{BlockVerdict, FailureKind, Health, Recovery, Strength};
use crate::{Boot, ConfigPosition, LogTime, Mark, Position, ProducerId, Scope};

/// A breaker opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerOpened {
    /// Id of the opening: `<scope>@<mark of the outcome that tripped it>`.
    pub opening: String,
    /// What it covers.
    pub scope: Scope,
    /// The outcome that tripped it.
    pub cause: Mark,
    /// Where that outcome stands.
    pub cause_position: Position,
    /// Good outcomes in the window.
    pub ok: u32,
    /// Failed outcomes in the window.
    pub fail: u32,
    /// How many times in a row it has opened without closing, from 1.
    pub times: u32,
    /// Since when.
    pub since: LogTime,
    /// From when on it is half-open.
    pub open_until: LogTime,
}
impl Payload for BreakerOpened {
    const TYPE: &'static str = "breaker_opened";
    const VERSION: u16 = 1;
}

/// A probe of a half-open breaker was claimed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerHalfOpened {
    /// Id of the opening that is being probed.
    pub opening: String,
    /// What it covers.
    pub scope: Scope,
}
impl Payload for BreakerHalfOpened {
    const TYPE: &'static str = "breaker_half_opened";
    const VERSION: u16 = 1;
}

/// A breaker closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerClosed {
    /// Id of the opening that ended.
    pub opening: String,
    /// What it covers.
    pub scope: Scope,
    /// The event that closed it: a probe. Absent when an operator did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Mark>,
    /// Where the closing event stands.
    pub cause_position: Position,
    /// Since when.
    pub since: LogTime,
}
impl Payload for BreakerClosed {
    const TYPE: &'static str = "breaker_closed";
    const VERSION: u16 = 1;
}

/// What a probe was for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum ProbeOf {
    /// A half-open breaker.
    Opening {
        /// Id of the opening.
        opening: String,
    },
    /// A source that a verdict had disabled.
    Disabled {
        /// Id of the disabling.
        disabling: String,
    },
}

/// A probe has decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeFinished {
    /// What it was for.
    pub probe: ProbeOf,
    /// What it covers.
    pub scope: Scope,
    /// Whether the upstream works again.
    pub ok: bool,
    /// The verdict's kind.
    pub kind: FailureKind,
    /// Revision of the credential used.
    pub credential_revision: u64,
    /// Revision of the base URL used.
    pub base_url_revision: u64,
    /// What was sent as model; absent where none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_model: Option<String>,
    /// The rule that gave the verdict, with its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What the upstream said, masked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
impl Payload for ProbeFinished {
    const TYPE: &'static str = "probe_finished";
    const VERSION: u16 = 1;
}

/// What a check says as evidence, where it counts as such.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckEvidence {
    /// What was sent as model.
    pub upstream_model: String,
    /// Evidence on the source.
    pub source_health: Health,
    /// Evidence on the model at the source.
    pub model_health: Health,
    /// Response time, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u32>,
    /// What is to be taken out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<BlockVerdict>,
}

/// A source that serves was checked. It is written when the check counts as evidence, and when it says something else than
/// the one before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceChecked {
    /// What was checked.
    pub scope: Scope,
    /// By what.
    pub by: CheckBy,
    /// Whether it works.
    pub ok: bool,
    /// The verdict's kind.
    pub kind: FailureKind,
    /// The rule that gave the verdict, with its version.
    pub rule: String,
    /// Revision of the credential used.
    pub credential_revision: u64,
    /// Revision of the base URL used.
    pub base_url_revision: u64,
    /// Time it took, in milliseconds.
    pub took_ms: u32,
    /// What the upstream said, masked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What it says as evidence; absent where it doesn't count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<CheckEvidence>,
}
impl Payload for SourceChecked {
    const TYPE: &'static str = "source_checked";
    const VERSION: u16 = 1;
}

/// Why an account's tokens were refreshed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefreshReason {
    /// They were to expire soon.
    Ahead,
    /// A replica met an expired one.
    Expired,
    /// An upstream refused it before its time.
    Refused,
    /// An earlier start of upkeep had got them and not told of it.
    Recovered,
}

/// An account's tokens were refreshed: the new ones are stored, and what says that older ones were refused is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialRefreshed {
    /// The account.
    pub scope: Scope,
    /// Revision of the new tokens.
    pub credential_revision: u64,
    /// Revision of those before.
    pub replaces: u64,
    /// Why.
    pub why: RefreshReason,
    /// Whether there is another refresh token, too.
    pub rotated: bool,
    /// When the access token expires; absent where it has no known end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<LogTime>,
    /// Time from asking to storing, in milliseconds.
    pub took_ms: u32,
}
impl Payload for CredentialRefreshed {
    const TYPE: &'static str = "credential_refreshed";
    const VERSION: u16 = 1;
}

/// An account's tokens couldn't be refreshed. Told when it begins to fail, and when it has failed for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialRefreshFailed {
    /// The account.
    pub scope: Scope,
    /// Revision of the tokens that were to be refreshed.
    pub credential_revision: u64,
    /// Revision of the account's base URL.
    pub base_url_revision: u64,
    /// Whether only another login helps: the account is disabled then.
    #[serde(rename = "final")]
    pub is_final: bool,
    /// What the failure amounts to.
    pub kind: FailureKind,
    /// The OAuth server's status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The code of its error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What went wrong, masked.
    pub message: String,
    /// Until when the access token serves on; absent where it has no known end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<LogTime>,
}
impl Payload for CredentialRefreshFailed {
    const TYPE: &'static str = "credential_refresh_failed";
    const VERSION: u16 = 1;
}

/// A block was set or made longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockSet {
    /// Id of the block: `<scope>@<mark of the outcome that set it>`.
    pub block: String,
    /// What it covers.
    pub scope: Scope,
    /// How strictly.
    pub strength: Strength,
    /// Why.
    pub kind: FailureKind,
    /// The outcome that set it.
    pub cause: Mark,
    /// Where that outcome stands.
    pub cause_position: Position,
    /// Since when.
    pub since: LogTime,
    /// Until when.
    pub until: LogTime,
}
impl Payload for BlockSet {
    const TYPE: &'static str = "block_set";
    const VERSION: u16 = 1;
}

/// A block ended before its time: an operator lifted it, or a request that tried a limit again was served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockLifted {
    /// Id of the block that ended.
    pub block: String,
    /// What it covered.
    pub scope: Scope,
    /// How strictly.
    pub strength: Strength,
    /// The outcome that ended it. Absent when an operator did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Mark>,
    /// Where that outcome stands, or the marker that adopted the edit.
    pub cause_position: Position,
    /// Since when.
    pub since: LogTime,
}
impl Payload for BlockLifted {
    const TYPE: &'static str = "block_lifted";
    const VERSION: u16 = 1;
}

/// A verdict disabled a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceDisabled {
    /// Id of the disabling: `<scope>@<mark of the outcome that caused it>`.
    pub disabling: String,
    /// The source.
    pub scope: Scope,
    /// Why.
    pub kind: FailureKind,
    /// Who brings it back.
    pub recovery: Recovery,
    /// The outcome that caused it.
    pub cause: Mark,
    /// Where that outcome stands.
    pub cause_position: Position,
    /// Since when.
    pub since: LogTime,
}
impl Payload for SourceDisabled {
    const TYPE: &'static str = "source_disabled";
    const VERSION: u16 = 1;
}

/// A source that a verdict had disabled serves again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceEnabled {
    /// Id of the disabling that ended.
    pub disabling: String,
    /// The source.
    pub scope: Scope,
    /// The event that ended it: a probe. Absent when an edit did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Mark>,
    /// Where the ending event stands.
    pub cause_position: Position,
    /// Since when.
    pub since: LogTime,
}
impl Payload for SourceEnabled {
    const TYPE: &'static str = "source_enabled";
    const VERSION: u16 = 1;
}

/// The selector fold adopts configuration up to this position, here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigApplied {
    /// Position in `WB_CONFIG`.
    pub position: ConfigPosition,
    /// Epoch of the leader that wrote it.
    pub epoch: u64,
}
impl Payload for ConfigApplied {
    const TYPE: &'static str = "config_applied";
    const VERSION: u16 = 1;
}

/// How it is known that a request's owner will not end it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossReason {
    /// Everything that its boot wrote is in the log, and an end isn't among it.
    Drained,
    /// Its boot has shown no sign of life for so long that it is given up.
    Absent,
}

impl LossReason {
    /// The reason as it is written in events and columns.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drained => "drained",
            Self::Absent => "absent",
        }
    }
}

/// A request was admitted, and whoever owned it will not end it, as far as is known: a real end that comes later all
/// the same overrides this. The event has the id `lost:<request>` and the ordinal 0 among the request's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerLost {
    /// The replica that admitted it.
    pub replica: ProducerId,
    /// In which of its boots.
    pub boot: Boot,
    /// How it is known.
    pub why: LossReason,
}
impl Payload for OwnerLost {
    const TYPE: &'static str = "owner_lost";
    const VERSION: u16 = 1;
}

/// Everything that a boot of a replica wrote is in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxDrained {
    /// The replica.
    pub replica: ProducerId,
    /// The boot whose outbox was drained.
    pub boot: Boot,
    /// Its last ordinal; 0 if it wrote nothing.
    pub last: u64,
}
impl Payload for OutboxDrained {
    const TYPE: &'static str = "outbox_drained";
    const VERSION: u16 = 1;
}
