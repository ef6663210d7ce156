//! Tokens: making them, and telling whose a presented one is.

use std::sync::Arc;

use waybill_domain::catalog::Catalog;
use waybill_domain::catalog::manifest::IssuedToken;
use waybill_event::config::{AdminToken, StoredHash};
use waybill_secret::{Peppers, RandomError, Token, TokenHash, TokenKind};

/// A fresh token with what may be stored of it.
///
/// # Errors
/// When the operating system gives no random bytes.
pub fn mint(peppers: &Peppers, kind: TokenKind) -> Result<(Token, IssuedToken), RandomError> {
    let token = Token::generate(kind)?;
    let issued = IssuedToken { prefix: token.display_prefix(), hash: stored(&peppers.hash(token.expose())) };
    Ok((token, issued))
}

/// The living, enabled admin token that was presented.
#[must_use]
pub fn admin(peppers: &Peppers, catalog: &Catalog, presented: &str) -> Option<Arc<AdminToken>> {
    let mut hashes = peppers.hash_all(presented);
    hashes.find_map(|hash| catalog.admin_token_by_hash(&stored(&hash)).filter(|token| token.enabled).cloned())
}

fn stored(hash: &TokenHash) -> StoredHash {
    StoredHash { pepper: hash.pepper.as_str().to_owned(), mac: hash.mac_text() }
}
