//! Client keys and admin tokens, as hashes: the tokens themselves are shown once and stored nowhere.

use serde::{Deserialize, Serialize};

use super::{Entity, Limits};
use crate::{AdminTokenId, GroupId, KeyId, LogTime};

/// Hash of a token under a pepper.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoredHash {
    /// Id of the pepper.
    pub pepper: String,
    /// HMAC-SHA-256 of the token, hexadecimal.
    pub mac: String,
}

/// A client key's whole state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Its id.
    pub id: KeyId,
    /// Its name, unique among keys that aren't deleted.
    pub name: String,
    /// The group it belongs to.
    pub group: GroupId,
    /// The first characters, by which people recognise it.
    pub prefix: String,
    /// The hash.
    pub hash: StoredHash,
    /// Models it may use; empty means all of its group's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// From when on it is no longer valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<LogTime>,
    /// What may be asked with it in all.
    #[serde(default, skip_serializing_if = "Limits::is_unlimited")]
    pub limits: Limits,
    /// What each of its users may ask; a request names its user in the protocol's own field.
    #[serde(default, skip_serializing_if = "Limits::is_unlimited")]
    pub user_limits: Limits,
    /// Whether it may be used.
    pub enabled: bool,
    /// How many edits it has seen, its creation included.
    pub version: u64,
}

impl Entity for Key {
    const ENTITY: &'static str = "key";
    const VERSION: u16 = 1;
    fn subject_id(&self) -> String {
        self.id.to_string()
    }
    fn version(&self) -> u64 {
        self.version
    }
}

/// An admin token's whole state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdminToken {
    /// Its id.
    pub id: AdminTokenId,
    /// Its name: the actor that edits made with it are recorded under.
    pub name: String,
    /// The first characters, by which people recognise it.
    pub prefix: String,
    /// The hash.
    pub hash: StoredHash,
    /// Whether it may be used.
    pub enabled: bool,
    /// How many edits it has seen, its creation included.
    pub version: u64,
}

impl Entity for AdminToken {
    const ENTITY: &'static str = "admin_token";
    const VERSION: u16 = 1;
    fn subject_id(&self) -> String {
        self.id.to_string()
    }
    fn version(&self) -> u64 {
        self.version
    }
}
