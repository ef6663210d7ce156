//! The tokens of accounts in a vault. A refresh stores a further message under the account's subject while the catalogue
//! goes on naming the imported login; so what counts is the newest descendant of what the catalogue names.

use std::sync::{Arc, PoisonError};

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::{FIELD, Vault, VaultError};
use crate::oauth::{OauthCredential, Plain, Shown};
use crate::{Aad, SealError, Sealed};

/// The kind of entity whose credentials are tokens.
pub const ACCOUNT: &str = "account";

/// The message under an account's subject.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    sealed: Sealed,
    shown: Shown,
}

/// An account's tokens with their revision: the sequence at which they were stored.
#[derive(Clone)]
pub struct AccountTokens {
    /// The revision.
    pub revision: u64,
    /// Revision of the imported login that they descend from; their own for an import.
    pub login: u64,
    /// The tokens.
    pub credential: Arc<OauthCredential>,
    /// What may be known of them.
    pub shown: Arc<Shown>,
}

impl std::fmt::Debug for AccountTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccountTokens").field("revision", &self.revision).field("shown", &self.shown).finish()
    }
}

/// What a message of an account's subject shows to whoever has no key; `None` for every other message.
#[must_use]
pub fn shown(message: &[u8]) -> Option<Shown> {
    serde_json::from_slice::<Message>(message).ok().map(|message| message.shown)
}

impl Vault {
    /// The message that stores an account's tokens: sealed, for this account only. `login` is the revision of the import
    /// that they descend from by refreshing; `None` for an import.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn seal_account(
        &self,
        id: u64,
        credential: &OauthCredential,
        login: Option<u64>,
    ) -> Result<Vec<u8>, SealError> {
        let id = id.to_string();
        let plain = Plain::of(credential, login);
        // Texts and numbers: nothing in them can fail to be written.
        let text = SecretString::from(serde_json::to_string(&plain).unwrap_or_default());
        let sealed = self.ring().seal(&Aad { entity_kind: ACCOUNT, entity_id: &id, field: FIELD }, &text)?;
        let shown = Shown::of(credential, login, self.ring().fingerprint(&credential.access));
        Ok(serde_json::to_vec(&Message { sealed, shown }).unwrap_or_default())
    }

    /// The newest tokens of an account among the login that the catalogue names and what was refreshed from it, if this
    /// process has them.
    #[must_use]
    pub fn account(&self, id: u64, named: u64) -> Option<AccountTokens> {
        let accounts = self.accounts.read().unwrap_or_else(PoisonError::into_inner);
        accounts.get(&id)?.iter().rev().find(|held| held.login == named || held.revision == named).cloned()
    }

    /// The newest tokens stored under an account's subject, whether the catalogue names them or not.
    #[must_use]
    pub fn newest_of_account(&self, id: u64) -> Option<AccountTokens> {
        let accounts = self.accounts.read().unwrap_or_else(PoisonError::into_inner);
        accounts.get(&id)?.last().cloned()
    }

    pub(super) fn take_account(
        &self,
        subject: &str,
        id: &str,
        revision: u64,
        message: &[u8],
    ) -> Result<(), VaultError> {
        let malformed = |source| VaultError::Malformed { subject: subject.to_owned(), source };
        let message: Message = serde_json::from_slice(message).map_err(malformed)?;
        let number: u64 = id.parse().map_err(|_| VaultError::Subject { subject: subject.to_owned() })?;
        let text = self
            .ring()
            .open(&Aad { entity_kind: ACCOUNT, entity_id: id, field: FIELD }, &message.sealed)
            .map_err(|source| VaultError::Open { subject: subject.to_owned(), source })?;
        // The parser's words could quote what it was given.
        let plain: Plain = serde_json::from_str(text.expose_secret())
            .map_err(|_| VaultError::NoTokens { subject: subject.to_owned() })?;
        let (credential, login) = plain.open();
        if !Shown::of(&credential, login, message.shown.fingerprint.clone()).agrees(&message.shown) {
            return Err(VaultError::Open { subject: subject.to_owned(), source: crate::OpenError::Refused });
        }
        let mut accounts = self.accounts.write().unwrap_or_else(PoisonError::into_inner);
        let held = accounts.entry(number).or_default();
        if held.last().is_some_and(|newest| newest.revision >= revision) {
            return Ok(());
        }
        held.push(AccountTokens {
            revision,
            login: login.unwrap_or(revision),
            credential: Arc::new(credential),
            shown: Arc::new(message.shown),
        });
        let surplus = held.len().saturating_sub(2);
        held.drain(..surplus);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyRing;
    use crate::oauth::{Refreshing, TokenBody};

    fn tokens(n: u32) -> OauthCredential {
        OauthCredential {
            access: SecretString::from(format!("access-canary-{n}")),
            issued_ms: 1_000,
            expires_ms: Some(61_000),
            scopes: vec!["chat".to_owned()],
            refreshing: Some(Refreshing {
                token: SecretString::from(format!("refresh-canary-{n}")),
                endpoint: "https://auth.example.com/token".to_owned(),
                body: TokenBody::Form,
                client_id: Some("app".to_owned()),
                client_secret: Some(SecretString::from("client-canary")),
            }),
        }
    }

    fn vault() -> Vault {
        Vault::new(KeyRing::generate().unwrap())
    }

    fn store(vault: &Vault, n: u32, revision: u64, login: Option<u64>) {
        let message = vault.seal_account(7, &tokens(n), login).unwrap();
        vault.take(&Vault::subject(ACCOUNT, 7), revision, &message).unwrap();
    }

    #[test]
    fn the_newest_descendant_of_what_is_named_counts() {
        let vault = vault();
        let check = |named, revision: Option<u64>| {
            assert_eq!(vault.account(7, named).map(|held| held.revision), revision, "named {named}");
        };
        store(&vault, 1, 3, None);
        check(3, Some(3));
        store(&vault, 2, 5, Some(3));
        check(3, Some(5));
        // An import that no edit names yet is nobody's.
        store(&vault, 3, 8, None);
        check(3, Some(5));
        check(8, Some(8));
        // What is refreshed meanwhile pushes neither out.
        store(&vault, 4, 9, Some(3));
        check(3, Some(9));
        check(8, Some(8));
        assert_eq!(vault.newest_of_account(7).map(|held| held.revision), Some(9));
        assert!(vault.account(8, 3).is_none(), "nobody else's are given");
    }

    #[test]
    fn tokens_come_back_as_they_were() {
        let vault = vault();
        store(&vault, 1, 3, None);
        let held = vault.account(7, 3).unwrap();
        let refreshing = held.credential.refreshing.as_ref().unwrap();
        assert_eq!(held.credential.access.expose_secret(), "access-canary-1");
        assert_eq!(refreshing.token.expose_secret(), "refresh-canary-1");
        assert_eq!(refreshing.client_secret.as_ref().unwrap().expose_secret(), "client-canary");
        assert!(held.credential.expired(59_000) && !held.credential.expired(58_999));
    }

    #[test]
    fn neither_the_message_nor_debug_shows_a_token() {
        let vault = vault();
        let message = String::from_utf8(vault.seal_account(7, &tokens(1), None).unwrap()).unwrap();
        store(&vault, 1, 3, None);
        let held = vault.account(7, 3).unwrap();
        let shown = format!("{message} {held:?} {:?} {vault:?}", held.credential);
        assert!(!shown.contains("canary"), "{shown}");
        assert!(shown.contains("61000") && shown.contains("chat"));
    }

    #[test]
    fn what_is_shown_cannot_be_changed_and_nothing_can_be_moved() {
        let vault = vault();
        let message = String::from_utf8(vault.seal_account(7, &tokens(1), None).unwrap()).unwrap();
        let later = message.replace("61000", "99000");
        let refused = |subject: &str, message: &str| vault.take(subject, 1, message.as_bytes()).unwrap_err();
        assert!(matches!(refused(&Vault::subject(ACCOUNT, 7), &later), VaultError::Open { .. }));
        assert!(matches!(refused(&Vault::subject(ACCOUNT, 8), &message), VaultError::Open { .. }));
        assert!(matches!(refused(&Vault::subject("channel", 7), &message), VaultError::Malformed { .. }));
        let sealed = vault.seal("channel", 7, &SecretString::from("key")).unwrap();
        let key = String::from_utf8(sealed).unwrap();
        assert!(matches!(refused(&Vault::subject(ACCOUNT, 7), &key), VaultError::Malformed { .. }));
    }

    #[test]
    fn what_may_be_known_is_read_without_a_key() {
        let message = vault().seal_account(7, &tokens(1), Some(3)).unwrap();
        let shown = shown(&message).unwrap();
        assert_eq!((shown.expires_ms, shown.refreshable, shown.login), (Some(61_000), true, Some(3)));
        assert!(super::shown(b"{}").is_none());
    }
}
