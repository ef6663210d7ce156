//! What requests to one source are sent with. It can't be made without a credential of that very source that holds now,
//! so that an empty, expired or foreign one is nothing that anybody could send.

use std::fmt;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};

use crate::oauth::OauthCredential;
use crate::vault::{ACCOUNT, Vault};

/// Why a source has nothing to be sent with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoBearer {
    /// This process has no credential of the source that the catalogue's word stands for.
    #[error("the credential that the catalogue names isn't there")]
    Missing,
    /// Its access token has ended.
    #[error("the access token of revision {revision} has expired")]
    Expired {
        /// Revision of the tokens.
        revision: u64,
    },
}

#[derive(Clone)]
enum Held {
    Key(Arc<SecretString>),
    Login(Arc<OauthCredential>),
}

/// A credential of one source that held when it was asked for.
#[derive(Clone)]
pub struct Bearer {
    kind: &'static str,
    id: u64,
    revision: u64,
    held: Held,
}

impl Bearer {
    /// Whether it is this source's.
    #[must_use]
    pub fn is_of(&self, kind: &str, id: u64) -> bool {
        self.kind == kind && self.id == id
    }

    /// Its revision.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// The key or access token.
    #[must_use]
    pub fn token(&self) -> &str {
        match &self.held {
            Held::Key(key) => key.expose_secret(),
            Held::Login(login) => login.access.expose_secret(),
        }
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bearer")
            .field("kind", &self.kind)
            .field("id", &self.id)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

impl Vault {
    /// What requests to a channel are sent with: the key of the revision that the catalogue names.
    ///
    /// # Errors
    /// [`NoBearer::Missing`].
    pub fn of_channel(&self, id: u64, named: u64) -> Result<Bearer, NoBearer> {
        const CHANNEL: &str = "channel";
        let key = self.get(CHANNEL, id, named).ok_or(NoBearer::Missing)?;
        Ok(Bearer { kind: CHANNEL, id, revision: named, held: Held::Key(key) })
    }

    /// What requests to an account are sent with at `now_ms`: the newest tokens of the login that the catalogue names.
    ///
    /// # Errors
    /// [`NoBearer`].
    pub fn of_account(&self, id: u64, named: u64, now_ms: i64) -> Result<Bearer, NoBearer> {
        let tokens = self.account(id, named).ok_or(NoBearer::Missing)?;
        let revision = tokens.revision;
        if tokens.credential.expired(now_ms) {
            return Err(NoBearer::Expired { revision });
        }
        Ok(Bearer { kind: ACCOUNT, id, revision, held: Held::Login(tokens.credential) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyRing;

    fn vault() -> Vault {
        let vault = Vault::new(KeyRing::generate().unwrap());
        let key = vault.seal("channel", 7, &SecretString::from("key-canary")).unwrap();
        vault.take(&Vault::subject("channel", 7), 3, &key).unwrap();
        let tokens = OauthCredential {
            access: SecretString::from("token-canary"),
            issued_ms: 0,
            expires_ms: Some(60_000),
            scopes: Vec::new(),
            refreshing: None,
        };
        let message = vault.seal_account(7, &tokens, None).unwrap();
        vault.take(&Vault::subject(ACCOUNT, 7), 5, &message).unwrap();
        vault
    }

    #[test]
    fn only_what_holds_and_is_named_is_given() {
        let vault = vault();
        assert_eq!(vault.of_channel(7, 3).unwrap().token(), "key-canary");
        assert_eq!(vault.of_channel(7, 4).unwrap_err(), NoBearer::Missing);
        assert_eq!(vault.of_channel(8, 3).unwrap_err(), NoBearer::Missing);
        let bearer = vault.of_account(7, 5, 57_999).unwrap();
        assert_eq!((bearer.token(), bearer.revision()), ("token-canary", 5));
        assert_eq!(vault.of_account(7, 5, 58_000).unwrap_err(), NoBearer::Expired { revision: 5 });
        assert_eq!(vault.of_account(7, 3, 0).unwrap_err(), NoBearer::Missing);
    }

    #[test]
    fn it_knows_whose_it_is_and_shows_no_token() {
        let bearer = vault().of_account(7, 5, 0).unwrap();
        assert!(bearer.is_of("account", 7) && !bearer.is_of("channel", 7) && !bearer.is_of("account", 8));
        assert!(!format!("{bearer:?}").contains("canary"));
    }
}
