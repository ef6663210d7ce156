//! What follows from a kind of failure, and what a rule says otherwise.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use waybill_event::FailureKind;
use waybill_event::failure::{FallbackReason, Health, Recovery, Strength};

use super::StatusRange;
use super::hint::HintRule;
use crate::verdict::public::PublicCode;

/// What follows from each kind.
pub type Kinds = BTreeMap<FailureKind, KindTreatment>;

/// Whether another source may be asked after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Elsewhere {
    /// No.
    Never,
    /// Only one that declares what this one lacked.
    Capable,
    /// Any.
    Anyone,
}

/// When the same source may be asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum After {
    /// Before any other source.
    AtOnce,
    /// Only when no other source is left.
    Siblings,
}

/// How the same source may be asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SameSource {
    /// How often at most.
    pub times: u32,
    /// How long to wait before each, in milliseconds; a hint that is obeyed takes its place.
    pub delay_ms: u64,
    /// When.
    pub after: After,
}

/// What a failure is about, from the smallest to the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// This source's credential: the source, and no other of its quota group.
    Key,
    /// Whoever pays: the source, and every other that declares the same quota group.
    #[default]
    Account,
    /// One upstream model at the source.
    Model,
    /// The source as an address: its base URL, its egress.
    Channel,
}

impl Scope {
    /// The stored word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Account => "account",
            Self::Model => "model",
            Self::Channel => "channel",
        }
    }
}

/// What is taken out, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case", deny_unknown_fields)]
pub enum BlockRule {
    /// Nothing.
    None,
    /// The source, or one model of it, for a time.
    Block {
        /// How strictly.
        strength: Strength,
        /// What is taken out.
        scope: Scope,
        /// For how long without a hint, in seconds; 0: only with a hint.
        seconds: u64,
        /// How strictly when the upstream named the time; absent: as without.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hinted: Option<Strength>,
    },
    /// The source, until somebody brings it back; one model of it for as long as a model is given up.
    Disable {
        /// Who.
        recovery: Recovery,
        /// What is taken out.
        #[serde(default)]
        scope: Scope,
    },
}

/// What the client sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientRule {
    /// The public error code.
    pub code: PublicCode,
    /// Statuses of the upstream that go through as they came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<StatusRange>,
    /// The status otherwise; absent: the code's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

/// Everything that follows from a kind of failure, unless a rule says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Treatment {
    /// The kind.
    pub kind: FailureKind,
    /// Whether another source may be asked.
    pub elsewhere: Elsewhere,
    /// Whether the same source may be asked again.
    pub same: Option<SameSource>,
    /// Evidence on the source.
    pub source_health: Health,
    /// Evidence on the model at the source.
    pub model_health: Health,
    /// What is taken out.
    pub block: BlockRule,
    /// How a wait that the upstream asks for is used.
    pub hint: Option<HintRule>,
    /// What the client sees; nothing for success.
    pub client: Option<ClientRule>,
    /// Whether it may be charged.
    pub maybe_billed: bool,
    /// Whether it may have cost the upstream work.
    pub counts: bool,
    /// The label of a change of source.
    pub fallback: FallbackReason,
}

/// What a rule says otherwise than its kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct But {
    /// Overrides [`Treatment::elsewhere`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<Elsewhere>,
    /// Overrides [`Treatment::same`]; `times: 0` is never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same: Option<SameSource>,
    /// Overrides [`Treatment::source_health`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_health: Option<Health>,
    /// Overrides [`Treatment::model_health`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_health: Option<Health>,
    /// Overrides [`Treatment::block`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<BlockRule>,
    /// Overrides [`Treatment::hint`]; with `cap_s: 0` nothing the upstream asks for is obeyed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<HintRule>,
    /// Overrides [`Treatment::client`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientRule>,
    /// Overrides [`Treatment::maybe_billed`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maybe_billed: Option<bool>,
    /// Overrides [`Treatment::counts`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<bool>,
    /// Overrides [`Treatment::fallback`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackReason>,
}

impl But {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// The kind's treatment with what this says otherwise.
    pub(in crate::verdict) fn over(&self, kind: &Treatment) -> Treatment {
        Treatment {
            kind: kind.kind,
            elsewhere: self.elsewhere.unwrap_or(kind.elsewhere),
            same: self.same.or(kind.same).filter(|same| same.times > 0),
            source_health: self.source_health.unwrap_or(kind.source_health),
            model_health: self.model_health.unwrap_or(kind.model_health),
            block: self.block.unwrap_or(kind.block),
            hint: self.hint.clone().or_else(|| kind.hint.clone()).filter(|hint| hint.cap_s > 0),
            client: self.client.clone().or_else(|| kind.client.clone()),
            maybe_billed: self.maybe_billed.unwrap_or(kind.maybe_billed),
            counts: self.counts.unwrap_or(kind.counts),
            fallback: self.fallback.unwrap_or(kind.fallback),
        }
    }
}

/// What follows from a kind, as it is stored under the kind's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindTreatment {
    /// See [`Treatment::elsewhere`].
    pub elsewhere: Elsewhere,
    /// See [`Treatment::same`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same: Option<SameSource>,
    /// See [`Treatment::source_health`].
    pub source_health: Health,
    /// See [`Treatment::model_health`].
    pub model_health: Health,
    /// See [`Treatment::block`].
    pub block: BlockRule,
    /// See [`Treatment::hint`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<HintRule>,
    /// See [`Treatment::client`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientRule>,
    /// See [`Treatment::maybe_billed`].
    pub maybe_billed: bool,
    /// See [`Treatment::counts`].
    pub counts: bool,
    /// See [`Treatment::fallback`].
    pub fallback: FallbackReason,
}

impl KindTreatment {
    pub(in crate::verdict) fn of(&self, kind: FailureKind) -> Treatment {
        Treatment {
            kind,
            elsewhere: self.elsewhere,
            same: self.same,
            source_health: self.source_health,
            model_health: self.model_health,
            block: self.block,
            hint: self.hint.clone().filter(|hint| hint.cap_s > 0),
            client: self.client.clone(),
            maybe_billed: self.maybe_billed,
            counts: self.counts,
            fallback: self.fallback,
        }
    }
}
