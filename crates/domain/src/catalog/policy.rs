//! Commands on policies.

mod numbers;
mod scope;
#[cfg(test)]
mod tests;

use waybill_event::config::{
    Change, Changed, ConfigChange, Entity, Policy, PolicyScope, RequestOverrides, SelectorOverrides,
};

use super::command::Rejection;
use super::{Catalog, diff};

pub use scope::scope;

/// A wish about a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Set what a scope overrides; all of it at once.
    Set {
        /// What it applies to.
        scope: PolicyScope,
        /// The version the caller knows; 0 where the scope has no policy of its own yet.
        expected: u64,
        /// Numbers of the selector fold.
        selector: SelectorOverrides,
        /// Numbers of requests.
        request: RequestOverrides,
    },
}

pub(super) fn decide(catalog: &Catalog, command: &Command) -> Result<Vec<ConfigChange>, Rejection> {
    let Command::Set { scope, expected, selector, request } = command;
    let old = catalog.policies.get(scope);
    let actual = old.map_or(0, |policy| policy.version);
    let new = Policy { scope: scope.clone(), selector: *selector, request: *request, version: actual + 1 };
    if *expected != actual {
        let id = scope.to_string();
        return Err(Rejection::VersionConflict { entity: Policy::ENTITY, id, expected: *expected, actual });
    }
    // What a scope overrides can be taken back also when nobody has that scope any more.
    if !(selector.is_empty() && request.is_empty()) {
        exists(catalog, scope)?;
    }
    numbers::check(&new)?;
    let Some(old) = old else {
        if selector.is_empty() && request.is_empty() {
            return Ok(Vec::new());
        }
        return Ok(vec![ConfigChange::Policy(Changed { change: Change::Created, state: new, changed: Vec::new() })]);
    };
    let changed = diff::changed_fields(old.as_ref(), &new);
    if changed.is_empty() {
        return Ok(Vec::new());
    }
    Ok(vec![ConfigChange::Policy(Changed { change: Change::Edited, state: new, changed })])
}

/// Refuses a scope that nobody has.
///
/// # Errors
/// [`Rejection`] for what doesn't exist, or isn't a provider's name.
pub fn exists(catalog: &Catalog, scope: &PolicyScope) -> Result<(), Rejection> {
    let (entity, id, there) = match scope {
        PolicyScope::Global => return Ok(()),
        PolicyScope::Provider { provider } => {
            return super::check::provider(provider).map(|_| ());
        }
        PolicyScope::Source { source } | PolicyScope::Model { source, .. } => {
            ("source", source.to_string(), catalog.entity(*source).is_some())
        }
        PolicyScope::Group { group } => ("group", group.to_string(), catalog.groups.contains_key(group)),
        PolicyScope::Route { route } => ("route", route.to_string(), catalog.routes.contains_key(route)),
        PolicyScope::Key { key } => ("key", key.to_string(), catalog.keys.contains_key(key)),
    };
    if there {
        return Ok(());
    }
    Err(Rejection::NotFound { entity, id })
}
