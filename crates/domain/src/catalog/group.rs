//! Commands on groups.

use std::fmt;

use serde::{Deserialize, Serialize};
use waybill_event::GroupId;
use waybill_event::config::{ConfigChange, Entity, Group};

use super::command::Rejection;
use super::entity::{created, deleted, edited, find, find_at, free_name, switched};
use super::{Catalog, Highest};

/// A group as people name it: by id or by name. In JSON a number or a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum GroupRef {
    /// By id.
    Id(GroupId),
    /// By name.
    Name(String),
}

impl fmt::Display for GroupRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Name(name) => write!(f, "{name:?}"),
        }
    }
}

/// A wish about a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Make one.
    Create {
        /// Its name.
        name: String,
        /// Whether its keys may be used.
        enabled: bool,
    },
    /// Give it another name.
    Edit {
        /// Which.
        id: GroupId,
        /// The version the caller knows.
        expected: u64,
        /// The new name.
        name: Option<String>,
    },
    /// Let its keys be used.
    Enable {
        /// Which.
        id: GroupId,
        /// The version the caller knows; without one any will do.
        expected: Option<u64>,
    },
    /// Let its keys no longer be used.
    Disable {
        /// Which.
        id: GroupId,
        /// The version the caller knows; without one any will do.
        expected: Option<u64>,
    },
    /// End it. Refused while keys, channels or routes refer to it.
    Delete {
        /// Which.
        id: GroupId,
        /// The version the caller knows; without one any will do.
        expected: Option<u64>,
    },
}

pub(super) fn decide(catalog: &Catalog, command: &Command) -> Result<Vec<ConfigChange>, Rejection> {
    match command {
        Command::Create { name, enabled } => {
            let Highest { group, .. } = catalog.highest;
            let name = free_name::<Group>(catalog, name, None)?;
            created(catalog, Group { id: GroupId::new(group + 1), name, enabled: *enabled, version: 1 })
        }
        Command::Edit { id, expected, name } => {
            let old = find_at::<Group>(catalog, *id, Some(*expected))?;
            let mut new = Group::clone(old);
            if let Some(name) = name {
                new.name = free_name::<Group>(catalog, name, Some(*id))?;
            }
            Ok(edited(old.as_ref(), new))
        }
        Command::Enable { id, expected } => switched::<Group>(catalog, *id, *expected, true),
        Command::Disable { id, expected } => switched::<Group>(catalog, *id, *expected, false),
        Command::Delete { id, expected } => {
            find::<Group>(catalog, *id)?;
            unused(catalog, *id)?;
            deleted::<Group>(catalog, *id, *expected)
        }
    }
}

fn unused(catalog: &Catalog, id: GroupId) -> Result<(), Rejection> {
    let keys = catalog.keys.values().filter(|key| key.group == id);
    let keys = keys.map(|key| format!("key {} ({})", key.id, key.name));
    let channels = catalog.channels.values().filter(|channel| channel.groups.contains(&id));
    let channels = channels.map(|channel| format!("channel {} ({})", channel.id, channel.name));
    let accounts = catalog.accounts.values().filter(|account| account.groups.contains(&id));
    let accounts = accounts.map(|account| format!("account {} ({})", account.id, account.name));
    let routes = catalog.routes.values().filter(|route| route.groups.contains(&id));
    let routes = routes.map(|route| format!("route {} ({})", route.id, route.name));
    let by: Vec<String> = keys.chain(channels).chain(accounts).chain(routes).collect();
    if by.is_empty() {
        return Ok(());
    }
    Err(Rejection::in_use(Group::ENTITY, id.to_string(), by))
}
