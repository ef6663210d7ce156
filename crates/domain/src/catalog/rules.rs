//! Commands on rules of verdicts: publish a scope's layer, let a candidate look on, promote it, drop it.

use std::collections::BTreeMap;

use serde_json::Value;
use waybill_event::config::{Change, Changed, ConfigChange, Entity, PolicyScope, RuleLayer, Rules};

use super::command::Rejection;
use super::{Catalog, diff, policy};
use crate::verdict::{Layer, RuleSet};

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Put this layer in force in place of the scope's former one; an empty one takes everything back.
    Publish(RuleLayer),
    /// Let this layer look on; `None` ends that.
    Shadow(Option<RuleLayer>),
    /// Put the candidate in force.
    Promote,
}

/// A wish about the rules of a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// What they apply to.
    pub scope: PolicyScope,
    /// The version the caller knows; 0 where the scope has no rules of its own yet.
    pub expected: u64,
    /// What is to be done.
    pub act: Act,
}

pub(super) fn decide(catalog: &Catalog, command: &Command) -> Result<Vec<ConfigChange>, Rejection> {
    let Command { scope, expected, act } = command;
    if !Rules::fits(scope) {
        return Err(Rejection::invalid(
            "scope",
            "must be global, provider:NAME or channel:X: a verdict is on a source",
        ));
    }
    let old = catalog.rules.get(scope);
    let actual = old.map_or(0, |rules| rules.version);
    if *expected != actual {
        let id = scope.to_string();
        return Err(Rejection::VersionConflict { entity: Rules::ENTITY, id, expected: *expected, actual });
    }
    let nothing = Rules { scope: scope.clone(), live: RuleLayer::default(), candidate: None, version: 0 };
    let before = old.map_or(&nothing, AsRef::as_ref);
    let new = next(before, act)?;
    // What a scope says can be taken back also when nobody has that scope any more.
    if !(new.live.is_empty() && new.candidate.is_none()) {
        policy::exists(catalog, scope)?;
    }
    check("live", &new.live)?;
    if let Some(candidate) = &new.candidate {
        check("candidate", candidate)?;
    }
    let changed = diff::changed_fields(before, &new);
    if changed.is_empty() {
        return Ok(Vec::new());
    }
    let (change, changed) = if old.is_some() { (Change::Edited, changed) } else { (Change::Created, Vec::new()) };
    Ok(vec![ConfigChange::Rules(Changed { change, state: new, changed })])
}

fn next(before: &Rules, act: &Act) -> Result<Rules, Rejection> {
    let version = before.version + 1;
    let known = [Some(&before.live), before.candidate.as_ref()];
    let numbered = |layer: &RuleLayer| numbered(layer, known.into_iter().flatten(), version);
    Ok(match act {
        Act::Publish(layer) => Rules { live: numbered(layer), version, ..before.clone() },
        Act::Shadow(layer) => Rules { candidate: layer.as_ref().map(numbered), version, ..before.clone() },
        Act::Promote => {
            let candidate = before.candidate.clone();
            let live = candidate.ok_or_else(|| Rejection::invalid("candidate", "there is none to promote"))?;
            Rules { live, candidate: None, version, ..before.clone() }
        }
    })
}

/// The layer with the version of each rule: that of the edit it changed with, whatever the writer says, so that the
/// label in an event names one text of the rule.
fn numbered<'a>(layer: &RuleLayer, known: impl Iterator<Item = &'a RuleLayer>, version: u64) -> RuleLayer {
    let mut before: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for rule in known.flat_map(|layer| &layer.rules) {
        before.entry(id_of(rule)).or_default().push(rule);
    }
    let rules = layer.rules.iter().map(|rule| {
        let same = |old: &&&Value| without_version(old) == without_version(rule);
        let old = before.get(id_of(rule)).and_then(|rules| rules.iter().find(same));
        let v = old.and_then(|old| old.get("v").cloned()).unwrap_or_else(|| version.into());
        let mut rule = rule.clone();
        if let Value::Object(fields) = &mut rule {
            fields.insert("v".to_owned(), v);
        }
        rule
    });
    RuleLayer { rules: rules.collect(), ..layer.clone() }
}

fn id_of(rule: &Value) -> &str {
    rule.get("id").and_then(Value::as_str).unwrap_or_default()
}

fn without_version(rule: &Value) -> Value {
    let mut rule = rule.clone();
    if let Value::Object(fields) = &mut rule {
        fields.remove("v");
    }
    rule
}

/// Refuses a layer that the classifier can't use.
fn check(field: &str, layer: &RuleLayer) -> Result<(), Rejection> {
    Layer::of(layer, RuleSet::builtin()).map(drop).map_err(|fault| Rejection::invalid(field, fault.to_string()))
}

#[cfg(test)]
mod tests;
