//! Sealing of credentials at rest, their fingerprints, and the making and hashing of our own tokens.
//! No storage and no configuration here, and nothing in this crate prints a secret: whoever needs one asks for it by name.

pub mod bearer;
pub mod fingerprint;
pub mod oauth;
pub mod pepper;
pub mod ring;
pub mod seal;
pub mod token;
pub mod vault;

mod random;

pub use bearer::{Bearer, NoBearer};
pub use fingerprint::Fingerprint;
pub use oauth::{OauthCredential, Refreshing, Shown, TokenBody};
pub use pepper::{Peppers, TokenHash};
pub use random::RandomError;
pub use ring::{KeyId, RingError};
pub use seal::{Aad, KeyRing, OpenError, SealError, Sealed};
pub use secrecy::{ExposeSecret, SecretString};
pub use token::{Token, TokenKind, TokenShape, display_prefix};
pub use vault::{ACCOUNT, AccountTokens, Vault, VaultError};
