//! The rule set that is shipped.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::rule::{RuleSet, RuleSetData};

const BUILTIN: &str = include_str!("builtin.json");

static SET: LazyLock<RuleSet> = LazyLock::new(|| {
    RuleSet::from_json(BUILTIN).unwrap_or_else(|fault| {
        debug_assert!(false, "the shipped rule set can't be read: {fault}");
        RuleSet::without_rules(RuleSetData {
            version: 0,
            precedence: Vec::new(),
            kinds: BTreeMap::new(),
            levels: Vec::new(),
        })
    })
});

impl RuleSet {
    /// The set that is shipped.
    #[must_use]
    pub fn builtin() -> &'static Self {
        &SET
    }
}
