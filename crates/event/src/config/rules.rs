//! Rules of verdicts that operators add to the shipped ones: at every scope a layer that goes before the wider ones', and
//! beside it a candidate that only looks on.
//!
//! What a rule may look at and say is the classifier's business (`waybill-domain`), which checks a layer before it is
//! published. Here rules are kept as they were written, so that a log outlives the rules' form.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Entity, PolicyScope};
use crate::FailureKind;

/// A shipped change of what follows from failures, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// None: what is shipped, as it is.
    Standard,
    /// Nothing is paid for twice and nothing is shopped around: what may have been billed isn't tried elsewhere.
    Conservative,
    /// Limits and overload take nothing out and count against nobody unless the upstream names a time.
    BusyIsNotBroken,
}

impl Preset {
    /// All presets.
    pub const ALL: [Self; 3] = [Self::Standard, Self::Conservative, Self::BusyIsNotBroken];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Conservative => "conservative",
            Self::BusyIsNotBroken => "busy_is_not_broken",
        }
    }
}

/// What one scope says otherwise than wider ones.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuleLayer {
    /// The preset that this scope's own words stand on; absent: the wider scope's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// Rules that are asked before wider scopes' and the shipped ones, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Value>,
    /// What follows from a kind of failure, where that is otherwise here.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kinds: BTreeMap<FailureKind, Value>,
    /// Ids of shipped rules that don't hold here.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub without: BTreeSet<String>,
    /// Ids of bundled cases that are knowingly judged otherwise here.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub accepts: BTreeSet<String>,
}

impl RuleLayer {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The rules of one scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// What they apply to: everything, a provider's sources, or one source.
    pub scope: PolicyScope,
    /// What is in force.
    pub live: RuleLayer,
    /// What is only compared with what is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<RuleLayer>,
    /// How many edits it has seen, its creation included.
    pub version: u64,
}

impl Rules {
    /// Whether rules may stand at a scope: a verdict is about a source, whoever asked.
    #[must_use]
    pub const fn fits(scope: &PolicyScope) -> bool {
        matches!(scope, PolicyScope::Global | PolicyScope::Provider { .. } | PolicyScope::Source { .. })
    }
}

impl Entity for Rules {
    const ENTITY: &'static str = "rules";
    const VERSION: u16 = 1;
    fn subject_id(&self) -> String {
        self.scope.subject_id()
    }
    fn version(&self) -> u64 {
        self.version
    }
}
