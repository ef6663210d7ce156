//! All rules that are in force: the shipped set, and before it the layers of operators, the narrowest first.
//!
//! Whose rule holds is asked of the source's layer, its provider's, the global one and then of the shipped set. What
//! follows from the kind is said by the shipped set, the preset in force, and the layers from the widest to the
//! narrowest; a layer's own rule has the last word on itself.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use waybill_event::config::{PolicyScope, Preset, RuleLayer, Rules};
use waybill_event::traffic::Shadow;
use waybill_event::{FailureKind, Source, SourceKind};

use super::layer::{Layer, over, preset};
use super::matching::Found;
use super::rule::{After, But, RuleSet, RuleSetError, SameSource};
use super::{Verdict, resolve};
use crate::observation::{Ending, Observation};

static SHIPPED: LazyLock<Arc<RuleSet>> = LazyLock::new(|| Arc::new(RuleSet::builtin().clone()));

/// The rules of one scope, ready.
#[derive(Debug)]
struct Scoped {
    scope: PolicyScope,
    version: u64,
    live: Layer,
    candidate: Option<Layer>,
}

/// All rules that are in force.
#[derive(Debug, Clone)]
pub struct Rulebook {
    base: Arc<RuleSet>,
    layers: Arc<BTreeMap<PolicyScope, Scoped>>,
}

/// A verdict, and what a candidate would have said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// What holds.
    pub verdict: Verdict,
    /// What a candidate would have said, where it differs.
    pub shadow: Option<Shadow>,
}

impl Default for Rulebook {
    fn default() -> Self {
        Self { base: SHIPPED.clone(), layers: Arc::default() }
    }
}

impl Rulebook {
    /// What operators' rules make of the shipped ones.
    ///
    /// # Errors
    /// [`RuleSetError`] with the scope whose rules can't be used.
    pub fn of<'a>(rules: impl IntoIterator<Item = &'a Rules>) -> Result<Self, (PolicyScope, RuleSetError)> {
        let base = SHIPPED.clone();
        let mut layers = BTreeMap::new();
        for rules in rules {
            let wrong = |fault| (rules.scope.clone(), fault);
            let ready = |layer: &RuleLayer| Layer::of(layer, &base).map_err(wrong);
            let candidate = rules.candidate.as_ref().map(ready).transpose()?;
            let live = ready(&rules.live)?;
            let scoped = Scoped { scope: rules.scope.clone(), version: rules.version, live, candidate };
            layers.insert(rules.scope.clone(), scoped);
        }
        Ok(Self { base, layers: Arc::new(layers) })
    }

    /// The shipped set.
    #[must_use]
    pub fn shipped(&self) -> &RuleSet {
        &self.base
    }

    /// What an observation at a source means.
    #[must_use]
    pub fn classify(&self, source: Option<Source>, observation: &Observation) -> Verdict {
        self.read(source, &self.chain(source, &observation.provider), false, observation)
    }

    /// What an observation at a source means, and what candidates would have said.
    #[must_use]
    pub fn judge(&self, source: Option<Source>, observation: &Observation) -> Judged {
        let chain = self.chain(source, &observation.provider);
        let verdict = self.read(source, &chain, false, observation);
        let shadow = chain.iter().any(|scoped| scoped.candidate.is_some()).then(|| {
            let other = self.read(source, &chain, true, observation);
            let differs = differences(&verdict, &other);
            let shadow = Shadow { rule: other.rule.to_string(), kind: other.kind, differs };
            (verdict.kind != other.kind || !shadow.differs.is_empty()).then_some(shadow)
        });
        Judged { verdict, shadow: shadow.flatten() }
    }

    /// The layer in force at a scope.
    #[must_use]
    pub fn layer(&self, scope: &PolicyScope) -> Option<&Layer> {
        self.layers.get(scope).map(|scoped| &scoped.live)
    }

    /// What presets and layers say of a kind at a source, whatever rule found it: what is otherwise there on purpose.
    #[must_use]
    pub fn said_of(&self, source: Option<Source>, provider: &str, kind: FailureKind) -> Vec<&But> {
        let chain = self.chain(source, provider);
        let named = chain.iter().find_map(|scoped| scoped.live.preset).unwrap_or(Preset::Standard);
        let of_layers = chain.iter().rev().filter_map(|scoped| scoped.live.kinds.get(&kind));
        preset(named).and_then(|kinds| kinds.get(&kind)).into_iter().chain(of_layers).collect()
    }

    /// The layers that speak of a source, the narrowest first.
    fn chain(&self, source: Option<Source>, provider: &str) -> Vec<&Scoped> {
        if self.layers.is_empty() {
            return Vec::new();
        }
        let source = source.map(|source| PolicyScope::Source { source });
        let provider = Some(PolicyScope::Provider { provider: provider.to_owned() });
        let scopes = [source, provider, Some(PolicyScope::Global)];
        scopes.iter().flatten().filter_map(|scope| self.layers.get(scope)).collect()
    }

    fn read(&self, source: Option<Source>, chain: &[&Scoped], shadow: bool, observation: &Observation) -> Verdict {
        let layers: Vec<(&Scoped, &Layer)> = chain.iter().map(|scoped| (*scoped, scoped.layer(shadow))).collect();
        let own = layers.iter().find_map(|(scoped, layer)| Some((*scoped, layer.find(observation)?)));
        let (label, treatment, last, unmatched) = match own {
            Some((scoped, own)) => {
                let label = format!("{}/{}", scoped.scope, own.label).into();
                let Some(treatment) = self.base.kind(own.kind) else { return self.of_shipped(observation) };
                (label, treatment, Some(own.but), false)
            }
            None => {
                let holds = |id: &str| !layers.iter().any(|(_, layer)| layer.without.contains(id));
                let found = self.base.find(observation, &holds);
                let refreshable = self.base.kind(FailureKind::AuthRefreshable);
                match refreshable.filter(|_| is_token(source, found.treatment.kind, observation)) {
                    Some(treatment) => (format!("{}+account", found.label).into(), treatment, None, found.unmatched),
                    None => (found.label, found.treatment.clone(), None, found.unmatched),
                }
            }
        };
        let kind = treatment.kind;
        let mut by = String::new();
        let named = layers.iter().find_map(|(_, layer)| layer.preset).unwrap_or(Preset::Standard);
        let of_preset = preset(named).and_then(|kinds| kinds.get(&kind));
        if of_preset.is_some() {
            by = format!("+{}", named.as_str());
        }
        let mut buts: Vec<&But> = of_preset.into_iter().collect();
        for (scoped, layer) in layers.iter().rev() {
            if let Some(but) = layer.kinds.get(&kind) {
                buts.push(but);
                by = format!("{by}+{}@v{}", scoped.scope, scoped.version);
            }
        }
        let label = if by.is_empty() { label } else { format!("{label}{by}").into() };
        let mut treatment = over(treatment, buts.into_iter().chain(last));
        if kind == FailureKind::AuthRefreshable && is_account(source) {
            treatment.same.get_or_insert(AFTER_REFRESH);
        }
        resolve(&Found { label, treatment: &treatment, unmatched }, observation)
    }

    fn of_shipped(&self, observation: &Observation) -> Verdict {
        resolve(&self.base.find(observation, &|_| true), observation)
    }
}

impl Scoped {
    fn layer(&self, shadow: bool) -> &Layer {
        self.candidate.as_ref().filter(|_| shadow).unwrap_or(&self.live)
    }
}

/// An account whose token was refused is asked once more: with the next token, for which the request waits.
const AFTER_REFRESH: SameSource = SameSource { times: 1, delay_ms: 0, after: After::AtOnce };

fn is_account(source: Option<Source>) -> bool {
    source.is_some_and(|source| source.kind == SourceKind::Account)
}

/// Whether an account's token was refused, which the next one mends: to the shipped rules a key and a token look alike.
fn is_token(source: Option<Source>, kind: FailureKind, observation: &Observation) -> bool {
    is_account(source)
        && kind == FailureKind::AuthInvalid
        && matches!(observation.ending, Ending::Status { status: 401, .. })
}

/// The parts in which two verdicts differ, but for the kind.
fn differences(one: &Verdict, other: &Verdict) -> Vec<String> {
    let parts = [
        ("retry_elsewhere", one.retry_elsewhere == other.retry_elsewhere),
        ("retry_same", one.retry_same == other.retry_same),
        ("source_health", one.source_health == other.source_health),
        ("model_health", one.model_health == other.model_health),
        ("block", one.block == other.block && one.scope == other.scope),
        ("client", one.client == other.client),
        ("maybe_billed", one.maybe_billed == other.maybe_billed),
        ("wait", one.wait == other.wait),
        ("counts_attempt", one.counts_attempt == other.counts_attempt),
        ("fallback", one.fallback == other.fallback),
    ];
    parts.into_iter().filter(|(_, same)| !same).map(|(part, _)| part.to_owned()).collect()
}

#[cfg(test)]
mod tests;
