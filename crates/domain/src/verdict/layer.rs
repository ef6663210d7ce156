//! One scope's layer, made ready: its own rules, what follows from kinds there, which shipped rules don't hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use waybill_event::FailureKind;
use waybill_event::config::{Preset, RuleLayer};

use super::rule::{But, CompiledRules, Rule, RuleSet, RuleSetError, Treatment};
use crate::observation::Observation;

/// Most rules of one scope.
pub const MAX_LAYER_RULES: usize = 200;

static PRESETS: LazyLock<BTreeMap<Preset, Kinds>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("presets.json")).unwrap_or_else(|fault| {
        debug_assert!(false, "the presets can't be read: {fault}");
        BTreeMap::new()
    })
});

type Kinds = BTreeMap<FailureKind, But>;

/// What a preset says of each kind.
pub(super) fn preset(name: Preset) -> Option<&'static Kinds> {
    PRESETS.get(&name)
}

/// A layer, checked and ready for use.
#[derive(Debug, Clone)]
pub struct Layer {
    written: Vec<Rule>,
    rules: CompiledRules,
    /// What each rule says otherwise than its kind, by the rule's label.
    buts: BTreeMap<String, But>,
    pub(super) preset: Option<Preset>,
    pub(super) kinds: Kinds,
    pub(super) without: BTreeSet<String>,
}

/// A layer's rule that holds.
pub(super) struct Own<'a> {
    pub(super) label: Arc<str>,
    pub(super) kind: FailureKind,
    pub(super) but: &'a But,
}

impl Layer {
    /// Reads a layer that stands on `base` and checks it.
    ///
    /// # Errors
    /// [`RuleSetError`], which names the rule or the kind.
    pub fn of(layer: &RuleLayer, base: &RuleSet) -> Result<Self, RuleSetError> {
        let RuleLayer { preset, rules, kinds, without, accepts: _ } = layer;
        if rules.len() > MAX_LAYER_RULES {
            return Err(RuleSetError::TooMany);
        }
        let rules = rules.iter().map(read_rule).collect::<Result<Vec<_>, _>>()?;
        let shipped: BTreeSet<&str> = base.data().rules().map(|rule| rule.id.as_str()).collect();
        if let Some(taken) = rules.iter().find(|rule| shipped.contains(rule.id.as_str())) {
            return Err(RuleSetError::Shipped { id: taken.id.clone() });
        }
        if let Some(unknown) = without.iter().find(|id| !shipped.contains(id.as_str())) {
            return Err(RuleSetError::NotShipped { id: unknown.clone() });
        }
        let kinds = kinds.iter().map(|(kind, but)| read_kind(*kind, but, base)).collect::<Result<Kinds, _>>()?;
        let buts = rules.iter().map(|rule| (rule.label(), rule.but.clone())).collect();
        let mut ids = BTreeSet::new();
        if let Some(twice) = rules.iter().find(|rule| !ids.insert(rule.id.as_str())) {
            return Err(RuleSetError::Twice { id: twice.id.clone() });
        }
        let compiled = CompiledRules::compile(&rules, base.kinds())?;
        Ok(Self { written: rules, rules: compiled, buts, preset: *preset, kinds, without: without.clone() })
    }

    /// Its rules, as they were written.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.written
    }

    /// The first of its rules that holds.
    pub(super) fn find(&self, observation: &Observation) -> Option<Own<'_>> {
        let found = self.rules.first(observation, &|_| true)?;
        let but = self.buts.get(&*found.label)?;
        Some(Own { label: found.label, kind: found.treatment.kind, but })
    }
}

fn read_rule(value: &serde_json::Value) -> Result<Rule, RuleSetError> {
    let id = value.get("id").and_then(serde_json::Value::as_str).unwrap_or("without an id");
    let unreadable = |error: serde_json::Error| RuleSetError::Rule { id: id.to_owned(), reason: error.to_string() };
    serde_json::from_value(value.clone()).map_err(unreadable)
}

fn read_kind(kind: FailureKind, but: &serde_json::Value, base: &RuleSet) -> Result<(FailureKind, But), RuleSetError> {
    let unreadable = |error: serde_json::Error| RuleSetError::Unreadable { reason: format!("kind {kind}: {error}") };
    let but: But = serde_json::from_value(but.clone()).map_err(unreadable)?;
    let treatment = base.kind(kind).ok_or(RuleSetError::MissingKind { kind })?;
    super::matching::check_client(&but.over(&treatment), kind.as_str())?;
    Ok((kind, but))
}

/// What follows when each of these speaks in turn.
pub(super) fn over<'a>(treatment: Treatment, buts: impl IntoIterator<Item = &'a But>) -> Treatment {
    buts.into_iter().fold(treatment, |treatment, but| but.over(&treatment))
}
