//! Small questions to raw JSON text, answered without building a tree.

mod scan;
mod string;

use std::ops::Range;

pub(crate) use scan::{Scanner, plain_string};

/// The byte-order mark that some servers put before JSON and event streams.
pub(crate) const BOM: &[u8] = b"\xef\xbb\xbf";

/// Upper limit of a JSON body that is read as a tree for error facts; larger ones are judged by shape alone.
pub(crate) const MAX_TREE_BYTES: usize = 64 * 1024;

/// The body without a byte-order mark and without surrounding JSON white space.
pub(crate) fn trim(body: &[u8]) -> &[u8] {
    let body = body.strip_prefix(BOM).unwrap_or(body);
    body.trim_ascii()
}

/// Whether a value says something: not null, not `""`, `[]` or `{}`.
pub(crate) fn says_something(raw: &str) -> bool {
    match raw.as_bytes() {
        b"null" | b"\"\"" | b"[]" | b"{}" => false,
        [b'[' | b'{', inner @ .., b']' | b'}'] => !inner.trim_ascii().is_empty(),
        _ => true,
    }
}

/// Where a part of a text stands in it.
pub(crate) fn span_of(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

/// Whether the raw value is an array.
pub(crate) fn is_array(raw: &str) -> bool {
    raw.starts_with('[')
}

/// `text` cut to at most `max` bytes at a character boundary.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    let end = text.floor_char_boundary(max);
    text.get(..end).unwrap_or(text)
}
