//! Accounts and prices of a manifest.

use waybill_event::NanoUsd;
use waybill_event::config::{ChannelModel, SessionWindow};

use super::Planner;
use crate::catalog::manifest::{AccountEntry, PriceEntry};
use crate::catalog::{Command, Rejection, account, price};

impl Planner<'_> {
    pub(super) fn account(&mut self, entry: &AccountEntry) -> Result<(), Rejection> {
        let name = entry.name.trim();
        let credential = self.supplies.logins.get(name).cloned();
        let models = entry.models.clone().map(|m| m.into_iter().map(ChannelModel::from).collect::<Vec<_>>());
        let window = entry.session_window.map(SessionWindow::from);
        // No dollars are no window, as on the command line.
        let window = window.map(|window| Some(window).filter(|window| window.limit != NanoUsd(0)));
        let Some(old) = self.scratch.account_named(name) else {
            let base_url = entry.base_url.clone();
            let base_url = base_url.ok_or_else(|| Rejection::invalid("base_url", "is needed for a new account"))?;
            let default = account::New::at(name, entry.platform.unwrap_or_default(), base_url);
            let new = account::New {
                credential,
                models: models.unwrap_or(default.models),
                groups: entry.groups.clone().unwrap_or(default.groups),
                priority: entry.priority.unwrap_or(default.priority),
                weight: entry.weight.unwrap_or(default.weight),
                limits: entry.limits.unwrap_or(default.limits),
                session_window: window.unwrap_or(default.session_window),
                allow_private: entry.allow_private.unwrap_or(default.allow_private),
                probe: entry.probe.clone().unwrap_or(default.probe),
                enabled: entry.enabled.unwrap_or(default.enabled),
                ..default
            };
            return self.run(&Command::Account(account::Command::Create(Box::new(new))));
        };
        if entry.platform.is_some_and(|platform| platform != old.platform) {
            let message = "an account stays one of its platform: name another account, or delete this one first";
            return Err(Rejection::invalid("platform", message));
        }
        let (id, expected) = (old.id, old.version);
        let patch = account::Patch {
            name: None,
            base_url: entry.base_url.clone(),
            credential: credential.map(Some),
            models,
            groups: entry.groups.clone(),
            priority: entry.priority,
            weight: entry.weight,
            limits: entry.limits,
            session_window: window,
            allow_private: entry.allow_private,
            probe: entry.probe.clone(),
        };
        self.run(&Command::Account(account::Command::Edit { id, expected, patch: Box::new(patch) }))?;
        match entry.enabled {
            Some(true) => self.run(&Command::Account(account::Command::Enable { id, expected: None })),
            Some(false) => self.run(&Command::Account(account::Command::Disable { id, expected: None })),
            None => Ok(()),
        }
    }

    pub(super) fn price(&mut self, entry: &PriceEntry) -> Result<(), Rejection> {
        let (model, input, output) = (entry.model.trim().to_owned(), entry.input_usd.0, entry.output_usd.0);
        self.run(&Command::Price(price::Command::Set { model, input, output }))
    }
}
