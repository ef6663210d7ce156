//! What a limit is about.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use waybill_event::{KeyId, Source};

/// Whose limit it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// A source's.
    Source(Source),
    /// A client key's.
    Key(KeyId),
    /// That of a user of a client key.
    User(KeyId),
}

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

    /// Whose limit it is; nothing where the word is none of ours.
    #[must_use]
    pub fn about(&self) -> Option<About> {
        let key = |id: &str| id.parse().ok().map(KeyId::new);
        match self.0.split_once('.')? {
            ("key", id) => key(id).map(About::Key),
            ("user", rest) => key(rest.split_once('.')?.0).map(About::User),
            _ => self.0.parse().ok().map(About::Source),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_whose_limit_it_is() {
        let source: Source = "account:7".parse().unwrap();
        assert_eq!(Subject::from(source).about(), Some(About::Source(source)));
        assert_eq!(Subject::key(KeyId::new(5)).about(), Some(About::Key(KeyId::new(5))));
        assert_eq!(Subject::user(KeyId::new(5), "ann").about(), Some(About::User(KeyId::new(5))));
        for other in ["key.x", "user.5", "thing.1", "key"] {
            assert_eq!(Subject::read(other).about(), None, "{other}");
        }
    }
}
