//! Our own tokens: client keys and admin tokens.
//!
//! A token is a prefix that names its kind, 43 characters of base62 (256 random bits) and 6 characters of checksum, so
//! that a mistyped or cut token is told apart from a revoked one, and secret scanners can recognise ours.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::random::{self, RandomError};

const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// 43 × log2(62) is 256.03 bits.
const BODY_CHARS: usize = 43;
const CHECKSUM_CHARS: usize = 6;
/// How much of the body a display prefix shows: about 24 of its 256 bits.
const SHOWN_CHARS: usize = 4;

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// A client's key on the proxy: `wb-key-…`.
    ClientKey,
    /// An admin's token on the admin API: `wb-admin-…`.
    AdminToken,
}

impl TokenKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::ClientKey, Self::AdminToken];

    /// What every token of this kind begins with.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::ClientKey => "wb-key-",
            Self::AdminToken => "wb-admin-",
        }
    }
}

/// What can be told of a presented token by its form alone, without knowing any token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenShape {
    /// Begins like one of ours, and its checksum holds.
    WellFormed(TokenKind),
    /// Begins like one of ours but was mistyped or cut.
    Damaged(TokenKind),
    /// Doesn't begin like one of ours: probably another service's key.
    Foreign,
}

impl TokenShape {
    /// Looks at the form of `text`.
    #[must_use]
    pub fn of(text: &str) -> Self {
        for kind in TokenKind::ALL {
            let Some(rest) = text.strip_prefix(kind.prefix()) else { continue };
            return match rest.split_at_checked(BODY_CHARS) {
                Some((body, sum)) if bool::from(checksum(kind, body).as_bytes().ct_eq(sum.as_bytes())) => {
                    Self::WellFormed(kind)
                }
                Some(_) | None => Self::Damaged(kind),
            };
        }
        Self::Foreign
    }
}

/// A freshly made token: shown once to whoever asked for it, then only its hash remains.
pub struct Token {
    kind: TokenKind,
    text: SecretString,
}

impl Token {
    /// Draws a new token.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn generate(kind: TokenKind) -> Result<Self, RandomError> {
        let body = random_body()?;
        let text = format!("{}{}{}", kind.prefix(), body.as_str(), checksum(kind, &body));
        Ok(Self { kind, text: SecretString::from(text) })
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> TokenKind {
        self.kind
    }

    /// The token itself, for the one moment in which it is handed over.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.text.expose_secret()
    }

    /// The token as a secret, for whoever keeps it.
    #[must_use]
    pub fn into_secret(self) -> SecretString {
        self.text
    }

    /// What may be shown of it for ever, for instance `wb-key-Ab3d…`.
    #[must_use]
    pub fn display_prefix(&self) -> String {
        display_prefix(self.expose())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// What may be shown of a token: its kind's prefix and four more characters. Of a foreign token, nothing but `…`.
#[must_use]
pub fn display_prefix(token: &str) -> String {
    let shown = TokenKind::ALL.iter().find_map(|kind| {
        let rest = token.strip_prefix(kind.prefix())?;
        // A short damaged token must not be shown whole.
        let shown: String = rest.chars().take(if rest.len() < BODY_CHARS { 0 } else { SHOWN_CHARS }).collect();
        Some(format!("{}{shown}", kind.prefix()))
    });
    format!("{}…", shown.unwrap_or_default())
}

fn random_body() -> Result<Zeroizing<String>, RandomError> {
    let mut body = Zeroizing::new(String::with_capacity(BODY_CHARS));
    let mut bytes = Zeroizing::new([0_u8; 64]);
    while body.len() < BODY_CHARS {
        random::fill(bytes.as_mut_slice())?;
        // 248 is the largest multiple of 62 in a byte: what lies above would make some characters likelier.
        let chars = bytes.iter().filter(|byte| **byte < 248).map(|byte| alphabet(u64::from(*byte)));
        let missing = BODY_CHARS - body.len();
        body.extend(chars.take(missing));
    }
    Ok(body)
}

/// Six base62 characters of SHA-256 over kind and body. It hides nothing that the token doesn't hold already.
fn checksum(kind: TokenKind, body: &str) -> String {
    let digest: [u8; 32] = Sha256::new().chain_update(kind.prefix()).chain_update(body).finalize().into();
    let mut number = digest.iter().take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    (0..CHECKSUM_CHARS)
        .map(|_| {
            let c = alphabet(number);
            number /= 62;
            c
        })
        .collect()
}

fn alphabet(number: u64) -> char {
    ALPHABET.get((number % 62) as usize).copied().map_or('A', char::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: TokenShape) {
        assert_eq!(TokenShape::of(text), expected, "for {text:?}");
    }

    #[test]
    fn a_token_names_its_kind_and_holds_its_checksum() {
        for kind in TokenKind::ALL {
            let token = Token::generate(kind).unwrap();
            assert_eq!(token.expose().len(), kind.prefix().len() + BODY_CHARS + CHECKSUM_CHARS);
            check(token.expose(), TokenShape::WellFormed(kind));
        }
    }

    #[test]
    fn two_tokens_differ() {
        let [a, b] = [(); 2].map(|()| Token::generate(TokenKind::ClientKey).unwrap());
        assert_ne!(a.expose(), b.expose());
    }

    #[test]
    fn a_typo_anywhere_and_a_cut_are_seen() {
        let token = Token::generate(TokenKind::ClientKey).unwrap();
        let text = token.expose();
        for at in TokenKind::ClientKey.prefix().len()..text.len() {
            let mut typo = text.as_bytes().to_vec();
            typo[at] = if typo[at] == b'x' { b'y' } else { b'x' };
            check(std::str::from_utf8(&typo).unwrap(), TokenShape::Damaged(TokenKind::ClientKey));
        }
        check(&text[..text.len() - 1], TokenShape::Damaged(TokenKind::ClientKey));
        check(&format!("{text}x"), TokenShape::Damaged(TokenKind::ClientKey));
        check("wb-admin-", TokenShape::Damaged(TokenKind::AdminToken));
        check("wb-key-ééééééééééééééééééééééééé", TokenShape::Damaged(TokenKind::ClientKey));
        check("sk-proj-abc", TokenShape::Foreign);
        check("", TokenShape::Foreign);
    }

    #[test]
    fn only_the_beginning_is_ever_shown() {
        let token = Token::generate(TokenKind::ClientKey).unwrap();
        let shown = token.display_prefix();
        assert_eq!(shown, format!("{}…", &token.expose()[.."wb-key-".len() + 4]));
        assert_eq!(display_prefix("wb-key-abc"), "wb-key-…");
        assert_eq!(display_prefix("sk-foreign"), "…");
        assert_eq!(format!("{token:?}"), "Token { kind: ClientKey, .. }");
    }

    #[test]
    fn every_character_of_the_alphabet_turns_up() {
        let bodies: String = (0..100).map(|_| random_body().unwrap().as_str().to_owned()).collect();
        assert!(ALPHABET.iter().all(|c| bodies.contains(char::from(*c))));
    }
}
