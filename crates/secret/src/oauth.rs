//! The tokens of an account: an access token that expires, and what it takes to get the next one.
//!
//! They can't be printed, serialised or traced: only [`crate::Vault`] puts them into bytes, and only sealed. What may be
//! known of them by whoever has no key stands beside the sealed part as [`Shown`].

mod import;

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::Fingerprint;

pub use import::{Defaults, ImportError};

/// How a token endpoint wants to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenBody {
    /// As a form, which is what the standard says.
    #[default]
    Form,
    /// As a JSON object.
    Json,
}

/// What it takes to get the next access token.
#[derive(Clone)]
pub struct Refreshing {
    /// The refresh token.
    pub token: SecretString,
    /// URL of the token endpoint.
    pub endpoint: String,
    /// How it wants to be asked.
    pub body: TokenBody,
    /// The client that the tokens were given to.
    pub client_id: Option<String>,
    /// Its secret, where it has one.
    pub client_secret: Option<SecretString>,
}

impl fmt::Debug for Refreshing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refreshing").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// The tokens of an account.
#[derive(Clone)]
pub struct OauthCredential {
    /// What requests are sent with.
    pub access: SecretString,
    /// When it was given, in milliseconds UTC.
    pub issued_ms: i64,
    /// When it expires, in milliseconds UTC; one without an end may be refused at any time all the same.
    pub expires_ms: Option<i64>,
    /// What it may be used for.
    pub scopes: Vec<String>,
    /// How to get the next one; without it the account serves until the token expires.
    pub refreshing: Option<Refreshing>,
}

impl fmt::Debug for OauthCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OauthCredential")
            .field("expires_ms", &self.expires_ms)
            .field("scopes", &self.scopes)
            .field("refreshing", &self.refreshing)
            .finish_non_exhaustive()
    }
}

/// An access token that ends within this time isn't sent any more: it could end on its way.
const MARGIN_MS: i64 = 2_000;

impl OauthCredential {
    /// Whether the access token can't be counted on any more: it has ended, or does so within two seconds, or a tenth of
    /// its life where that is less.
    #[must_use]
    pub fn expired(&self, now_ms: i64) -> bool {
        self.expires_ms.is_some_and(|expires| {
            let margin = (expires.saturating_sub(self.issued_ms) / 10).clamp(0, MARGIN_MS);
            expires.saturating_sub(margin) <= now_ms
        })
    }
}

/// What may be known of an account's tokens without a key. It is sealed along with them, so that it can't be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shown {
    /// When the access token was given, in milliseconds UTC.
    pub issued_ms: i64,
    /// When it expires, in milliseconds UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<i64>,
    /// What it may be used for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Whether the next one can be had without a human.
    pub refreshable: bool,
    /// Revision of the imported login that this one descends from by refreshing; absent for the imported one itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<u64>,
    /// Tells equal access tokens from different ones.
    pub fingerprint: Fingerprint,
}

impl Shown {
    pub(crate) fn of(credential: &OauthCredential, login: Option<u64>, fingerprint: Fingerprint) -> Self {
        Self {
            issued_ms: credential.issued_ms,
            expires_ms: credential.expires_ms,
            scopes: credential.scopes.clone(),
            refreshable: credential.refreshing.is_some(),
            login,
            fingerprint,
        }
    }

    /// Whether both say the same of one credential; fingerprints change with the ring.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        let Self { issued_ms, expires_ms, scopes, refreshable, login, fingerprint: _ } = self;
        *issued_ms == other.issued_ms
            && *expires_ms == other.expires_ms
            && *scopes == other.scopes
            && *refreshable == other.refreshable
            && *login == other.login
    }
}

/// The form in which tokens are sealed: it exists only while it is written or read, and is wiped afterwards.
#[derive(Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plain {
    access: String,
    issued_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    scopes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh: Option<PlainRefresh>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    login: Option<u64>,
}

#[derive(Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(deny_unknown_fields)]
struct PlainRefresh {
    token: String,
    endpoint: String,
    #[serde(default)]
    #[zeroize(skip)]
    body: TokenBody,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_secret: Option<String>,
}

impl Plain {
    pub(crate) fn of(credential: &OauthCredential, login: Option<u64>) -> Self {
        let refresh = credential.refreshing.as_ref().map(|refreshing| PlainRefresh {
            token: refreshing.token.expose_secret().to_owned(),
            endpoint: refreshing.endpoint.clone(),
            body: refreshing.body,
            client_id: refreshing.client_id.clone(),
            client_secret: refreshing.client_secret.as_ref().map(|secret| secret.expose_secret().to_owned()),
        });
        Self {
            access: credential.access.expose_secret().to_owned(),
            issued_ms: credential.issued_ms,
            expires_ms: credential.expires_ms,
            scopes: credential.scopes.clone(),
            refresh,
            login,
        }
    }

    pub(crate) fn open(mut self) -> (OauthCredential, Option<u64>) {
        let refreshing = self.refresh.take().map(|mut refresh| Refreshing {
            token: SecretString::from(std::mem::take(&mut refresh.token)),
            endpoint: std::mem::take(&mut refresh.endpoint),
            body: refresh.body,
            client_id: refresh.client_id.take(),
            client_secret: refresh.client_secret.take().map(SecretString::from),
        });
        let credential = OauthCredential {
            access: SecretString::from(std::mem::take(&mut self.access)),
            issued_ms: self.issued_ms,
            expires_ms: self.expires_ms,
            scopes: std::mem::take(&mut self.scopes),
            refreshing,
        };
        (credential, self.login)
    }
}
