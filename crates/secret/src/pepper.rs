//! Hashing of tokens with a server-side pepper.
//!
//! Our tokens hold 256 random bits, so a slow hash would protect nothing and would hand attackers a lever on the hot
//! path. The pepper keeps a leaked table from being tested offline.

use std::fmt;

use hmac::{Hmac, Mac};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::random::RandomError;
use crate::ring::{Key, KeyId, Ring, RingError, hex, keyed};

/// Length of the hash, in bytes.
pub const MAC_BYTES: usize = 32;

/// The hash of a token under one pepper. In JSON: `{"pepper": id, "mac": 64 hexadecimal digits}`.
///
/// Looking one up in a hash map is safe: whoever can't compute the HMAC can't steer which entries a guess is compared
/// with.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenHash {
    /// Which pepper made it.
    pub pepper: KeyId,
    /// HMAC-SHA-256 of the token.
    #[serde(with = "mac_hex")]
    pub mac: [u8; MAC_BYTES],
}

impl TokenHash {
    /// Puts a hash together from the two texts of its JSON form; `None` when one of them isn't what it should be.
    #[must_use]
    pub fn from_texts(pepper: &str, mac: &str) -> Option<Self> {
        Some(Self { pepper: pepper.parse().ok()?, mac: unhex(mac)? })
    }

    /// The hash as 64 hexadecimal digits.
    #[must_use]
    pub fn mac_text(&self) -> String {
        hex(&self.mac)
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenHash").field("pepper", &self.pepper).finish_non_exhaustive()
    }
}

/// The peppers: the first is active and hashes new tokens, the older ones still recognise theirs.
///
/// The key schedule of each is computed once, so a hash costs two compressions of SHA-256.
pub struct Peppers {
    ring: Ring,
    active: Pepper,
    older: Vec<Pepper>,
}

struct Pepper {
    id: KeyId,
    mac: Hmac<Sha256>,
}

impl Pepper {
    fn new(key: &Key) -> Self {
        Self { id: key.id.clone(), mac: keyed(&key.bytes) }
    }

    fn hash(&self, token: &str) -> TokenHash {
        let mut mac = self.mac.clone();
        mac.update(token.as_bytes());
        TokenHash { pepper: self.id.clone(), mac: mac.finalize().into_bytes().into() }
    }
}

impl Peppers {
    /// Reads `id:base64url(32 bytes)` entries parted by commas or newlines; the first is active.
    ///
    /// # Errors
    /// [`RingError`] names the entry and the fault, never the pepper.
    pub fn parse(text: &SecretString) -> Result<Self, RingError> {
        Ok(Self::from_ring(Ring::parse(text.expose_secret())?))
    }

    /// One fresh pepper.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn generate() -> Result<Self, RandomError> {
        Ok(Self::from_ring(Ring::generate()?))
    }

    fn from_ring(ring: Ring) -> Self {
        let (active, older) = (Pepper::new(&ring.active), ring.older.iter().map(Pepper::new).collect());
        Self { ring, active, older }
    }

    /// The peppers as text for a file that only its owner reads.
    #[must_use]
    pub fn to_text(&self) -> SecretString {
        self.ring.to_text()
    }

    /// Id of the pepper that hashes new tokens.
    #[must_use]
    pub fn active(&self) -> &KeyId {
        &self.active.id
    }

    /// The hash of `token` under the active pepper, for storing.
    #[must_use]
    pub fn hash(&self, token: &str) -> TokenHash {
        self.active.hash(token)
    }

    /// The hash of `token` under each pepper, the active one first and each computed only when asked for, for looking
    /// a presented token up.
    pub fn hash_all<'a>(&'a self, token: &'a str) -> impl Iterator<Item = TokenHash> + 'a {
        std::iter::once(&self.active).chain(&self.older).map(|pepper| pepper.hash(token))
    }
}

impl fmt::Debug for Peppers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ring.fmt_ids("Peppers", f)
    }
}

fn unhex(text: &str) -> Option<[u8; MAC_BYTES]> {
    let digits = text.as_bytes();
    let mut bytes = [0_u8; MAC_BYTES];
    if digits.len() != 2 * MAC_BYTES {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        let digit = |c: &u8| match c {
            b'0'..=b'9' => Some(c - b'0'),
            b'a'..=b'f' => Some(c - b'a' + 10),
            _ => None,
        };
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(bytes)
}

mod mac_hex {
    use super::{MAC_BYTES, hex, unhex};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(mac: &[u8; MAC_BYTES], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(mac))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; MAC_BYTES], D::Error> {
        unhex(&String::deserialize(deserializer)?)
            .ok_or_else(|| D::Error::custom("not 64 lower-case hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key: 32 zero bytes, token: `wb-key-x`. Computed with OpenSSL.
    const KNOWN: &str = "17c5c43a2ad72ffd333f3d803fe380618c259a50473e554a3558ff81c26cfe8f";
    const ZERO: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    const OTHER: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE";

    fn peppers(text: &str) -> Peppers {
        Peppers::parse(&SecretString::from(text)).unwrap()
    }

    #[test]
    fn it_is_hmac_sha_256() {
        let hash = peppers(&format!("p1:{ZERO}")).hash("wb-key-x");
        assert_eq!((hash.pepper.as_str(), hash.mac_text().as_str()), ("p1", KNOWN));
    }

    #[test]
    fn an_older_pepper_still_recognises_its_tokens() {
        let stored = peppers(&format!("p1:{ZERO}")).hash("wb-key-x");
        let rotated = peppers(&format!("p2:{OTHER},p1:{ZERO}"));
        assert_ne!(rotated.hash("wb-key-x"), stored);
        assert_eq!(rotated.hash_all("wb-key-x").position(|hash| hash == stored), Some(1));
        assert_eq!(rotated.hash_all("wb-key-y").position(|hash| hash == stored), None);
    }

    #[test]
    fn the_json_form_comes_back_and_faults_are_refused() {
        let hash = peppers(&format!("p1:{ZERO}")).hash("wb-key-x");
        let json = serde_json::to_string(&hash).unwrap();
        assert_eq!(json, format!(r#"{{"pepper":"p1","mac":"{KNOWN}"}}"#));
        assert_eq!(serde_json::from_str::<TokenHash>(&json).unwrap(), hash);
        assert_eq!(TokenHash::from_texts("p1", KNOWN).unwrap(), hash);
        for mac in ["", "00", &KNOWN.to_uppercase(), &"zz".repeat(32)] {
            assert!(TokenHash::from_texts("p1", mac).is_none(), "{mac}");
        }
    }

    #[test]
    fn debug_shows_ids_only() {
        let peppers = peppers(&format!("p1:{ZERO}"));
        assert_eq!(format!("{peppers:?}"), r#"Peppers { ids: ["p1"], .. }"#);
        assert_eq!(format!("{:?}", peppers.hash("x")), "TokenHash { pepper: KeyId(p1), .. }");
    }
}
