//! A rule set made ready for matching: levels in order, kinds in precedence.

mod compiled;
mod facts;
mod ready;
mod words;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use waybill_event::FailureKind;
use waybill_event::failure::{FallbackReason, Health};

use super::public::PublicCode;
use super::rule::{BlockRule, ClientRule, Elsewhere, Kinds, Rule, RuleSetData, StatusRange, Treatment, When};
use crate::observation::Observation;

pub use compiled::CompiledRules;
pub(super) use compiled::Found;

/// A rule set, checked and ready for use. Equal data give equal verdicts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "RuleSetData", into = "RuleSetData")]
pub struct RuleSet {
    data: RuleSetData,
    rules: CompiledRules,
    /// What is said of what no rule knows, should the rules not say it.
    last: Treatment,
}

/// Why a rule set was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleSetError {
    /// It isn't a rule set.
    #[error("not a rule set: {reason}")]
    Unreadable {
        /// What is wrong.
        reason: String,
    },
    /// A rule isn't one.
    #[error("rule {id}: {reason}")]
    Rule {
        /// The rule.
        id: String,
        /// What is wrong.
        reason: String,
    },
    /// A kind has no treatment.
    #[error("nothing says what follows from {kind}")]
    MissingKind {
        /// The kind.
        kind: FailureKind,
    },
    /// Two rules have one id.
    #[error("two rules are called {id}")]
    Twice {
        /// The id.
        id: String,
    },
    /// Too many rules.
    #[error("more than {} rules", compiled::MAX_RULES)]
    TooMany,
    /// A rule or kind would give the client a 401, 402 or 403, as if its own key were at fault.
    #[error("{of} would blame the client's own credential")]
    BlamesClient {
        /// The rule or kind.
        of: String,
    },
    /// A phrase is empty or too long.
    #[error("rule {id} has a phrase that is empty or longer than 80 bytes")]
    Phrase {
        /// The rule.
        id: String,
    },
    /// A rule of an operator has the id of a shipped one.
    #[error("{id} is the id of a shipped rule")]
    Shipped {
        /// The id.
        id: String,
    },
    /// A rule that shall not hold isn't shipped.
    #[error("no shipped rule is called {id}")]
    NotShipped {
        /// The id.
        id: String,
    },
    /// A selector or hint can't be used.
    #[error("rule {id}: {reason}")]
    Selector {
        /// The rule.
        id: String,
        /// What is wrong.
        reason: String,
    },
    /// The last rule doesn't hold for everything.
    #[error("the last rule must hold for everything")]
    NoLastRule,
}

impl RuleSet {
    /// Reads a rule set from JSON and checks it.
    ///
    /// # Errors
    /// [`RuleSetError`], naming the rule that is at fault.
    pub fn from_json(text: &str) -> Result<Self, RuleSetError> {
        let data = serde_json::from_str::<RuleSetData>(text).map_err(|fault| unreadable(text, &fault))?;
        Self::try_from(data)
    }

    /// A set that takes every observation for a failure of the gateway itself: what is left when there are no rules.
    pub(super) fn without_rules(data: RuleSetData) -> Self {
        Self { data, rules: CompiledRules::default(), last: nobody_knows() }
    }

    /// The set as data.
    #[must_use]
    pub const fn data(&self) -> &RuleSetData {
        &self.data
    }

    /// What follows from each kind.
    #[must_use]
    pub const fn kinds(&self) -> &Kinds {
        &self.data.kinds
    }

    /// What follows from a kind, unless a rule says otherwise.
    #[must_use]
    pub fn kind(&self, kind: FailureKind) -> Option<Treatment> {
        self.data.kinds.get(&kind).map(|treatment| treatment.of(kind))
    }

    /// The first rule that holds and isn't left out.
    pub(super) fn find(&self, observation: &Observation, holds: &dyn Fn(&str) -> bool) -> Found<'_> {
        self.rules.first(observation, holds).unwrap_or_else(|| Found {
            label: "no_rules@v0".into(),
            treatment: &self.last,
            unmatched: false,
        })
    }
}

impl TryFrom<RuleSetData> for RuleSet {
    type Error = RuleSetError;

    fn try_from(data: RuleSetData) -> Result<Self, RuleSetError> {
        let rank = |kind| data.precedence.iter().position(|k| *k == kind).unwrap_or(data.precedence.len());
        let mut ids = BTreeSet::new();
        for (kind, treatment) in &data.kinds {
            check_client(&treatment.of(*kind), kind.as_str())?;
        }
        let mut ordered: Vec<(&Rule, bool)> = Vec::new();
        for level in &data.levels {
            let mut of_level: Vec<&Rule> = level.rules.iter().collect();
            if level.by_kind {
                // The sort is stable: within a kind the order of the data decides.
                of_level.sort_by_key(|rule| rank(rule.kind));
            }
            if let Some(twice) = of_level.iter().find(|rule| !ids.insert(rule.id.as_str())) {
                return Err(RuleSetError::Twice { id: twice.id.clone() });
            }
            ordered.extend(of_level.into_iter().map(|rule| (rule, level.unmatched)));
        }
        let rules = CompiledRules::of(ordered.iter().copied(), &data.kinds)?;
        match ordered.last() {
            Some((last, _)) if last.when == When::default() && last.effective_from.is_none() => {
                Ok(Self { rules, data, last: nobody_knows() })
            }
            Some(_) | None => Err(RuleSetError::NoLastRule),
        }
    }
}

impl From<RuleSet> for RuleSetData {
    fn from(set: RuleSet) -> Self {
        set.data
    }
}

/// Why a text is no rule set; the rule at fault is looked for, since a place in the text names none.
fn unreadable(text: &str, fault: &serde_json::Error) -> RuleSetError {
    let whole = RuleSetError::Unreadable { reason: fault.to_string() };
    let Ok(tree) = serde_json::from_str::<Value>(text) else { return whole };
    let levels = tree.get("levels").and_then(Value::as_array).into_iter().flatten();
    let rules = levels.filter_map(|level| level.get("rules")?.as_array()).flatten();
    rules.filter_map(wrong_rule).next().unwrap_or(whole)
}

fn wrong_rule(rule: &Value) -> Option<RuleSetError> {
    let reason = serde_json::from_value::<Rule>(rule.clone()).err()?.to_string();
    let id = rule.get("id").and_then(Value::as_str).unwrap_or("without an id").chars().take(64).collect();
    Some(RuleSetError::Rule { id, reason })
}

const fn nobody_knows() -> Treatment {
    Treatment {
        kind: FailureKind::LocalFailure,
        elsewhere: Elsewhere::Never,
        same: None,
        source_health: Health::None,
        model_health: Health::None,
        block: BlockRule::None,
        hint: None,
        client: Some(ClientRule { code: PublicCode::InternalError, keep: Vec::new(), status: None }),
        maybe_billed: true,
        counts: true,
        fallback: FallbackReason::Other,
    }
}

pub(super) fn check_client(treatment: &Treatment, of: &str) -> Result<(), RuleSetError> {
    let ours = |range: &StatusRange| (401..=403).any(|status| range.contains(status));
    let blames = treatment.client.as_ref().is_some_and(|client| {
        client.keep.iter().any(ours) || (401..=403).contains(&client.status.unwrap_or_else(|| client.code.status()))
    });
    if blames { Err(RuleSetError::BlamesClient { of: of.to_owned() }) } else { Ok(()) }
}
