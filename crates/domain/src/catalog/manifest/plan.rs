//! The steps from the catalogue to the manifest, each decided on a scratch copy in which the earlier ones are folded.

mod accounts;
mod prune;

use waybill_event::ConfigPosition;
use waybill_event::config::{ChannelModel, ConfigChange, PolicyScope, Target};

use super::{ChannelEntry, GroupEntry, KeyEntry, MAX_CHANGES, Manifest, PolicyEntry, RouteEntry, Supplies};
use crate::catalog::{Catalog, Command, Rejection, channel, decide, diff, group, key, policy, route};

/// One change with what it means to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The change.
    pub change: ConfigChange,
    /// What it does.
    pub diff: diff::Diff,
}

/// All changes, in their order. Empty when everything is as the manifest says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
}

struct Planner<'a> {
    scratch: Catalog,
    supplies: &'a Supplies,
    steps: Vec<Step>,
}

/// Decides what a manifest asks for.
///
/// # Errors
/// [`Rejection`]; the field of an invalid entry begins with the entry (`channels/2/base_url`).
pub fn plan(catalog: &Catalog, manifest: &Manifest, supplies: &Supplies) -> Result<Plan, Rejection> {
    if let Some(edit) = &catalog.blocked_by {
        return Err(Rejection::Blocked(edit.clone()));
    }
    unique("groups", manifest.groups.iter().map(|entry| entry.name.as_str()))?;
    unique("channels", manifest.channels.iter().map(|entry| entry.name.as_str()))?;
    let accounts = manifest.accounts.as_deref().unwrap_or_default();
    let prices = manifest.prices.as_deref().unwrap_or_default();
    unique("accounts", accounts.iter().map(|entry| entry.name.as_str()))?;
    unique("prices", prices.iter().map(|entry| entry.model.as_str()))?;
    unique("keys", manifest.keys.iter().map(|entry| entry.name.as_str()))?;
    unique("routes", manifest.routes.iter().map(|entry| entry.name.as_str()))?;
    let mut planner = Planner { scratch: catalog.clone(), supplies, steps: Vec::new() };
    for (i, entry) in manifest.groups.iter().enumerate() {
        within("groups", i, planner.group(entry))?;
    }
    for (i, entry) in manifest.channels.iter().enumerate() {
        within("channels", i, planner.channel(entry))?;
    }
    for (i, entry) in accounts.iter().enumerate() {
        within("accounts", i, planner.account(entry))?;
    }
    for (i, entry) in prices.iter().enumerate() {
        within("prices", i, planner.price(entry))?;
    }
    for (i, entry) in manifest.keys.iter().enumerate() {
        within("keys", i, planner.key(entry))?;
    }
    for (i, entry) in manifest.routes.iter().enumerate() {
        within("routes", i, planner.route(entry))?;
    }
    let mut set = Vec::with_capacity(manifest.policies.len());
    for (i, entry) in manifest.policies.iter().enumerate() {
        let scope = within("policies", i, policy::scope(&planner.scratch, &entry.scope))?;
        if set.contains(&scope) {
            return Err(Rejection::invalid(format!("policies/{i}/scope"), format!("{scope} is named twice")));
        }
        within("policies", i, planner.policy(scope.clone(), entry))?;
        set.push(scope);
    }
    if manifest.prune {
        planner.prune(manifest, &set)?;
    }
    Ok(Plan { steps: planner.steps })
}

fn unique<'a>(list: &str, names: impl Iterator<Item = &'a str>) -> Result<(), Rejection> {
    let mut seen = std::collections::HashSet::new();
    for (i, name) in names.enumerate() {
        if !seen.insert(name.trim()) {
            let field = if list == "prices" { "model" } else { "name" };
            return Err(Rejection::invalid(format!("{list}/{i}/{field}"), format!("{name:?} is named twice")));
        }
    }
    Ok(())
}

/// Says in which entry of the manifest a field is wrong.
fn within<T>(list: &str, i: usize, result: Result<T, Rejection>) -> Result<T, Rejection> {
    result.map_err(|rejection| match rejection {
        Rejection::Invalid { field, message } => Rejection::Invalid { field: format!("{list}/{i}/{field}"), message },
        other => other,
    })
}

impl Planner<'_> {
    fn run(&mut self, command: &Command) -> Result<(), Rejection> {
        for change in decide(&self.scratch, command)? {
            if self.steps.len() >= MAX_CHANGES {
                return Err(Rejection::LimitReached { what: "changes in one manifest", limit: MAX_CHANGES });
            }
            let diff = diff::of(&self.scratch, &change);
            self.scratch.adopt(&change, ConfigPosition(self.scratch.position.0 + 1));
            self.steps.push(Step { change, diff });
        }
        Ok(())
    }

    fn group(&mut self, entry: &GroupEntry) -> Result<(), Rejection> {
        let Some(old) = self.scratch.group_named(entry.name.trim()) else {
            let enabled = entry.enabled.unwrap_or(true);
            return self.run(&Command::Group(group::Command::Create { name: entry.name.clone(), enabled }));
        };
        let (id, expected) = (old.id, None);
        match entry.enabled {
            Some(true) => self.run(&Command::Group(group::Command::Enable { id, expected })),
            Some(false) => self.run(&Command::Group(group::Command::Disable { id, expected })),
            None => Ok(()),
        }
    }

    fn channel(&mut self, entry: &ChannelEntry) -> Result<(), Rejection> {
        let name = entry.name.trim();
        let credential = self.supplies.credentials.get(name).cloned();
        let models = entry.models.clone().map(|m| m.into_iter().map(ChannelModel::from).collect::<Vec<_>>());
        let Some(old) = self.scratch.channel_named(name) else {
            let base_url = entry.base_url.clone();
            let base_url = base_url.ok_or_else(|| Rejection::invalid("base_url", "is needed for a new channel"))?;
            let default = channel::New::at(name, base_url);
            let new = channel::New {
                provider: entry.provider.clone().unwrap_or(default.provider),
                credential,
                models: models.unwrap_or(default.models),
                groups: entry.groups.clone().unwrap_or(default.groups),
                priority: entry.priority.unwrap_or(default.priority),
                weight: entry.weight.unwrap_or(default.weight),
                limits: entry.limits.unwrap_or(default.limits),
                multiplier_milli: entry.multiplier_milli.unwrap_or(default.multiplier_milli),
                allow_private: entry.allow_private.unwrap_or(default.allow_private),
                probe: entry.probe.clone().unwrap_or(default.probe),
                enabled: entry.enabled.unwrap_or(default.enabled),
                ..default
            };
            return self.run(&Command::Channel(channel::Command::Create(Box::new(new))));
        };
        let (id, expected) = (old.id, old.version);
        let patch = channel::Patch {
            name: None,
            provider: entry.provider.clone(),
            base_url: entry.base_url.clone(),
            credential: credential.map(Some),
            models,
            groups: entry.groups.clone(),
            priority: entry.priority,
            weight: entry.weight,
            limits: entry.limits,
            multiplier_milli: entry.multiplier_milli,
            allow_private: entry.allow_private,
            probe: entry.probe.clone(),
        };
        self.run(&Command::Channel(channel::Command::Edit { id, expected, patch: Box::new(patch) }))?;
        match entry.enabled {
            Some(true) => self.run(&Command::Channel(channel::Command::Enable { id, expected: None })),
            Some(false) => self.run(&Command::Channel(channel::Command::Disable { id, expected: None })),
            None => Ok(()),
        }
    }

    fn key(&mut self, entry: &KeyEntry) -> Result<(), Rejection> {
        let name = entry.name.trim();
        let Some(old) = self.scratch.key_named(name) else {
            let group = entry.group.clone().ok_or_else(|| Rejection::invalid("group", "is needed for a new key"))?;
            let token = self.supplies.tokens.get(name);
            let token = token.ok_or_else(|| Rejection::invalid("name", "no token was made for this new key"))?;
            let new = key::New {
                name: name.to_owned(),
                group,
                prefix: token.prefix.clone(),
                hash: token.hash.clone(),
                models: entry.models.clone().unwrap_or_default(),
                expires_at: entry.expires_at,
                limits: entry.limits.unwrap_or_default(),
                user_limits: entry.user_limits.unwrap_or_default(),
                enabled: entry.enabled.unwrap_or(true),
            };
            return self.run(&Command::Key(key::Command::Issue(Box::new(new))));
        };
        let (id, expected) = (old.id, old.version);
        let patch = key::Patch {
            name: None,
            group: entry.group.clone(),
            models: entry.models.clone(),
            expires_at: entry.expires_at.map(Some),
            limits: entry.limits,
            user_limits: entry.user_limits,
        };
        self.run(&Command::Key(key::Command::Edit { id, expected, patch }))?;
        match entry.enabled {
            Some(true) => self.run(&Command::Key(key::Command::Enable { id, expected: None })),
            Some(false) => self.run(&Command::Key(key::Command::Disable { id, expected: None })),
            None => Ok(()),
        }
    }

    fn route(&mut self, entry: &RouteEntry) -> Result<(), Rejection> {
        let name = entry.name.trim();
        let targets = entry.targets.clone().map(|list| list.into_iter().map(Target::from).collect::<Vec<_>>());
        let Some(old) = self.scratch.route_named(name) else {
            let targets = targets.ok_or_else(|| Rejection::invalid("targets", "are needed for a new route"))?;
            let groups = entry.groups.clone().unwrap_or_default();
            let new = route::New { name: name.to_owned(), targets, groups, enabled: entry.enabled.unwrap_or(true) };
            return self.run(&Command::Route(route::Command::Create(new)));
        };
        let (id, expected) = (old.id, old.version);
        let patch = route::Patch { name: None, targets, groups: entry.groups.clone() };
        self.run(&Command::Route(route::Command::Edit { id, expected, patch }))?;
        match entry.enabled {
            Some(true) => self.run(&Command::Route(route::Command::Enable { id, expected: None })),
            Some(false) => self.run(&Command::Route(route::Command::Disable { id, expected: None })),
            None => Ok(()),
        }
    }

    fn policy(&mut self, scope: PolicyScope, entry: &PolicyEntry) -> Result<(), Rejection> {
        let expected = self.scratch.policies.get(&scope).map_or(0, |policy| policy.version);
        let (selector, request) = (entry.selector, entry.request);
        self.run(&Command::Policy(policy::Command::Set { scope, expected, selector, request }))
    }
}
