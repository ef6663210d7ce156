//! The rule set: the data that classification follows. It can be stored, published and read back; reading it checks it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use waybill_event::FailureKind;
use waybill_event::failure::{FallbackReason, Health, Recovery, Sent, Strength};

use super::public::PublicCode;
use crate::observation::{Fault, Limit, Phase, Shape};

pub use super::matching::{RuleSet, RuleSetError};

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
        /// Whether only the model is meant.
        model_only: bool,
        /// For how long without a hint, in seconds; 0: only with a hint.
        seconds: u64,
        /// How strictly when the upstream named the time; absent: as without.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hinted: Option<Strength>,
    },
    /// The source, until somebody brings it back.
    Disable {
        /// Who.
        recovery: Recovery,
    },
}

/// How a wait that the upstream asks for is used. Kinds without this ignore it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HintRule {
    /// The longest wait that is obeyed, in seconds: a relay must not be able to switch us off for a day.
    pub cap_s: u64,
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
    /// Overrides [`Treatment::hint`].
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
    /// The kind's treatment with what this says otherwise.
    pub(super) fn over(&self, kind: &Treatment) -> Treatment {
        Treatment {
            kind: kind.kind,
            elsewhere: self.elsewhere.unwrap_or(kind.elsewhere),
            same: self.same.or(kind.same).filter(|same| same.times > 0),
            source_health: self.source_health.unwrap_or(kind.source_health),
            model_health: self.model_health.unwrap_or(kind.model_health),
            block: self.block.unwrap_or(kind.block),
            hint: self.hint.or(kind.hint),
            client: self.client.clone().or_else(|| kind.client.clone()),
            maybe_billed: self.maybe_billed.unwrap_or(kind.maybe_billed),
            counts: self.counts.unwrap_or(kind.counts),
            fallback: self.fallback.unwrap_or(kind.fallback),
        }
    }
}

/// The endings there are, without what they carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndingKind {
    /// The protocol's complete answer.
    Success,
    /// A status that isn't 2xx.
    Status,
    /// A 2xx that isn't a success.
    Wrong2xx,
    /// The connection failed.
    Transport,
    /// A limit of time passed.
    TimedOut,
    /// The client went away.
    ClientGone,
    /// The gateway itself failed.
    Local,
}

/// What an observation must show for a rule to hold. Each list that isn't empty must be met by one of its members.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// How it ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endings: Vec<EndingKind>,
    /// The provider's kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<String>,
    /// The status; inside a 2xx the status that the error speaks of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<StatusRange>,
    /// The error's code, in any case; a trailing `*` stands for any rest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub codes: Vec<String>,
    /// The error's type, likewise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    /// The parameter at fault.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<String>,
    /// Whether no parameter may be named.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_param: bool,
    /// A part of the error's message, in any case.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phrases: Vec<String>,
    /// A further part of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub and_phrases: Vec<String>,
    /// The shape of the body.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shapes: Vec<Shape>,
    /// What went wrong with the connection.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// How far the connection had got.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// How much of the request had left.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sent: Vec<Sent>,
    /// Which limit of time passed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its id, unique in the set.
    pub id: String,
    /// Its version; every change of the rule raises it.
    pub v: u32,
    /// What it looks at.
    #[serde(default)]
    pub when: When,
    /// What it says.
    pub kind: FailureKind,
    /// What it says otherwise than its kind.
    #[serde(default)]
    pub but: But,
}

impl Rule {
    /// A rule that says what its kind says.
    pub(super) fn plain(id: &str, kind: FailureKind, when: When) -> Self {
        Self { id: id.to_owned(), v: 0, when, kind, but: But::default() }
    }

    /// What verdicts name it by: id and version.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}@v{}", self.id, self.v)
    }
}

/// Rules of one level. A level is tried only if those above it said nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// Its name.
    pub name: String,
    /// Whether the kinds' precedence comes before the order in which the rules stand.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_kind: bool,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// A rule set as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSetData {
    /// Version of the whole set.
    pub version: u32,
    /// Which kind wins where several rules of a level hold: most specific and least reversible first.
    pub precedence: Vec<FailureKind>,
    /// What follows from each kind.
    pub kinds: BTreeMap<FailureKind, KindTreatment>,
    /// The rules, level by level.
    pub levels: Vec<Level>,
}

impl RuleSetData {
    /// All rules, as they stand.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.levels.iter().flat_map(|level| &level.rules)
    }
}

/// What follows from a kind, as it is stored under the kind's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindTreatment {
    elsewhere: Elsewhere,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    same: Option<SameSource>,
    source_health: Health,
    model_health: Health,
    block: BlockRule,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<HintRule>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<ClientRule>,
    maybe_billed: bool,
    counts: bool,
    fallback: FallbackReason,
}

impl KindTreatment {
    pub(super) fn of(&self, kind: FailureKind) -> Treatment {
        Treatment {
            kind,
            elsewhere: self.elsewhere,
            same: self.same,
            source_health: self.source_health,
            model_health: self.model_health,
            block: self.block,
            hint: self.hint,
            client: self.client.clone(),
            maybe_billed: self.maybe_billed,
            counts: self.counts,
            fallback: self.fallback,
        }
    }
}

/// Statuses from one to another, both included. Written as `429` or `500-599`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatusRange {
    first: u16,
    last: u16,
}

impl StatusRange {
    /// Whether a status lies in the range.
    #[must_use]
    pub const fn contains(self, status: u16) -> bool {
        self.first <= status && status <= self.last
    }
}

/// A text that is no range of statuses.
#[derive(Debug, Clone, thiserror::Error)]
#[error("not a status or a range of them (429 or 500-599): {text:?}")]
pub struct ParseStatusRangeError {
    text: String,
}

impl FromStr for StatusRange {
    type Err = ParseStatusRangeError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let (first, last) = s.split_once('-').unwrap_or((s, s));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Self { first, last }),
            _ => Err(ParseStatusRangeError { text: s.chars().take(32).collect() }),
        }
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

impl Serialize for StatusRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StatusRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
