//! What decisions on all kinds of entities have in common: finding, versions, names, and making the change.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use serde::Serialize;
use waybill_event::config::{Account, AdminToken, Change, Changed, Channel, ConfigChange, Entity, Group, Key, Route};
use waybill_event::{AccountId, AdminTokenId, ChannelId, GroupId, KeyId, RouteId};

use super::command::Rejection;
use super::{Catalog, diff};

/// An entity that has an id, a name and a switch.
pub(super) trait Named: Entity + Clone + Serialize + PartialEq {
    type Id: Ord + Copy + Display;
    /// How many may live, and the plural that names them in a refusal.
    const LIMIT: (usize, &'static str);

    fn all(catalog: &Catalog) -> &BTreeMap<Self::Id, Arc<Self>>;
    fn id(&self) -> Self::Id;
    fn name(&self) -> &str;
    fn enabled_mut(&mut self) -> &mut bool;
    fn version_mut(&mut self) -> &mut u64;
    fn wrap(changed: Changed<Self>) -> ConfigChange;
}

macro_rules! named {
    ($entity:ident, $id:ident, $map:ident, $limit:expr, $plural:expr) => {
        impl Named for $entity {
            type Id = $id;
            const LIMIT: (usize, &'static str) = ($limit, $plural);
            fn all(catalog: &Catalog) -> &BTreeMap<$id, Arc<Self>> {
                &catalog.$map
            }
            fn id(&self) -> $id {
                self.id
            }
            fn name(&self) -> &str {
                &self.name
            }
            fn enabled_mut(&mut self) -> &mut bool {
                &mut self.enabled
            }
            fn version_mut(&mut self) -> &mut u64 {
                &mut self.version
            }
            fn wrap(changed: Changed<Self>) -> ConfigChange {
                ConfigChange::$entity(changed)
            }
        }
    };
}

// The limits keep a proxy's memory and the time of a cold start bounded.
named!(Channel, ChannelId, channels, 10_000, "channels");
named!(Account, AccountId, accounts, 10_000, "accounts");
named!(Group, GroupId, groups, 1_000, "groups");
named!(Key, KeyId, keys, 100_000, "client keys");
named!(AdminToken, AdminTokenId, admin_tokens, 1_000, "admin tokens");
named!(Route, RouteId, routes, 10_000, "routes");

pub(super) fn find<T: Named>(catalog: &Catalog, id: T::Id) -> Result<&Arc<T>, Rejection> {
    T::all(catalog).get(&id).ok_or_else(|| Rejection::NotFound { entity: T::ENTITY, id: id.to_string() })
}

/// Finds the entity at the version the caller knows; without one any version will do.
pub(super) fn find_at<T: Named>(catalog: &Catalog, id: T::Id, expected: Option<u64>) -> Result<&Arc<T>, Rejection> {
    let found = find::<T>(catalog, id)?;
    match expected {
        Some(expected) if expected != found.version() => {
            Err(Rejection::VersionConflict { entity: T::ENTITY, id: id.to_string(), expected, actual: found.version() })
        }
        Some(_) | None => Ok(found),
    }
}

/// The trimmed name, if it is well formed and no other living entity of the kind has it.
pub(super) fn free_name<T: Named>(catalog: &Catalog, name: &str, own: Option<T::Id>) -> Result<String, Rejection> {
    let name = super::check::name("name", name)?;
    match T::all(catalog).values().find(|other| other.name() == name && Some(other.id()) != own) {
        Some(other) => Err(Rejection::NameTaken { entity: T::ENTITY, name, by: other.id().to_string() }),
        None => Ok(name),
    }
}

/// The creation of an entity whose state is already complete, at version 1.
pub(super) fn created<T: Named>(catalog: &Catalog, state: T) -> Result<Vec<ConfigChange>, Rejection> {
    let (limit, what) = T::LIMIT;
    if T::all(catalog).len() >= limit {
        return Err(Rejection::LimitReached { what, limit });
    }
    Ok(vec![T::wrap(Changed { change: Change::Created, state, changed: Vec::new() })])
}

/// The edit that makes `new` of `old`; nothing when they are equal. `new` still carries the old version.
pub(super) fn edited<T: Named>(old: &T, mut new: T) -> Vec<ConfigChange> {
    let changed = diff::changed_fields(old, &new);
    if changed.is_empty() {
        return Vec::new();
    }
    *new.version_mut() = old.version() + 1;
    vec![T::wrap(Changed { change: Change::Edited, state: new, changed })]
}

/// Switches the entity on or off; nothing when it already is.
pub(super) fn switched<T: Named>(
    catalog: &Catalog,
    id: T::Id,
    expected: Option<u64>,
    on: bool,
) -> Result<Vec<ConfigChange>, Rejection> {
    let mut state = T::clone(find_at::<T>(catalog, id, expected)?);
    if *state.enabled_mut() == on {
        return Ok(Vec::new());
    }
    *state.enabled_mut() = on;
    *state.version_mut() += 1;
    let change = if on { Change::Enabled } else { Change::Disabled };
    Ok(vec![T::wrap(Changed { change, state, changed: vec!["enabled".to_owned()] })])
}

/// Ends the entity.
pub(super) fn deleted<T: Named>(
    catalog: &Catalog,
    id: T::Id,
    expected: Option<u64>,
) -> Result<Vec<ConfigChange>, Rejection> {
    let mut state = T::clone(find_at::<T>(catalog, id, expected)?);
    *state.version_mut() += 1;
    Ok(vec![T::wrap(Changed { change: Change::Deleted, state, changed: Vec::new() })])
}
