//! What may go wrong with the store.

use std::time::Duration;

use crate::Projection;

/// Why a call to the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The address is no Postgres address.
    #[error("not a Postgres address")]
    Address(#[source] sqlx::Error),
    /// It is out of reach, or in trouble of its own. It may pass.
    #[error("Postgres is out of reach")]
    Unavailable(#[source] sqlx::Error),
    /// It didn't answer in time. Whether a write was taken isn't known.
    #[error("Postgres did not answer within {} ms: {what}", deadline.as_millis())]
    Deadline {
        /// What was asked.
        what: &'static str,
        /// How long it had.
        deadline: Duration,
    },
    /// Somebody else folds this projection now, or has folded further: stop writing.
    #[error("the fold of {projection} has moved on without us: epoch {epoch}, position {position} no longer hold")]
    Fenced {
        /// The projection.
        projection: Projection,
        /// Our epoch.
        epoch: u64,
        /// Where we thought it stood.
        position: u64,
    },
    /// The rows were folded by another version of the fold and must be rebuilt.
    #[error("{projection} was folded by version {stored}, this program has version {ours}: rebuild it")]
    Version {
        /// The projection.
        projection: Projection,
        /// The rows' version.
        stored: u32,
        /// Our version.
        ours: u32,
    },
    /// An edit can't be read here; the projection must not go past it.
    #[error(transparent)]
    UnknownEdit(#[from] waybill_domain::catalog::UnknownEdit),
    /// The schema couldn't be brought up to date.
    #[error("the schema can't be brought up to date")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    /// Postgres refused a statement, or holds what can't be read: a fault of this program or of the schema.
    #[error("Postgres refused a statement")]
    Refused(#[source] sqlx::Error),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        if passes(&error) { Self::Unavailable(error) } else { Self::Refused(error) }
    }
}

impl StoreError {
    /// Whether the same call may succeed later without anybody's doing.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Deadline { .. } => true,
            Self::Address(_)
            | Self::Fenced { .. }
            | Self::Version { .. }
            | Self::UnknownEdit(_)
            | Self::Migrate(_)
            | Self::Refused(_) => false,
        }
    }
}

/// Class of the error's SQLSTATE: its first two characters.
fn class(error: &sqlx::Error) -> Option<String> {
    error.as_database_error()?.code().map(|code| code.chars().take(2).collect())
}

/// Whether an error is about reaching the store, or about the store's own state, not about what was asked.
pub(crate) fn passes(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => true,
        // Connections, idle transactions, authorisation, a database or table that isn't there yet, rollbacks
        // (deadlocks), resources, operator's intervention, the system itself.
        sqlx::Error::Database(database) => {
            database.code().is_some_and(|code| code == "42P01")
                || class(error).is_some_and(|class| {
                    matches!(class.as_str(), "08" | "25" | "28" | "3D" | "40" | "53" | "55" | "57" | "58")
                })
        }
        _ => false,
    }
}

/// Whether an error is about the content of a row: its data, a constraint, the size of an index entry.
pub(crate) fn is_about_content(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Encode(_) => true,
        _ => class(error).is_some_and(|class| matches!(class.as_str(), "22" | "23" | "54")),
    }
}
