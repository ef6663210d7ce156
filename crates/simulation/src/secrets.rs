//! Keys and credentials of the simulated fleet. Nothing here is secret.

use std::sync::Arc;

use secrecy::SecretString;
use waybill_event::config::StoredHash;
use waybill_secret::{KeyRing, Peppers, Vault};

const RING: &str = "k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// An empty vault with the fleet's ring.
#[must_use]
pub fn vault() -> Arc<Vault> {
    Arc::new(Vault::new(KeyRing::parse(&SecretString::from(RING)).unwrap()))
}

/// The fleet's peppers.
#[must_use]
pub fn peppers() -> Arc<Peppers> {
    Arc::new(Peppers::parse(&SecretString::from(RING)).unwrap())
}

/// A client's token.
#[must_use]
pub fn token(key: u64) -> String {
    format!("wb-key-{key}")
}

/// The hash that configuration holds of a client's token.
#[must_use]
pub fn hash(key: u64) -> StoredHash {
    let hash = peppers().hash(&token(key));
    StoredHash { pepper: hash.pepper.as_str().to_owned(), mac: hash.mac_text() }
}
