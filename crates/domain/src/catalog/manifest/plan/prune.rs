//! What a manifest that prunes takes away: everything it doesn't name.

use std::collections::BTreeMap;
use std::sync::Arc;

use waybill_event::config::{PolicyScope, RequestOverrides, SelectorOverrides};

use super::{Manifest, Planner};
use crate::catalog::{Command, Rejection, account, channel, group, key, policy, price, route};

impl Planner<'_> {
    /// Deletes what isn't named; groups last, when nothing refers to them any more.
    pub(super) fn prune(&mut self, manifest: &Manifest, set: &[PolicyScope]) -> Result<(), Rejection> {
        let names = |names: Vec<&str>| names.into_iter().map(|name| name.trim().to_owned()).collect::<Vec<_>>();
        let keys = names(manifest.keys.iter().map(|entry| entry.name.as_str()).collect());
        let channels = names(manifest.channels.iter().map(|entry| entry.name.as_str()).collect());
        let routes = names(manifest.routes.iter().map(|entry| entry.name.as_str()).collect());
        let groups = names(manifest.groups.iter().map(|entry| entry.name.as_str()).collect());
        for scope in self.scratch.policies.keys().filter(|scope| !set.contains(scope)).cloned().collect::<Vec<_>>() {
            let expected = self.scratch.policies.get(&scope).map_or(0, |policy| policy.version);
            let (selector, request) = (SelectorOverrides::default(), RequestOverrides::default());
            self.run(&Command::Policy(policy::Command::Set { scope, expected, selector, request }))?;
        }
        for id in unnamed(&self.scratch.keys, &keys, |key| &key.name) {
            self.run(&Command::Key(key::Command::Revoke { id, expected: None }))?;
        }
        for id in unnamed(&self.scratch.channels, &channels, |channel| &channel.name) {
            self.run(&Command::Channel(channel::Command::Delete { id, expected: None }))?;
        }
        if let Some(entries) = &manifest.accounts {
            let accounts = names(entries.iter().map(|entry| entry.name.as_str()).collect());
            for id in unnamed(&self.scratch.accounts, &accounts, |account| &account.name) {
                self.run(&Command::Account(account::Command::Delete { id, expected: None }))?;
            }
        }
        if let Some(entries) = &manifest.prices {
            let named = |model: &String| entries.iter().any(|entry| entry.model.trim() == model);
            for model in self.scratch.prices.keys().filter(|model| !named(model)).cloned().collect::<Vec<_>>() {
                self.run(&Command::Price(price::Command::Clear { model }))?;
            }
        }
        self.prune_routes(&routes)?;
        for id in unnamed(&self.scratch.groups, &groups, |group| &group.name) {
            self.run(&Command::Group(group::Command::Delete { id, expected: None }))?;
        }
        Ok(())
    }

    /// A route goes after those that name it.
    fn prune_routes(&mut self, named: &[String]) -> Result<(), Rejection> {
        loop {
            let left = unnamed(&self.scratch.routes, named, |route| &route.name);
            let before = left.len();
            let mut refused = None;
            for id in left {
                match self.run(&Command::Route(route::Command::Delete { id, expected: None })) {
                    Err(rejection @ Rejection::InUse { .. }) => refused = Some(rejection),
                    result => result?,
                }
            }
            match refused {
                None => return Ok(()),
                // Those that are left are named by routes that stay.
                Some(rejection) if unnamed(&self.scratch.routes, named, |route| &route.name).len() == before => {
                    return Err(rejection);
                }
                Some(_) => {}
            }
        }
    }
}

fn unnamed<K: Copy + Ord, T>(all: &BTreeMap<K, Arc<T>>, named: &[String], name: impl Fn(&T) -> &String) -> Vec<K> {
    all.iter().filter(|(_, entity)| !named.contains(name(entity))).map(|(id, _)| *id).collect()
}
