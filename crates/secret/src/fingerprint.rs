//! What may be shown of a credential.

use std::fmt;

use hmac::Mac;
use serde::{Deserialize, Serialize};

use crate::ring::{Key, hex, keyed};
use crate::seal::derive;

const LABEL: &[u8] = b"waybill fingerprint key v1";
const SHOWN_BYTES: usize = 8;

/// Sixteen hexadecimal digits that stand for a credential. They tell whether two are equal, and nothing else: without
/// the ring a guess can't be tested against them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({})", self.0)
    }
}

pub(crate) fn of(key: &Key, credential: &str) -> Fingerprint {
    let mut mac = keyed(&derive(key, LABEL));
    mac.update(credential.as_bytes());
    let mac: [u8; 32] = mac.finalize().into_bytes().into();
    Fingerprint(hex(mac.get(..SHOWN_BYTES).unwrap_or_default()))
}
