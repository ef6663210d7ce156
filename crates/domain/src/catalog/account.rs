//! Commands on accounts.

use waybill_event::AccountId;
use waybill_event::config::{
    Account, ChannelModel, ConfigChange, CredentialRef, Limits, Platform, ProbeSettings, SessionWindow,
};

use super::command::Rejection;
use super::entity::{created, deleted, edited, find_at, free_name, switched};
use super::{Catalog, GroupRef, check};

/// What a new account is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct New {
    /// Its name.
    pub name: String,
    /// The service it is a login of.
    pub platform: Platform,
    /// Where that is.
    pub base_url: String,
    /// Its credential, already sealed.
    pub credential: Option<CredentialRef>,
    /// The models it offers.
    pub models: Vec<ChannelModel>,
    /// The groups it serves.
    pub groups: Vec<GroupRef>,
    /// Its tier.
    pub priority: i32,
    /// Its share within the tier.
    pub weight: u32,
    /// Its limits.
    pub limits: Limits,
    /// What one session may spend on it.
    pub session_window: Option<SessionWindow>,
    /// Whether addresses of private networks are allowed.
    pub allow_private: bool,
    /// How upkeep asks it of its own accord.
    pub probe: ProbeSettings,
    /// Whether it may serve.
    pub enabled: bool,
}

impl New {
    /// An account with the defaults: serves no model and no group yet, priority 0, weight 1, no limits, enabled.
    #[must_use]
    pub fn at(name: impl Into<String>, platform: Platform, base_url: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            platform,
            base_url: base_url.into(),
            credential: None,
            models: Vec::new(),
            groups: Vec::new(),
            priority: 0,
            weight: 1,
            limits: Limits::default(),
            session_window: None,
            allow_private: false,
            probe: ProbeSettings::default(),
            enabled: true,
        }
    }
}

/// What an edit changes; `None` leaves a field as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Patch {
    /// Its name.
    pub name: Option<String>,
    /// Where its service is.
    pub base_url: Option<String>,
    /// Its credential, already sealed; `Some(None)` takes it away.
    pub credential: Option<Option<CredentialRef>>,
    /// All models it offers.
    pub models: Option<Vec<ChannelModel>>,
    /// All groups it serves.
    pub groups: Option<Vec<GroupRef>>,
    /// Its tier.
    pub priority: Option<i32>,
    /// Its share within the tier.
    pub weight: Option<u32>,
    /// All its limits.
    pub limits: Option<Limits>,
    /// What one session may spend on it; `Some(None)` is unlimited.
    pub session_window: Option<Option<SessionWindow>>,
    /// Whether addresses of private networks are allowed.
    pub allow_private: Option<bool>,
    /// All of how upkeep asks it of its own accord.
    pub probe: Option<ProbeSettings>,
}

/// A wish about an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Make one. Its id will be [`Catalog::next_account_id`].
    Create(Box<New>),
    /// Change some of its fields.
    Edit {
        /// Which.
        id: AccountId,
        /// The version the caller knows.
        expected: u64,
        /// What changes.
        patch: Box<Patch>,
    },
    /// Let it serve.
    Enable {
        /// Which.
        id: AccountId,
        /// The version the caller knows; without one any will do.
        expected: Option<u64>,
    },
    /// Let it no longer serve.
    Disable {
        /// Which.
        id: AccountId,
        /// The version the caller knows; without one any will do.
        expected: Option<u64>,
    },
    /// End it.
    Delete {
        /// Which.
        id: AccountId,
        /// The version the caller knows; without one any will do.
        expected: Option<u64>,
    },
}

pub(super) fn decide(catalog: &Catalog, command: &Command) -> Result<Vec<ConfigChange>, Rejection> {
    match command {
        Command::Create(new) => created(catalog, build(catalog, new)?),
        Command::Edit { id, expected, patch } => {
            let old = find_at::<Account>(catalog, *id, Some(*expected))?;
            let new = patched(catalog, old, patch)?;
            Ok(edited(old.as_ref(), new))
        }
        Command::Enable { id, expected } => switched::<Account>(catalog, *id, *expected, true),
        Command::Disable { id, expected } => switched::<Account>(catalog, *id, *expected, false),
        Command::Delete { id, expected } => deleted::<Account>(catalog, *id, *expected),
    }
}

fn build(catalog: &Catalog, new: &New) -> Result<Account, Rejection> {
    Ok(Account {
        id: catalog.next_account_id(),
        name: free_name::<Account>(catalog, &new.name, None)?,
        platform: new.platform,
        base_url: check::base_url(&new.base_url)?,
        base_url_revision: 1,
        credential: new.credential.clone(),
        models: check::channel_models(&new.models)?,
        groups: check::groups(catalog, &new.groups)?,
        priority: check::priority(new.priority)?,
        weight: check::weight(new.weight)?,
        limits: check::limits("limits", new.limits)?,
        session_window: new.session_window.map(check::session_window).transpose()?,
        allow_private: new.allow_private,
        probe: check::probe(&new.probe, &new.models)?,
        enabled: new.enabled,
        version: 1,
    })
}

fn patched(catalog: &Catalog, old: &Account, patch: &Patch) -> Result<Account, Rejection> {
    let mut new = old.clone();
    if let Some(name) = &patch.name {
        new.name = free_name::<Account>(catalog, name, Some(old.id))?;
    }
    if let Some(base_url) = &patch.base_url {
        new.base_url = check::base_url(base_url)?;
        if new.base_url != old.base_url {
            new.base_url_revision = old.version + 1;
        }
    }
    if let Some(credential) = &patch.credential {
        new.credential.clone_from(credential);
    }
    if let Some(models) = &patch.models {
        new.models = check::channel_models(models)?;
    }
    if let Some(groups) = &patch.groups {
        new.groups = check::groups(catalog, groups)?;
    }
    if let Some(priority) = patch.priority {
        new.priority = check::priority(priority)?;
    }
    if let Some(weight) = patch.weight {
        new.weight = check::weight(weight)?;
    }
    if let Some(limits) = patch.limits {
        new.limits = check::limits("limits", limits)?;
    }
    if let Some(window) = patch.session_window {
        new.session_window = window.map(check::session_window).transpose()?;
    }
    if let Some(allow_private) = patch.allow_private {
        new.allow_private = allow_private;
    }
    if let Some(probe) = &patch.probe {
        new.probe.clone_from(probe);
    }
    new.probe = check::probe(&new.probe, &new.models)?;
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Command as Any;
    use crate::catalog::{channel, decide as decide_any};
    use waybill_event::config::Change;
    use waybill_event::{ConfigPosition, NanoUsd};

    fn fold(catalog: &mut Catalog, command: &Any) -> ConfigChange {
        let change = decide_any(catalog, command).unwrap().remove(0);
        let at = ConfigPosition(catalog.position.0 + 1);
        catalog.adopt(&change, at);
        change
    }

    #[test]
    fn ids_are_of_their_own_space_and_names_free_of_channels() {
        let mut catalog = Catalog::default();
        fold(&mut catalog, &Any::Channel(channel::Command::Create(Box::new(channel::New::at("a", "http://u/v1")))));
        let new = New::at("a", Platform::Claude, "http://u/v1");
        fold(&mut catalog, &Any::Account(Command::Create(Box::new(new.clone()))));
        let account = catalog.accounts.values().next().unwrap();
        assert_eq!(account.source().to_string(), "account:1");
        assert_eq!(account.source_ref().rev, 1);
        assert_eq!(catalog.source_named("a").unwrap().to_string(), "channel:1");
        assert_eq!(catalog.source_named("account:a"), catalog.source_named("account:1"));
        assert_eq!(catalog.source_named("account:2"), None);
        assert!(decide_any(&catalog, &Any::Account(Command::Create(Box::new(new)))).is_err(), "the name is taken");

        let id = account.id;
        fold(&mut catalog, &Any::Account(Command::Delete { id, expected: None }));
        assert_eq!(catalog.next_account_id().get(), 2, "an id is never used again");
    }

    #[test]
    fn a_name_cannot_be_taken_for_an_id() {
        let catalog = Catalog::default();
        let create =
            |name: &str| decide(&catalog, &Command::Create(Box::new(New::at(name, Platform::Codex, "http://u"))));
        for name in ["7", " 007 ", "account:7", "channel.3"] {
            assert!(create(name).is_err(), "{name}");
        }
        for name in ["7a", "account:a", "a:7", "-7", "☃"] {
            assert!(create(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn edits_change_what_they_name_and_a_new_address_has_a_new_revision() {
        let mut catalog = Catalog::default();
        fold(&mut catalog, &Any::Account(Command::Create(Box::new(New::at("a", Platform::Codex, "http://u")))));
        let id = catalog.accounts.values().next().unwrap().id;
        let edit = |catalog: &mut Catalog, patch: Patch| {
            let expected = catalog.accounts[&id].version;
            fold(catalog, &Any::Account(Command::Edit { id, expected, patch: Box::new(patch) }))
        };
        let window = SessionWindow { limit: NanoUsd(5_000_000_000), seconds: 18_000 };
        let limits = Limits { max_concurrent: Some(5), requests_per_minute: Some(20) };
        edit(&mut catalog, Patch { limits: Some(limits), session_window: Some(Some(window)), ..Patch::default() });
        let done = edit(&mut catalog, Patch { base_url: Some("http://v".into()), ..Patch::default() });
        assert_eq!((done.change(), done.changed()), (Change::Edited, ["base_url"].map(str::to_owned).as_slice()));
        let account = &catalog.accounts[&id];
        assert_eq!((account.limits, account.session_window, account.base_url_revision), (limits, Some(window), 3));
        for wrong in [
            Patch { limits: Some(Limits { max_concurrent: Some(0), ..limits }), ..Patch::default() },
            Patch { session_window: Some(Some(SessionWindow { seconds: 0, ..window })), ..Patch::default() },
            Patch { session_window: Some(Some(SessionWindow { limit: NanoUsd(0), ..window })), ..Patch::default() },
        ] {
            let command = Command::Edit { id, expected: account.version, patch: Box::new(wrong) };
            assert!(decide(&catalog, &command).is_err(), "{command:?}");
        }
    }
}
