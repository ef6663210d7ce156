//! Makes text from outside fit to be stored and shown: keys, tokens, addresses, organisation ids and URL queries are
//! masked, control characters removed, the length bounded. Masks rather too much than too little.

mod echo;
#[cfg(test)]
mod tests;
mod token;

pub use echo::Said;

use token::{Token, judge};

/// Longest text that comes out, in characters.
pub const MAX_CHARS: usize = 300;
/// How much of a text is looked at, in bytes; the rest is dropped at a word's border.
const MAX_INPUT_BYTES: usize = 4096;
/// What stands in place of what was masked.
const MASK: &str = "[masked]";

/// The text with everything secret-like masked, at most [`MAX_CHARS`] characters.
#[must_use]
pub fn mask(text: &str) -> String {
    mask_except(text, &[])
}

/// Like [`mask`], but leaves words that are exactly one of `known`: model names look like tokens.
#[must_use]
pub fn mask_except(text: &str, known: &[&str]) -> String {
    let mut masker = Masker { out: String::with_capacity(text.len().min(MAX_INPUT_BYTES)), known, armed: false };
    let mut rest = bounded(text);
    while !rest.is_empty() {
        let length = rest.find(is_delimiter).unwrap_or(rest.len());
        let (word, after) = rest.split_at(length);
        let gap = after.find(|c| !is_delimiter(c)).unwrap_or(after.len());
        let (delimiters, next) = after.split_at(gap);
        masker.word(word, next.starts_with([':', '=']));
        masker.delimiters(delimiters);
        rest = next;
    }
    match masker.out.char_indices().nth(MAX_CHARS) {
        None => masker.out,
        Some(_) => {
            let end = masker.out.char_indices().nth(MAX_CHARS - 1).map_or(0, |(at, _)| at);
            masker.out.truncate(end);
            masker.out.push('…');
            masker.out
        }
    }
}

/// The part that is looked at. A word that the bound would cut is dropped: half a secret isn't recognised as one.
fn bounded(text: &str) -> &str {
    if text.len() <= MAX_INPUT_BYTES {
        return text;
    }
    let start = crate::json::cut(text, MAX_INPUT_BYTES);
    start.rfind(is_delimiter).and_then(|end| start.get(..end)).unwrap_or_default()
}

fn is_delimiter(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(c, '"' | '\'' | '`' | '<' | '>' | '(' | ')' | '[' | ']' | '{' | '}' | ',' | ';' | '|' | '\\')
}

struct Masker<'a> {
    out: String,
    known: &'a [&'a str],
    /// Whether the next word is the value of a secret's name.
    armed: bool,
}

impl Masker<'_> {
    fn word(&mut self, word: &str, sign_follows: bool) {
        if word.is_empty() {
            return;
        }
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        if self.known.contains(&word) || self.known.contains(&bare) {
            self.armed = false;
            self.out.push_str(word);
            return;
        }
        let armed = std::mem::take(&mut self.armed);
        match judge(word, sign_follows) {
            Token::Name => {
                self.armed = true;
                self.out.push_str(word);
            }
            // A lone `:` or `=` between a name and its value.
            Token::Sign => {
                self.armed = armed;
                self.out.push_str(word);
            }
            Token::Assigned { name } => {
                self.out.push_str(name);
                self.out.push_str(MASK);
            }
            Token::Plain if armed => self.out.push_str(MASK),
            Token::Plain => token::write_masked(word, MASK, &mut self.out),
        }
    }

    fn delimiters(&mut self, delimiters: &str) {
        for c in delimiters.chars() {
            match c {
                c if c.is_whitespace() => self.out.push(' '),
                c if c.is_control() => {}
                c => self.out.push(c),
            }
        }
    }
}
