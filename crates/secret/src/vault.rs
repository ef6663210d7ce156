//! The opened credentials of a process: what the stream of sealed credentials held, by source and revision. The newest
//! two of each channel are kept, since a credential arrives before the edit that names it and may be named a little
//! longer than the next one's arrival.

mod accounts;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use secrecy::SecretString;

use crate::{Aad, KeyRing, OpenError, SealError, Sealed};

pub use accounts::{ACCOUNT, AccountTokens, shown};

const SUBJECT_PREFIX: &str = "wb.secret.";
const FIELD: &str = "credential";

/// Why a message of the stream of sealed credentials couldn't be taken.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The subject isn't `wb.secret.<kind>.<id>`.
    #[error("not a subject of a sealed credential: {subject}")]
    Subject {
        /// The subject met.
        subject: String,
    },
    /// The message isn't a sealed value.
    #[error("the message on {subject} isn't a sealed value")]
    Malformed {
        /// The subject.
        subject: String,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// It can't be opened with this ring.
    #[error("the credential on {subject} can't be opened")]
    Open {
        /// The subject.
        subject: String,
        /// Why.
        #[source]
        source: OpenError,
    },
    /// What was sealed isn't an account's tokens.
    #[error("what is sealed on {subject} isn't an account's tokens")]
    NoTokens {
        /// The subject.
        subject: String,
    },
}

/// A credential with its revision: the sequence at which the sealed one was stored.
#[derive(Clone)]
struct Opened {
    revision: u64,
    credential: Arc<SecretString>,
}

/// Opened credentials: those of channels by revision, those of accounts by login.
pub struct Vault {
    ring: KeyRing,
    opened: RwLock<HashMap<String, Vec<Opened>>>,
    accounts: RwLock<HashMap<u64, Vec<AccountTokens>>>,
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vault").finish_non_exhaustive()
    }
}

impl Vault {
    /// An empty vault that opens with `ring`.
    #[must_use]
    pub fn new(ring: KeyRing) -> Self {
        Self { ring, opened: RwLock::default(), accounts: RwLock::default() }
    }

    /// The ring it opens with.
    #[must_use]
    pub fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// The subject that the sealed credential of a source is stored under.
    #[must_use]
    pub fn subject(kind: &str, id: u64) -> String {
        format!("{SUBJECT_PREFIX}{kind}.{id}")
    }

    /// The account whose tokens are stored under a subject; `None` for every other subject.
    #[must_use]
    pub fn account_of(subject: &str) -> Option<u64> {
        subject.strip_prefix(SUBJECT_PREFIX)?.strip_prefix(ACCOUNT)?.strip_prefix('.')?.parse().ok()
    }

    /// The message that stores a credential: sealed, for this source only.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn seal(&self, kind: &str, id: u64, credential: &SecretString) -> Result<Vec<u8>, SealError> {
        let id = id.to_string();
        let sealed = self.ring.seal(&Aad { entity_kind: kind, entity_id: &id, field: FIELD }, credential)?;
        // A sealed value is three short texts: nothing in it can fail to be written.
        Ok(serde_json::to_vec(&sealed).unwrap_or_default())
    }

    /// Takes a message of the stream. Messages must come in their order; older ones than the newest two of a source
    /// are forgotten.
    ///
    /// # Errors
    /// [`VaultError`]; what was held stays.
    pub fn take(&self, subject: &str, sequence: u64, message: &[u8]) -> Result<(), VaultError> {
        let name = subject.strip_prefix(SUBJECT_PREFIX);
        let Some((name, (kind, id))) = name.and_then(|name| Some((name, name.split_once('.')?))) else {
            return Err(VaultError::Subject { subject: subject.to_owned() });
        };
        if kind == ACCOUNT {
            return self.take_account(subject, id, sequence, message);
        }
        let sealed: Sealed = serde_json::from_slice(message)
            .map_err(|source| VaultError::Malformed { subject: subject.to_owned(), source })?;
        let credential = self
            .ring
            .open(&Aad { entity_kind: kind, entity_id: id, field: FIELD }, &sealed)
            .map_err(|source| VaultError::Open { subject: subject.to_owned(), source })?;
        let mut opened = self.opened.write().unwrap_or_else(PoisonError::into_inner);
        let held = opened.entry(name.to_owned()).or_default();
        if held.last().is_some_and(|newest| newest.revision >= sequence) {
            return Ok(());
        }
        held.push(Opened { revision: sequence, credential: Arc::new(credential) });
        let surplus = held.len().saturating_sub(2);
        held.drain(..surplus);
        Ok(())
    }

    /// The credential of a source at a revision, if this process has it.
    #[must_use]
    pub(crate) fn get(&self, kind: &str, id: u64, revision: u64) -> Option<Arc<SecretString>> {
        let opened = self.opened.read().unwrap_or_else(PoisonError::into_inner);
        let held = opened.get(&format!("{kind}.{id}"))?;
        held.iter().rev().find(|o| o.revision == revision).map(|o| o.credential.clone())
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn the_newest_two_of_a_source_are_kept_and_nobody_elses_is_given() {
        let vault = Vault::new(KeyRing::generate().unwrap());
        for (revision, text) in [(3, "one"), (5, "two"), (9, "three")] {
            let message = vault.seal("channel", 42, &SecretString::from(text)).unwrap();
            vault.take(&Vault::subject("channel", 42), revision, &message).unwrap();
        }
        let get = |id, revision| vault.get("channel", id, revision).map(|c| c.expose_secret().to_owned());
        assert_eq!(get(42, 3), None);
        assert_eq!(get(42, 5).as_deref(), Some("two"));
        assert_eq!(get(42, 9).as_deref(), Some("three"));
        assert_eq!(get(43, 9), None);
    }

    #[test]
    fn a_credential_moved_to_another_source_is_refused() {
        let vault = Vault::new(KeyRing::generate().unwrap());
        let message = vault.seal("channel", 1, &SecretString::from("mine")).unwrap();
        assert!(matches!(vault.take(&Vault::subject("channel", 2), 1, &message), Err(VaultError::Open { .. })));
    }
}
