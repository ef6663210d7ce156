//! Commands: what an administrator may ask for, and why it may be refused.

use waybill_event::config::ConfigChange;

use super::{
    Catalog, UnknownEdit, account, admin_token, channel, group, intervention, key, policy, price, route, rules,
};

/// At most this many users of an entity are named in a refusal.
const NAMED_USERS: usize = 10;

/// A wish to change configuration.
#[expect(clippy::large_enum_variant, reason = "edits are rare, and each is decided where it was made")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// About a channel.
    Channel(channel::Command),
    /// About a group.
    Group(group::Command),
    /// About a client key.
    Key(key::Command),
    /// About an admin token.
    AdminToken(admin_token::Command),
    /// About a policy.
    Policy(policy::Command),
    /// About a route.
    Route(route::Command),
    /// By hand, about a source or a model of it.
    Intervention(intervention::Command),
    /// About the rules of a scope.
    Rules(rules::Command),
    /// About an account.
    Account(account::Command),
    /// About a price.
    Price(price::Command),
}

/// Why a command is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The entity doesn't exist, or no longer.
    #[error("there is no {entity} {id}")]
    NotFound {
        /// Kind of entity.
        entity: &'static str,
        /// Its id.
        id: String,
    },
    /// Someone edited the entity since the caller read it.
    #[error("{entity} {id} is at version {actual}, not {expected}")]
    VersionConflict {
        /// Kind of entity.
        entity: &'static str,
        /// Its id.
        id: String,
        /// The version the caller knew.
        expected: u64,
        /// The version it has.
        actual: u64,
    },
    /// A field's value can't be.
    #[error("{field}: {message}")]
    Invalid {
        /// The field.
        field: String,
        /// What is wrong with it.
        message: String,
    },
    /// Another living entity has the name.
    #[error("the name {name:?} is taken by {entity} {by}")]
    NameTaken {
        /// Kind of entity.
        entity: &'static str,
        /// The name.
        name: String,
        /// Id of the one that has it.
        by: String,
    },
    /// Others refer to the entity.
    #[error("{entity} {id} is in use by {}{}", by.join(", "), if *more > 0 { format!(" and {more} more") } else { String::new() })]
    InUse {
        /// Kind of entity.
        entity: &'static str,
        /// Its id.
        id: String,
        /// Up to ten that refer to it, as `key 3 (ci)`.
        by: Vec<String>,
        /// How many more there are.
        more: usize,
    },
    /// There are as many as there may be.
    #[error("there may be at most {limit} {what}")]
    LimitReached {
        /// What is limited.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The catalogue stopped at an edit of a newer program, so nothing can be checked against it.
    #[error("configuration can't be edited with this program")]
    Blocked(#[source] UnknownEdit),
}

impl Rejection {
    pub(super) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), message: message.into() }
    }

    /// A refusal that names the first users only.
    pub(super) fn in_use(entity: &'static str, id: String, mut by: Vec<String>) -> Self {
        let more = by.len().saturating_sub(NAMED_USERS);
        by.truncate(NAMED_USERS);
        Self::InUse { entity, id, by, more }
    }
}

/// Decides a command on the catalogue. An edit that changes nothing gives no change.
///
/// # Errors
/// [`Rejection`].
pub fn decide(catalog: &Catalog, command: &Command) -> Result<Vec<ConfigChange>, Rejection> {
    if let Some(edit) = &catalog.blocked_by {
        return Err(Rejection::Blocked(edit.clone()));
    }
    match command {
        Command::Channel(command) => channel::decide(catalog, command),
        Command::Group(command) => group::decide(catalog, command),
        Command::Key(command) => key::decide(catalog, command),
        Command::AdminToken(command) => admin_token::decide(catalog, command),
        Command::Policy(command) => policy::decide(catalog, command),
        Command::Route(command) => route::decide(catalog, command),
        Command::Intervention(command) => intervention::decide(catalog, command),
        Command::Rules(command) => rules::decide(catalog, command),
        Command::Account(command) => account::decide(catalog, command),
        Command::Price(command) => price::decide(catalog, command),
    }
}
