//! The rule set: the data that classification follows. It can be stored, published and read back; reading it checks it.

mod case;
mod hint;
mod status;
mod treatment;
mod when;

use serde::{Deserialize, Serialize};
use waybill_event::FailureKind;

pub use super::matching::{CompiledRules, RuleSet, RuleSetError};
pub use case::{RecordedCase, RuleCase};
pub use hint::{Calendar, HintAt, HintRule, HintSource, HintUnit, ParseZoneError, Zone};
pub use status::{ParseStatusRangeError, StatusRange};
pub use treatment::{After, BlockRule, But, ClientRule, Elsewhere, KindTreatment, Kinds, SameSource, Scope, Treatment};
pub use when::{BodyTest, EndingKind, HeaderTest, Place, When};

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
    #[serde(default, skip_serializing_if = "But::is_nothing")]
    pub but: But,
    /// From when on it holds: a date, or a date and time in UTC (RFC 3339). What was seen before isn't judged by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_from: Option<String>,
    /// Where what it says is from: an address, or a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Failures that it, or another rule of the same set, must judge so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<RuleCase>,
}

impl Rule {
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
    /// Whether it judges what no rule knows: its verdicts count as unmatched where the body said something.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unmatched: bool,
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
    pub kinds: Kinds,
    /// The rules, level by level.
    pub levels: Vec<Level>,
}

impl RuleSetData {
    /// All rules, as they stand.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.levels.iter().flat_map(|level| &level.rules)
    }
}
