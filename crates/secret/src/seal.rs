//! Sealing with XChaCha20-Poly1305: bound to what it belongs to and to the key that sealed it.
//!
//! A random 24-byte nonce is safe to draw for each seal (the chance of a repeat stays negligible far beyond 2^48
//! seals), so no counter has to be kept anywhere.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{Key as CipherKey, KeyInit, XChaCha20Poly1305, XNonce};
use hmac::Mac;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::fingerprint::{self, Fingerprint};
use crate::random::{self, RandomError};
use crate::ring::{KEY_BYTES, Key, KeyId, Ring, RingError, keyed};

/// Length of a nonce, in bytes.
pub const NONCE_BYTES: usize = 24;
/// Longest plaintext that is sealed, in bytes: an OAuth token set fits, a file doesn't, and a sealed event stays far
/// below the bus's payload limit.
pub const MAX_PLAINTEXT_BYTES: usize = 64 * 1024;

const AAD_LABEL: &str = "waybill seal v1";
const CIPHER_LABEL: &[u8] = b"waybill cipher key v1";

/// What a sealed value belongs to. It can be opened under this and nothing else, so a ciphertext copied to another
/// channel or another field is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aad<'a> {
    /// Kind of entity, for instance `channel`.
    pub entity_kind: &'a str,
    /// Id of that entity.
    pub entity_id: &'a str,
    /// Field of that entity, for instance `credential`.
    pub field: &'a str,
}

impl Aad<'_> {
    /// Every part with its length before it, so that no two different associations give one encoding.
    fn encode(&self, kid: &KeyId) -> Vec<u8> {
        let parts = [AAD_LABEL, self.entity_kind, self.entity_id, self.field, kid.as_str()];
        let mut out = Vec::with_capacity(parts.iter().map(|part| part.len() + 8).sum());
        for part in parts {
            out.extend_from_slice(&(part.len() as u64).to_be_bytes());
            out.extend_from_slice(part.as_bytes());
        }
        out
    }
}

/// A sealed value. In JSON: `{"kid": id, "nonce": base64url, "ct": base64url}`; it may be stored and shown anywhere.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sealed {
    /// Which key of the ring sealed it.
    pub kid: KeyId,
    /// 24 bytes, drawn afresh for this value.
    #[serde(with = "base64url")]
    pub nonce: Vec<u8>,
    /// Ciphertext with its 16-byte tag.
    #[serde(with = "base64url")]
    pub ct: Vec<u8>,
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealed").field("kid", &self.kid).field("bytes", &self.ct.len()).finish_non_exhaustive()
    }
}

impl Sealed {
    /// Puts a sealed value together from the three texts of its JSON form.
    ///
    /// # Errors
    /// [`OpenError::Malformed`] when one of them isn't what it should be.
    pub fn from_texts(kid: &str, nonce: &str, ct: &str) -> Result<Self, OpenError> {
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| OpenError::Malformed);
        Ok(Self { kid: kid.parse().map_err(|_| OpenError::Malformed)?, nonce: decode(nonce)?, ct: decode(ct)? })
    }

    /// The nonce as base64url.
    #[must_use]
    pub fn nonce_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(&self.nonce)
    }

    /// Ciphertext and tag as base64url.
    #[must_use]
    pub fn ct_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(&self.ct)
    }
}

/// Why a value couldn't be sealed.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// No randomness for the nonce.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The plaintext is longer than [`MAX_PLAINTEXT_BYTES`].
    #[error("a secret of {bytes} bytes is longer than the {MAX_PLAINTEXT_BYTES} that are sealed")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The cipher refused, which its contract excludes for plaintexts of this length.
    #[error("the cipher refused to seal")]
    Cipher,
}

/// Why a sealed value couldn't be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The ring doesn't hold the key that sealed it.
    #[error("the ring holds no key `{kid}`")]
    UnknownKey {
        /// The key asked for.
        kid: KeyId,
    },
    /// Another key, another association, or a changed byte: the cipher doesn't tell which.
    #[error("the sealed value doesn't belong here or was changed")]
    Refused,
    /// The nonce has the wrong length, or a part isn't base64url.
    #[error("the sealed value is malformed")]
    Malformed,
    /// What was sealed isn't UTF-8.
    #[error("the sealed value isn't text")]
    NotText,
}

/// The keys that seal and open. The first is active: it seals. All of them open.
///
/// Debug shows the ids only; the keys are wiped when the ring is dropped.
pub struct KeyRing {
    ring: Ring,
}

impl KeyRing {
    /// Reads `id:base64url(32 bytes)` entries parted by commas or newlines; the first is active.
    ///
    /// # Errors
    /// [`RingError`] names the entry and the fault, never the key.
    pub fn parse(text: &SecretString) -> Result<Self, RingError> {
        Ok(Self { ring: Ring::parse(text.expose_secret())? })
    }

    /// A ring of one fresh key.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn generate() -> Result<Self, RandomError> {
        Ok(Self { ring: Ring::generate()? })
    }

    /// The ring as text for a file that only its owner reads.
    #[must_use]
    pub fn to_text(&self) -> SecretString {
        self.ring.to_text()
    }

    /// Id of the key that seals.
    #[must_use]
    pub fn active(&self) -> &KeyId {
        &self.ring.active.id
    }

    /// Seals `plaintext` under the active key and `aad`.
    ///
    /// # Errors
    /// [`SealError`]: too long, or no randomness.
    pub fn seal(&self, aad: &Aad<'_>, plaintext: &SecretString) -> Result<Sealed, SealError> {
        let plaintext = plaintext.expose_secret().as_bytes();
        if plaintext.len() > MAX_PLAINTEXT_BYTES {
            return Err(SealError::TooLong { bytes: plaintext.len() });
        }
        let key = &self.ring.active;
        let mut nonce = [0_u8; NONCE_BYTES];
        random::fill(&mut nonce)?;
        let payload = Payload { msg: plaintext, aad: &aad.encode(&key.id) };
        let ct = cipher(key).encrypt(&XNonce::from(nonce), payload).map_err(|_| SealError::Cipher)?;
        Ok(Sealed { kid: key.id.clone(), nonce: nonce.to_vec(), ct })
    }

    /// Opens what [`KeyRing::seal`] made under the same association.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(&self, aad: &Aad<'_>, sealed: &Sealed) -> Result<SecretString, OpenError> {
        let key = self
            .ring
            .keys()
            .find(|key| key.id == sealed.kid)
            .ok_or_else(|| OpenError::UnknownKey { kid: sealed.kid.clone() })?;
        let nonce: [u8; NONCE_BYTES] = sealed.nonce.as_slice().try_into().map_err(|_| OpenError::Malformed)?;
        let payload = Payload { msg: &sealed.ct, aad: &aad.encode(&key.id) };
        let plaintext =
            Zeroizing::new(cipher(key).decrypt(&XNonce::from(nonce), payload).map_err(|_| OpenError::Refused)?);
        let text = std::str::from_utf8(&plaintext).map_err(|_| OpenError::NotText)?;
        Ok(SecretString::from(text))
    }

    /// What may be shown of a credential: equal credentials have equal fingerprints under one active key, and without
    /// the ring nobody can test a guess against one. Rotating the ring changes them.
    #[must_use]
    pub fn fingerprint(&self, credential: &SecretString) -> Fingerprint {
        fingerprint::of(&self.ring.active, credential.expose_secret())
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ring.fmt_ids("KeyRing", f)
    }
}

fn cipher(key: &Key) -> XChaCha20Poly1305 {
    let derived = derive(key, CIPHER_LABEL);
    XChaCha20Poly1305::new(&CipherKey::from(*derived))
}

/// A key for one purpose, so that no two uses of the ring ever share one.
pub(crate) fn derive(key: &Key, purpose: &[u8]) -> Zeroizing<[u8; KEY_BYTES]> {
    let mut mac = keyed(&key.bytes);
    mac.update(purpose);
    Zeroizing::new(mac.finalize().into_bytes().into())
}

mod base64url {
    use super::{Engine, URL_SAFE_NO_PAD};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&URL_SAFE_NO_PAD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        URL_SAFE_NO_PAD.decode(text).map_err(|_| D::Error::custom("not base64url"))
    }
}

#[cfg(test)]
mod tests;
