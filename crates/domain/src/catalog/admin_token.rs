//! Commands on admin tokens.

use waybill_event::AdminTokenId;
use waybill_event::config::{AdminToken, ConfigChange, StoredHash};

use super::Catalog;
use super::command::Rejection;
use super::entity::{created, deleted, free_name};

/// A wish about an admin token. The token itself is never seen here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Make one.
    Issue {
        /// Its name: what its edits are recorded under.
        name: String,
        /// The token's first characters.
        prefix: String,
        /// The token's hash.
        hash: StoredHash,
    },
    /// End it for good.
    Revoke {
        /// Which.
        id: AdminTokenId,
        /// The version the caller knows; without one any will do.
        expected: Option<u64>,
    },
}

pub(super) fn decide(catalog: &Catalog, command: &Command) -> Result<Vec<ConfigChange>, Rejection> {
    match command {
        Command::Issue { name, prefix, hash } => {
            let token = AdminToken {
                id: AdminTokenId::new(catalog.highest.admin_token + 1),
                name: free_name::<AdminToken>(catalog, name, None)?,
                prefix: prefix.clone(),
                hash: hash.clone(),
                enabled: true,
                version: 1,
            };
            created(catalog, token)
        }
        Command::Revoke { id, expected } => deleted::<AdminToken>(catalog, *id, *expected),
    }
}
