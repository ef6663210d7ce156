//! A ring of 32-byte keys with ids: the first is active, the others only still open or recognise what they once made.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use zeroize::{Zeroize, Zeroizing};

use crate::random::{self, RandomError};

/// Length of every key, in bytes.
pub const KEY_BYTES: usize = 32;
/// Most keys a ring holds. Every unknown token costs one hash per key, so the ring stays short.
pub const MAX_KEYS: usize = 16;
/// Longest key id, in bytes.
pub const MAX_KEY_ID_BYTES: usize = 32;

/// The public name of a key in a ring: 1 to 32 characters of `A-Z a-z 0-9 _ -`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyId(Arc<str>);

impl KeyId {
    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A fresh random id, so that two rings made apart never give one id to two keys.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn generate() -> Result<Self, RandomError> {
        let mut bytes = [0_u8; 6];
        random::fill(&mut bytes)?;
        Ok(Self(format!("k{}", hex(&bytes)).into()))
    }
}

impl FromStr for KeyId {
    type Err = RingError;

    fn from_str(text: &str) -> Result<Self, RingError> {
        let ok = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if text.is_empty() || text.len() > MAX_KEY_ID_BYTES || !text.chars().all(ok) {
            return Err(RingError::BadKeyId);
        }
        Ok(Self(text.into()))
    }
}

impl TryFrom<String> for KeyId {
    type Error = RingError;

    fn try_from(text: String) -> Result<Self, RingError> {
        text.parse()
    }
}

impl From<KeyId> for String {
    fn from(id: KeyId) -> Self {
        id.0.as_ref().to_owned()
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({})", self.0)
    }
}

/// Why a ring's text was refused. Entries are counted from 1; no variant holds key material.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The text holds no key at all.
    #[error("the ring is empty: write at least one `id:key`")]
    Empty,
    /// More keys than [`MAX_KEYS`].
    #[error("the ring holds more than {MAX_KEYS} keys")]
    TooMany,
    /// An entry has no colon.
    #[error("entry {entry} is not of the form `id:key`")]
    NoColon {
        /// Which entry.
        entry: usize,
    },
    /// A key id is empty, too long or holds a character outside `A-Z a-z 0-9 _ -`.
    #[error("a key id is 1 to {MAX_KEY_ID_BYTES} characters of A-Z a-z 0-9 _ -")]
    BadKeyId,
    /// A key is not the base64url form of 32 bytes.
    #[error("entry {entry}: the key is not base64url of {KEY_BYTES} bytes")]
    BadKey {
        /// Which entry.
        entry: usize,
    },
    /// One id stands twice.
    #[error("entry {entry}: its id stands twice in the ring")]
    Twice {
        /// Which entry.
        entry: usize,
    },
}

/// One key with its id.
pub(crate) struct Key {
    pub(crate) id: KeyId,
    pub(crate) bytes: Zeroizing<[u8; KEY_BYTES]>,
}

/// A non-empty list of keys; the first is the active one.
pub(crate) struct Ring {
    pub(crate) active: Key,
    pub(crate) older: Vec<Key>,
}

impl Ring {
    /// Reads `id:base64url` entries parted by commas or newlines; blank entries and lines that begin with `#` are
    /// passed over.
    pub(crate) fn parse(text: &str) -> Result<Self, RingError> {
        let entries = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.starts_with('#'))
            .flat_map(|line| line.split(','))
            .map(str::trim)
            .filter(|entry| !entry.is_empty());
        let mut ids = HashSet::new();
        let mut keys = Vec::new();
        for (index, text) in entries.enumerate() {
            let entry = index + 1;
            if entry > MAX_KEYS {
                return Err(RingError::TooMany);
            }
            let (id, key) = text.split_once(':').ok_or(RingError::NoColon { entry })?;
            let id: KeyId = id.trim().parse()?;
            if !ids.insert(id.clone()) {
                return Err(RingError::Twice { entry });
            }
            keys.push(Key { id, bytes: decode(key.trim()).ok_or(RingError::BadKey { entry })? });
        }
        let mut keys = keys.into_iter();
        let active = keys.next().ok_or(RingError::Empty)?;
        Ok(Self { active, older: keys.collect() })
    }

    /// A ring of one fresh key.
    pub(crate) fn generate() -> Result<Self, RandomError> {
        let mut bytes = Zeroizing::new([0_u8; KEY_BYTES]);
        random::fill(bytes.as_mut_slice())?;
        Ok(Self { active: Key { id: KeyId::generate()?, bytes }, older: Vec::new() })
    }

    /// The ring as text that [`Ring::parse`] reads, one key a line, to be kept in a file of mode 600.
    pub(crate) fn to_text(&self) -> SecretString {
        let mut text = String::with_capacity((1 + self.older.len()) * (MAX_KEY_ID_BYTES + 48));
        for key in self.keys() {
            let mut encoded = URL_SAFE_NO_PAD.encode(key.bytes.as_slice());
            text.push_str(key.id.as_str());
            text.push(':');
            text.push_str(&encoded);
            text.push('\n');
            encoded.zeroize();
        }
        SecretString::from(text)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.active).chain(&self.older)
    }

    /// Writes the ids only, which is all that any ring ever shows.
    pub(crate) fn fmt_ids(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<&str> = self.keys().map(|key| key.id.as_str()).collect();
        f.debug_struct(name).field("ids", &ids).finish_non_exhaustive()
    }
}

fn decode(text: &str) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
    let decoded = Zeroizing::new(URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?);
    let mut bytes = Zeroizing::new([0_u8; KEY_BYTES]);
    if decoded.len() != KEY_BYTES {
        return None;
    }
    bytes.copy_from_slice(&decoded);
    Some(bytes)
}

/// HMAC-SHA-256 under `key`. HMAC itself pads a short key with zeros to one block of its hash; doing it here makes the
/// key's length a fact of the type, so nothing can fail.
pub(crate) fn keyed(key: &[u8; KEY_BYTES]) -> Hmac<Sha256> {
    let mut block = Zeroizing::new([0_u8; 2 * KEY_BYTES]);
    for (to, from) in block.iter_mut().zip(key) {
        *to = *from;
    }
    Hmac::new(&(*block).into())
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |n: u8| n + if n < 10 { b'0' } else { b'a' - 10 };
    let mut text = Vec::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    String::from_utf8(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn key(byte: u8) -> String {
        URL_SAFE_NO_PAD.encode([byte; KEY_BYTES])
    }

    #[track_caller]
    fn check(text: &str, expected: Result<&[&str], RingError>) {
        let got = Ring::parse(text).map(|ring| ring.keys().map(|k| k.id.to_string()).collect::<Vec<_>>());
        let expected = expected.map(|ids| ids.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(got, expected, "for {text:?}");
    }

    #[test]
    fn entries_are_parted_by_commas_or_lines_and_the_first_is_active() {
        check(&format!("a:{}", key(1)), Ok(&["a"]));
        check(&format!("# newest first\nb:{} , a:{}\n\n", key(2), key(1)), Ok(&["b", "a"]));
        check(&format!("b:{}=\na:{}", key(2), key(1)), Ok(&["b", "a"]));
    }

    #[test]
    fn every_fault_has_its_name() {
        check("", Err(RingError::Empty));
        check("# only a comment", Err(RingError::Empty));
        check("abc", Err(RingError::NoColon { entry: 1 }));
        check("a b:x", Err(RingError::BadKeyId));
        check("a:short", Err(RingError::BadKey { entry: 1 }));
        check(&format!("a:{},b:{}!", key(1), key(2)), Err(RingError::BadKey { entry: 2 }));
        check(&format!("a:{},a:{}", key(1), key(2)), Err(RingError::Twice { entry: 2 }));
        let many: Vec<String> = (0..17).map(|n| format!("k{n}:{}", key(n))).collect();
        check(&many.join(","), Err(RingError::TooMany));
    }

    #[test]
    fn a_ring_survives_its_own_text() {
        let ring = Ring::generate().unwrap();
        let again = Ring::parse(ring.to_text().expose_secret()).unwrap();
        assert_eq!(ring.active.id, again.active.id);
        assert_eq!(*ring.active.bytes, *again.active.bytes);
    }

    #[test]
    fn hex_is_lower_case_and_complete() {
        assert_eq!(hex(&[0, 0x0f, 0xa5, 0xff]), "000fa5ff");
    }
}
