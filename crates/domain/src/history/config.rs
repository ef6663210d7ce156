//! The fold of the configuration stream into rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use waybill_event::config::{Change, ConfigChange};
use waybill_event::{Body, ConfigPosition, GroupId, KeyId, Source};

use super::Placed;
use super::ability::AbilityRow;
use super::config_history::ConfigHistoryRow;
use super::entity::{GroupRow, KeyRow, SourceRow};
use super::text::bounded;
use crate::catalog::{SourceEntity, UnknownEdit};

/// Rows of configuration, by their keys.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ConfigRows {
    /// Sources.
    pub sources: BTreeMap<Source, SourceRow>,
    /// Abilities, by group, model and source.
    pub abilities: BTreeMap<(GroupId, String, Source), AbilityRow>,
    /// Groups.
    pub groups: BTreeMap<GroupId, GroupRow>,
    /// Client keys.
    pub keys: BTreeMap<KeyId, KeyRow>,
    /// Edits, by position.
    pub history: BTreeMap<ConfigPosition, ConfigHistoryRow>,
}

/// The keys of the rows that edits touch: what must be loaded before they are folded. The abilities of a touched source
/// are replaced as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TouchedConfig {
    /// Sources.
    pub sources: BTreeSet<Source>,
    /// Groups.
    pub groups: BTreeSet<GroupId>,
    /// Client keys.
    pub keys: BTreeSet<KeyId>,
}

impl TouchedConfig {
    /// Adds the keys of the rows that an edit touches.
    pub fn add(&mut self, placed: &Placed) {
        let Body::Config(change) = &placed.event.draft.body else { return };
        match change.as_ref() {
            ConfigChange::Channel(changed) => {
                self.sources.insert(changed.state.source());
            }
            ConfigChange::Account(changed) => {
                self.sources.insert(changed.state.source());
            }
            ConfigChange::Group(changed) => {
                self.groups.insert(GroupId::new(bounded(changed.state.id.get())));
            }
            ConfigChange::Key(changed) => {
                self.keys.insert(KeyId::new(bounded(changed.state.id.get())));
            }
            ConfigChange::AdminToken(_)
            | ConfigChange::Price(_)
            | ConfigChange::Policy(_)
            | ConfigChange::Route(_)
            | ConfigChange::Intervention(_)
            | ConfigChange::Rules(_) => {}
        }
    }
}

impl ConfigRows {
    /// Folds one edit. An edit folded before changes nothing.
    ///
    /// # Errors
    /// [`UnknownEdit`] at an event that can't be read here: the fold must not go past it.
    pub fn apply(&mut self, placed: &Placed) -> Result<(), UnknownEdit> {
        let position = ConfigPosition(placed.position.sequence);
        let body = &placed.event.draft.body;
        let Body::Config(change) = body else {
            return Err(UnknownEdit { position, kind: body.kind(), version: body.version() });
        };
        match change.as_ref() {
            ConfigChange::Channel(changed) => {
                self.source(placed, changed.change, &Arc::new(changed.state.clone()).into());
            }
            ConfigChange::Account(changed) => {
                self.source(placed, changed.change, &Arc::new(changed.state.clone()).into());
            }
            ConfigChange::Group(changed) => {
                let id = GroupId::new(bounded(changed.state.id.get()));
                let before = self.groups.get(&id);
                if before.is_none_or(|row| row.position < position) {
                    let created_at = before.map_or_else(|| placed.time(), |row| row.created_at);
                    self.groups.insert(id, GroupRow::new(placed, changed, created_at));
                }
            }
            ConfigChange::Key(changed) => {
                let id = KeyId::new(bounded(changed.state.id.get()));
                let before = self.keys.get(&id);
                if before.is_none_or(|row| row.position < position) {
                    let created_at = before.map_or_else(|| placed.time(), |row| row.created_at);
                    self.keys.insert(id, KeyRow::new(placed, changed, created_at));
                }
            }
            ConfigChange::AdminToken(_)
            | ConfigChange::Price(_)
            | ConfigChange::Policy(_)
            | ConfigChange::Route(_)
            | ConfigChange::Intervention(_)
            | ConfigChange::Rules(_) => {}
        }
        self.history.entry(position).or_insert_with(|| ConfigHistoryRow::new(placed, change));
        Ok(())
    }

    fn source(&mut self, placed: &Placed, change: Change, entity: &SourceEntity) {
        let (source, position) = (entity.source(), ConfigPosition(placed.position.sequence));
        let before = self.sources.get(&source);
        if before.is_some_and(|row| row.position >= position) {
            return;
        }
        let created_at = before.map_or_else(|| placed.time(), |row| row.created_at);
        self.sources.insert(source, SourceRow::new(placed, change, entity, created_at));
        self.abilities.retain(|_, ability| ability.source != source);
        for row in AbilityRow::all(placed, change, entity) {
            self.abilities.insert((row.group_id, row.model.clone(), source), row);
        }
    }
}
