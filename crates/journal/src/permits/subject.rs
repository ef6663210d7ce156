//! What a limit is about.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use waybill_event::{KeyId, Source};

/// What a limit is about, as a word of keys: `channel.3`, `account.7`, `key.5`, `user.5.<hash of the name>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject(Arc<str>);

impl Subject {
    /// A client key.
    #[must_use]
    pub fn key(id: KeyId) -> Self {
        Self(format!("key.{}", id.get()).into())
    }

    /// A user of a client key. Its name is hashed: names are people's, and may hold what keys can't.
    #[must_use]
    pub fn user(id: KeyId, name: &str) -> Self {
        let digest = Sha256::digest(name.as_bytes());
        let hash: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        Self(format!("user.{}.{hash}", id.get()).into())
    }

    /// The word.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A word that was read from a key.
    pub(super) fn read(word: &str) -> Self {
        Self(word.into())
    }
}

impl From<Source> for Subject {
    fn from(source: Source) -> Self {
        Self(source.to_string().replace(':', ".").into())
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
