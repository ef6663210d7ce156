//! Commands on client keys.

use waybill_event::config::{ConfigChange, Key, Limits, StoredHash};
use waybill_event::{KeyId, LogTime};

use super::command::Rejection;
use super::entity::{created, deleted, edited, find_at, free_name, switched};
use super::{Catalog, GroupRef, check};

/// What a new key is made of. The token itself is never seen here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct New {
    /// Its name.
    pub name: String,
    /// The group it belongs to.
    pub group: GroupRef,
    /// The token's first characters.
    pub prefix: String,
    /// The token's hash.
    pub hash: StoredHash,
    /// Models it may use; empty means all of its group's.
    pub models: Vec<String>,
    /// From when on it is no longer valid.
    pub expires_at: Option<LogTime>,
    /// What may be asked with it in all.
    pub limits: Limits,
    /// What each of its users may ask.
    pub user_limits: Limits,
    /// Whether it may be used.
    pub enabled: bool,
}

/// What an edit changes; `None` leaves a field as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Patch {
    /// Its name.
    pub name: Option<String>,
    /// The group it belongs to.
    pub group: Option<GroupRef>,
    /// All models it may use; empty means all of its group's.
    pub models: Option<Vec<String>>,
    /// From when on it is no longer valid; `Some(None)` means never.
    pub expires_at: Option<Option<LogTime>>,
    /// All of what may be asked with it.
    pub limits: Option<Limits>,
    /// All of what each of its users may ask.
    pub user_limits: Option<Limits>,
}

/// A wish about a client key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Make one.
    Issue(Box<New>),
    /// Change some of its fields.
    Edit {
        /// Which.
        id: KeyId,
        /// The version the caller knows.
        expected: u64,
        /// What changes.
        patch: Patch,
    },
    /// Let it be used.
    Enable {
        /// Which.
        id: KeyId,
        /// The version the caller knows; without one any will do.
        expected: Option<u64>,
    },
    /// Let it no longer be used, for now.
    Disable {
        /// Which.
        id: KeyId,
        /// The version the caller knows; without one any will do.
        expected: Option<u64>,
    },
    /// End it for good.
    Revoke {
        /// Which.
        id: KeyId,
        /// The version the caller knows; without one any will do.
        expected: Option<u64>,
    },
}

pub(super) fn decide(catalog: &Catalog, command: &Command) -> Result<Vec<ConfigChange>, Rejection> {
    match command {
        Command::Issue(new) => created(catalog, build(catalog, new)?),
        Command::Edit { id, expected, patch } => {
            let old = find_at::<Key>(catalog, *id, Some(*expected))?;
            let mut new = Key::clone(old);
            if let Some(name) = &patch.name {
                new.name = free_name::<Key>(catalog, name, Some(*id))?;
            }
            if let Some(group) = &patch.group {
                new.group = check::group(catalog, "group", group)?;
            }
            if let Some(models) = &patch.models {
                new.models = check::key_models(models)?;
            }
            if let Some(expires_at) = patch.expires_at {
                new.expires_at = expires_at;
            }
            if let Some(limits) = patch.limits {
                new.limits = check::limits("limits", limits)?;
            }
            if let Some(limits) = patch.user_limits {
                new.user_limits = check::limits("user_limits", limits)?;
            }
            Ok(edited(old.as_ref(), new))
        }
        Command::Enable { id, expected } => switched::<Key>(catalog, *id, *expected, true),
        Command::Disable { id, expected } => switched::<Key>(catalog, *id, *expected, false),
        Command::Revoke { id, expected } => deleted::<Key>(catalog, *id, *expected),
    }
}

fn build(catalog: &Catalog, new: &New) -> Result<Key, Rejection> {
    if catalog.keys.values().any(|key| key.hash == new.hash) {
        return Err(Rejection::invalid("hash", "another key has this token"));
    }
    Ok(Key {
        id: KeyId::new(catalog.highest.key + 1),
        name: free_name::<Key>(catalog, &new.name, None)?,
        group: check::group(catalog, "group", &new.group)?,
        prefix: new.prefix.clone(),
        hash: new.hash.clone(),
        models: check::key_models(&new.models)?,
        expires_at: new.expires_at,
        limits: check::limits("limits", new.limits)?,
        user_limits: check::limits("user_limits", new.user_limits)?,
        enabled: new.enabled,
        version: 1,
    })
}
