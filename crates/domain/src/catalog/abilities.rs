//! The ability index: which sources can serve a model for a group, in tiers. An edit of a source touches only that
//! source's groups and models; everything else is shared with the index before.

use std::collections::BTreeMap;
use std::sync::Arc;

use waybill_event::config::{Capabilities, ChannelModel};
use waybill_event::{GroupId, Source, SourceRef};

use super::SourceEntity;

/// What one source can do for one (group, model).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ability {
    /// The source.
    pub source: Source,
    /// Version of its entity.
    pub version: u64,
    /// What is sent to it as model.
    pub upstream_model: Arc<str>,
    /// What it can do there, as far as it is declared.
    pub capabilities: Capabilities,
    /// Its share within its tier; 0 is a last resort.
    pub weight: u32,
    /// Its tier.
    pub priority: i32,
    /// Whether an operator lets it serve.
    pub enabled: bool,
    /// Revision of its credential; without one it can't be asked.
    pub credential_revision: Option<u64>,
    /// Revision of its base URL.
    pub base_url_revision: u64,
    /// All its settings.
    pub entity: SourceEntity,
}

impl Ability {
    fn of(entity: &SourceEntity, model: &ChannelModel) -> Self {
        Self {
            source: entity.source(),
            version: entity.version(),
            upstream_model: model.upstream_name().into(),
            capabilities: model.capabilities,
            weight: entity.weight(),
            priority: entity.priority(),
            enabled: entity.enabled(),
            credential_revision: entity.credential().map(|credential| credential.revision),
            base_url_revision: entity.revisions().base_url,
            entity: entity.clone(),
        }
    }

    /// The source as events name it.
    #[must_use]
    pub fn source_ref(&self) -> SourceRef {
        SourceRef { source: self.source, rev: self.version }
    }

    /// Whether it has a credential.
    #[must_use]
    pub fn has_credential(&self) -> bool {
        self.credential_revision.is_some()
    }

    /// Whether configuration lets it serve; what the log says of its health is another matter.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.enabled && self.has_credential()
    }
}

/// The candidates of one priority, in the order of their sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tier {
    /// The priority.
    pub priority: i32,
    /// The candidates; never empty.
    pub abilities: Vec<Ability>,
}

/// Everything that can serve one (group, model): tiers, the highest priority first; never empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelAbilities {
    /// The tiers.
    pub tiers: Vec<Tier>,
}

impl ModelAbilities {
    /// All candidates, highest tier first.
    pub fn iter(&self) -> impl Iterator<Item = &Ability> {
        self.tiers.iter().flat_map(|tier| &tier.abilities)
    }

    /// How many candidates there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tiers.iter().map(|tier| tier.abilities.len()).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tiers.is_empty()
    }

    /// The candidate that is this source.
    #[must_use]
    pub fn of(&self, source: Source) -> Option<&Ability> {
        self.iter().find(|ability| ability.source == source)
    }

    fn insert(&mut self, ability: Ability) {
        let tier = match self.tiers.binary_search_by(|tier| ability.priority.cmp(&tier.priority)) {
            Ok(found) => found,
            Err(gap) => {
                self.tiers.insert(gap, Tier { priority: ability.priority, abilities: Vec::new() });
                gap
            }
        };
        let Some(tier) = self.tiers.get_mut(tier) else { return };
        // A source that lists a model twice counts with the first mention.
        if let Err(gap) = tier.abilities.binary_search_by(|other| other.source.cmp(&ability.source)) {
            tier.abilities.insert(gap, ability);
        }
    }

    fn remove(&mut self, source: Source) {
        for tier in &mut self.tiers {
            tier.abilities.retain(|ability| ability.source != source);
        }
        self.tiers.retain(|tier| !tier.abilities.is_empty());
    }
}

/// The models of one group.
pub type GroupAbilities = BTreeMap<Arc<str>, Arc<ModelAbilities>>;

/// Group → model → tiers. A clone is one reference count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Index {
    groups: Arc<BTreeMap<GroupId, Arc<GroupAbilities>>>,
}

/// One ability as the read model keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AbilityRow<'a> {
    /// The group.
    pub group: GroupId,
    /// The model.
    pub model: &'a str,
    /// The source.
    pub source: Source,
    /// What is sent to it as model.
    pub upstream_model: &'a str,
    /// Whether it is enabled.
    pub enabled: bool,
    /// Its tier.
    pub priority: i32,
    /// Its share within the tier.
    pub weight: u32,
}

/// The rows that one source stands for: its groups × its models, each once.
pub fn rows_of(entity: &SourceEntity) -> impl Iterator<Item = AbilityRow<'_>> {
    let (models, all_groups) = (entity.models(), entity.groups());
    let first = |i: usize, name: &str| !models.iter().take(i).any(|earlier| earlier.name == name);
    let groups = all_groups.iter().enumerate();
    groups.filter(|(i, group)| !all_groups.iter().take(*i).any(|g| g == *group)).flat_map(move |(_, group)| {
        models.iter().enumerate().filter(move |(i, model)| first(*i, &model.name)).map(move |(_, model)| AbilityRow {
            group: *group,
            model: &model.name,
            source: entity.source(),
            upstream_model: model.upstream_name(),
            enabled: entity.enabled(),
            priority: entity.priority(),
            weight: entity.weight(),
        })
    })
}

impl Index {
    /// The index of these sources.
    #[must_use]
    pub fn of(entities: impl IntoIterator<Item = SourceEntity>) -> Self {
        let mut index = Self::default();
        for entity in entities {
            index.update(None, Some(&entity));
        }
        index
    }

    /// Replaces a source's abilities. `old` is what the index holds of it, `new` what it shall hold.
    pub fn update(&mut self, old: Option<&SourceEntity>, new: Option<&SourceEntity>) {
        if old.is_none() && new.is_none() {
            return;
        }
        let groups = Arc::make_mut(&mut self.groups);
        if let Some(old) = old {
            remove(groups, old);
        }
        if let Some(new) = new {
            insert(groups, new);
        }
    }

    /// What can serve this model for this group.
    #[must_use]
    pub fn model(&self, group: GroupId, model: &str) -> Option<&Arc<ModelAbilities>> {
        self.groups.get(&group)?.get(model)
    }

    /// The models that at least one usable source offers this group, in order of name.
    pub fn models_of(&self, group: GroupId) -> impl Iterator<Item = &Arc<str>> {
        let models = self.groups.get(&group).into_iter().flat_map(|models| models.iter());
        models.filter(|(_, abilities)| abilities.iter().any(Ability::is_usable)).map(|(model, _)| model)
    }

    /// All pairs of group and model.
    pub fn iter(&self) -> impl Iterator<Item = (GroupId, &Arc<str>, &Arc<ModelAbilities>)> {
        self.groups.iter().flat_map(|(group, models)| models.iter().map(move |(m, a)| (*group, m, a)))
    }

    /// All rows for the read model: by group, model, tier, source.
    pub fn rows(&self) -> impl Iterator<Item = AbilityRow<'_>> {
        self.iter().flat_map(|(group, model, abilities)| {
            abilities.iter().map(move |ability| AbilityRow {
                group,
                model,
                source: ability.source,
                upstream_model: &ability.upstream_model,
                enabled: ability.enabled,
                priority: ability.priority,
                weight: ability.weight,
            })
        })
    }
}

fn remove(groups: &mut BTreeMap<GroupId, Arc<GroupAbilities>>, entity: &SourceEntity) {
    for group in entity.groups() {
        let Some(models) = groups.get_mut(group).map(Arc::make_mut) else { continue };
        for model in entity.models() {
            let Some(abilities) = models.get_mut(model.name.as_str()).map(Arc::make_mut) else { continue };
            abilities.remove(entity.source());
            if abilities.is_empty() {
                models.remove(model.name.as_str());
            }
        }
        if models.is_empty() {
            groups.remove(group);
        }
    }
}

fn insert(groups: &mut BTreeMap<GroupId, Arc<GroupAbilities>>, entity: &SourceEntity) {
    for group in entity.groups() {
        if entity.models().is_empty() {
            continue;
        }
        let models = Arc::make_mut(groups.entry(*group).or_default());
        for model in entity.models() {
            let ability = Ability::of(entity, model);
            match models.get_mut(model.name.as_str()) {
                Some(abilities) => Arc::make_mut(abilities).insert(ability),
                None => {
                    let tiers = vec![Tier { priority: ability.priority, abilities: vec![ability] }];
                    models.insert(model.name.as_str().into(), Arc::new(ModelAbilities { tiers }));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
