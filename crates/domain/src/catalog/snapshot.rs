//! What a replica answers from: an immutable view of the catalogue at a position, with its indexes. A clone shares
//! everything; folding an edit into the clone copies only what the edit touches.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use foldhash::HashSet;
use waybill_event::config::{Group, Key, StoredHash};
use waybill_event::selection::SkipReason;
use waybill_event::{ConfigPosition, Event, GroupId, KeyId, LogTime, Source};

use super::route::Routes;
use crate::verdict::Rulebook;

use super::{Ability, Applied, Catalog, Index, Replaced, ReplacedSource, Resolved, SourceEntity, UnknownEdit, apply};

/// A key that is found by its hash.
#[derive(Debug, Clone)]
struct ByHash(Arc<Key>);

impl Borrow<StoredHash> for ByHash {
    fn borrow(&self) -> &StoredHash {
        &self.0.hash
    }
}
impl PartialEq for ByHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.hash == other.0.hash
    }
}
impl Eq for ByHash {}
impl Hash for ByHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash.hash(state);
    }
}

/// An immutable view of the catalogue.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    catalog: Catalog,
    index: Index,
    keys: Arc<HashSet<ByHash>>,
    routes: Arc<Routes>,
    rulebook: Rulebook,
    /// How many models of sources declare what they can do.
    declaring: usize,
}

/// A key that may be used now, with its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorised {
    /// The key.
    pub key: Arc<Key>,
    /// Its group.
    pub group: Arc<Group>,
}

/// Why a key may not be used. Unknown means no.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// There is no such key, or no longer.
    #[error("the key doesn't exist")]
    UnknownKey,
    /// An administrator disabled it.
    #[error("the key is disabled")]
    KeyDisabled,
    /// Its time is over.
    #[error("the key expired at {at}")]
    KeyExpired {
        /// Since when.
        at: LogTime,
    },
    /// Its group doesn't exist.
    #[error("the key's group doesn't exist")]
    UnknownGroup,
    /// Its group is disabled.
    #[error("the key's group is disabled")]
    GroupDisabled,
    /// The key may not use the model.
    #[error("the key may not use the model {model:?}")]
    ModelNotAllowed {
        /// The model the client asked for.
        model: String,
    },
}

impl Snapshot {
    /// The view of a whole catalogue.
    #[must_use]
    pub fn of(catalog: Catalog) -> Self {
        let index = Index::of(catalog.entities());
        let keys = catalog.keys.values().map(|key| ByHash(Arc::clone(key))).collect();
        let routes = Arc::new(Routes::of(&catalog));
        let declaring = catalog.entities().map(|entity| declaring(&entity)).sum();
        let rulebook = catalog.rulebook();
        Self { catalog, index, keys: Arc::new(keys), routes, rulebook, declaring }
    }

    /// Position in `WB_CONFIG` that it stands at.
    #[must_use]
    pub fn position(&self) -> ConfigPosition {
        self.catalog.position
    }

    /// The catalogue.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The ability index.
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The rules of verdicts in force.
    #[must_use]
    pub fn rulebook(&self) -> &Rulebook {
        &self.rulebook
    }

    /// The edit at which progress stopped, if it did.
    #[must_use]
    pub fn blocked_by(&self) -> Option<&UnknownEdit> {
        self.catalog.blocked_by.as_ref()
    }

    /// Folds one event into this view. To swap atomically, clone, apply, and publish the clone.
    pub fn apply(&mut self, event: &Event, at: ConfigPosition) -> Applied {
        let applied = apply(&mut self.catalog, event, at);
        match &applied {
            Applied::Source(ReplacedSource { old, new }) => {
                self.index.update(old.as_ref(), new.as_ref());
                self.declaring += new.as_ref().map_or(0, declaring);
                self.declaring -= old.as_ref().map_or(0, declaring);
            }
            Applied::Key(Replaced { old, new }) => {
                let keys = Arc::make_mut(&mut self.keys);
                if let Some(old) = old {
                    keys.remove(&old.hash);
                }
                if let Some(new) = new {
                    keys.insert(ByHash(Arc::clone(new)));
                }
            }
            Applied::Route(_) => self.routes = Arc::new(Routes::of(&self.catalog)),
            Applied::Rules(_) => self.rulebook = self.catalog.rulebook(),
            Applied::Known
            | Applied::Blocked
            | Applied::Group(_)
            | Applied::Price(_)
            | Applied::AdminToken(_)
            | Applied::Policy(_)
            | Applied::Intervention(_) => {}
        }
        applied
    }

    /// Stops progress at a message that can't be read as an event.
    pub fn block(&mut self, edit: UnknownEdit) {
        self.catalog.block(edit);
    }

    /// The living key with this hash. Whether it may be used is [`Snapshot::authorise`]'s to say.
    #[must_use]
    pub fn key_by_hash(&self, hash: &StoredHash) -> Option<&Arc<Key>> {
        self.keys.get(hash).map(|found| &found.0)
    }

    /// Whether a key may be used now for a model that goes by any of these names (the client's, the resolved one; none
    /// to ask for the key alone). The first question of a request and the question before every further attempt.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn authorise(&self, key: KeyId, model_names: &[&str], now: LogTime) -> Result<Authorised, Denied> {
        let key = self.catalog.keys.get(&key).ok_or(Denied::UnknownKey)?;
        if !key.enabled {
            return Err(Denied::KeyDisabled);
        }
        if let Some(at) = key.expires_at
            && now >= at
        {
            return Err(Denied::KeyExpired { at });
        }
        let group = self.catalog.groups.get(&key.group).ok_or(Denied::UnknownGroup)?;
        if !group.enabled {
            return Err(Denied::GroupDisabled);
        }
        let open = key.models.is_empty() || model_names.is_empty();
        if !open && !key.models.iter().any(|allowed| model_names.contains(&allowed.as_str())) {
            let model = model_names.first().copied().unwrap_or_default().to_owned();
            return Err(Denied::ModelNotAllowed { model });
        }
        Ok(Authorised { key: Arc::clone(key), group: Arc::clone(group) })
    }

    /// Whether configuration lets a source serve the model for the authorised key's group, as of this view.
    ///
    /// # Errors
    /// Why not.
    pub fn may_serve(&self, authorised: &Authorised, model: &str, source: Source) -> Result<&Ability, SkipReason> {
        let abilities = self.index.model(authorised.group.id, model).ok_or(SkipReason::NotAuthorised)?;
        let ability = abilities.of(source).ok_or(SkipReason::NotAuthorised)?;
        if !ability.enabled {
            return Err(SkipReason::Disabled);
        }
        if !ability.has_credential() {
            return Err(SkipReason::NoCredential);
        }
        Ok(ability)
    }

    /// Whether anybody declares what it can do; else nobody has to know what a request needs.
    #[must_use]
    pub fn declares(&self) -> bool {
        self.declaring > 0 || self.routes.declares()
    }

    /// What a name that a client asks for resolves to, for a group's keys.
    #[must_use]
    pub fn resolve(&self, group: GroupId, name: &str) -> Resolved {
        self.routes.resolve(group, name)
    }

    /// The names that the authorised key can use now: models, and routes with a target that somebody offers; in order of
    /// name.
    pub fn models_for<'a>(&'a self, authorised: &'a Authorised) -> impl Iterator<Item = &'a str> {
        let (allowed, group) = (&authorised.key.models, authorised.group.id);
        let offered: BTreeSet<&str> = self.index.models_of(group).map(AsRef::as_ref).collect();
        let mut names: Vec<&str> = offered.iter().copied().collect();
        names.retain(|model| allowed.is_empty() || allowed.iter().any(|name| name == model));
        for (name, resolved) in self.routes.of_group(group) {
            let may = |model: &str| allowed.is_empty() || allowed.iter().any(|a| a == name || a == model);
            let served = resolved.targets.iter().any(|target| offered.contains(&*target.model) && may(&target.model));
            // A name that is a route is what the route makes of it.
            names.retain(|other| *other != name);
            if served {
                names.push(name);
            }
        }
        names.sort_unstable();
        names.into_iter()
    }
}

fn declaring(entity: &SourceEntity) -> usize {
    entity.models().iter().filter(|model| !model.capabilities.is_empty()).count()
}

#[cfg(test)]
mod tests;
