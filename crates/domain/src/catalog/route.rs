//! Routes: commands on them, and what a name resolves to.

mod resolve;
#[cfg(test)]
mod tests;

use waybill_event::config::{Change, Changed, ConfigChange, Entity, Route, Target};
use waybill_event::{GroupId, RouteId};

use super::command::Rejection;
use super::entity::{created, deleted, edited, find, find_at, switched};
use super::{Catalog, GroupRef, check};

pub use resolve::{Resolved, ResolvedTarget, Routes};

/// What a new route is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct New {
    /// What clients ask for.
    pub name: String,
    /// What serves it, the best first.
    pub targets: Vec<Target>,
    /// The groups it is for; empty means all.
    pub groups: Vec<GroupRef>,
    /// Whether it is used.
    pub enabled: bool,
}

/// What an edit changes; `None` leaves a field as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Patch {
    /// What clients ask for.
    pub name: Option<String>,
    /// All its targets.
    pub targets: Option<Vec<Target>>,
    /// All groups it is for; empty means all.
    pub groups: Option<Vec<GroupRef>>,
}

/// A wish about a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Make one.
    Create(New),
    /// Change some of its fields.
    Edit {
        /// Which.
        id: RouteId,
        /// The version the caller knows.
        expected: u64,
        /// What changes.
        patch: Patch,
    },
    /// Use it.
    Enable {
        /// Which.
        id: RouteId,
        /// The version the caller knows; without one any will do.
        expected: Option<u64>,
    },
    /// Use it no longer, for now: its name is an ordinary model name then.
    Disable {
        /// Which.
        id: RouteId,
        /// The version the caller knows; without one any will do.
        expected: Option<u64>,
    },
    /// End it. Refused while another route names it.
    Delete {
        /// Which.
        id: RouteId,
        /// The version the caller knows; without one any will do.
        expected: Option<u64>,
    },
}

pub(super) fn decide(catalog: &Catalog, command: &Command) -> Result<Vec<ConfigChange>, Rejection> {
    let changes = match command {
        Command::Create(new) => created(catalog, build(catalog, new)?)?,
        Command::Edit { id, expected, patch } => {
            let old = find_at::<Route>(catalog, *id, Some(*expected))?;
            let new = patched(catalog, old, patch)?;
            if new.name != old.name {
                unused(catalog, old)?;
            }
            edited(old.as_ref(), new)
        }
        Command::Enable { id, expected } => switched::<Route>(catalog, *id, *expected, true)?,
        Command::Disable { id, expected } => switched::<Route>(catalog, *id, *expected, false)?,
        Command::Delete { id, expected } => {
            unused(catalog, find::<Route>(catalog, *id)?)?;
            deleted::<Route>(catalog, *id, *expected)?
        }
    };
    for change in &changes {
        if let ConfigChange::Route(Changed { change, state, .. }) = change
            && *change != Change::Deleted
        {
            resolve::check(catalog, state)?;
        }
    }
    Ok(changes)
}

fn build(catalog: &Catalog, new: &New) -> Result<Route, Rejection> {
    Ok(Route {
        id: RouteId::new(catalog.highest.route + 1),
        name: name(catalog, &new.name, None)?,
        targets: check::targets(&new.targets)?,
        groups: groups(catalog, &new.groups)?,
        enabled: new.enabled,
        version: 1,
    })
}

fn patched(catalog: &Catalog, old: &Route, patch: &Patch) -> Result<Route, Rejection> {
    let mut new = old.clone();
    if let Some(wanted) = &patch.name {
        new.name = name(catalog, wanted, Some(old.id))?;
    }
    if let Some(targets) = &patch.targets {
        new.targets = check::targets(targets)?;
    }
    if let Some(wanted) = &patch.groups {
        new.groups = groups(catalog, wanted)?;
    }
    Ok(new)
}

/// A route's name is a model's name: longer than other names, and as clients write it.
fn name(catalog: &Catalog, name: &str, own: Option<RouteId>) -> Result<String, Rejection> {
    check::model("name", name)?;
    match catalog.routes.values().find(|other| other.name == name && Some(other.id) != own) {
        Some(other) => {
            Err(Rejection::NameTaken { entity: Route::ENTITY, name: name.to_owned(), by: other.id.to_string() })
        }
        None => Ok(name.to_owned()),
    }
}

fn groups(catalog: &Catalog, wanted: &[GroupRef]) -> Result<Vec<GroupId>, Rejection> {
    check::groups(catalog, wanted)
}

fn unused(catalog: &Catalog, route: &Route) -> Result<(), Rejection> {
    let names = |other: &&std::sync::Arc<Route>| {
        other.id != route.id && other.targets.iter().any(|target| target.model == route.name)
    };
    let by: Vec<String> =
        catalog.routes.values().filter(names).map(|r| format!("route {} ({})", r.id, r.name)).collect();
    if by.is_empty() {
        return Ok(());
    }
    Err(Rejection::in_use(Route::ENTITY, route.id.to_string(), by))
}
