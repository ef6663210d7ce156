//! Where a string ends, and whether what is escaped in it may be. Bytes become bits, 64 at a time, and what is escaped is
//! reckoned among those: a search that stops at every backslash takes longer for the stops than for the way.

use wide::u8x16;

/// Bytes that are looked at as one.
const BLOCK: usize = 64;
const LANES: usize = 16;
/// Bytes within which a string that has no escapes counts as short.
const SHORT: usize = 3 * LANES;
/// Every second bit, from the second on.
const ODD: u64 = 0xaaaa_aaaa_aaaa_aaaa;

/// A string's inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inside {
    /// Bytes between the quotes.
    pub(super) length: usize,
    /// Whether nothing in it is escaped.
    pub(super) plain: bool,
}

/// Finds the end of the string whose opening quote stands before `rest`; nothing if it has none, or escapes what can't be.
/// Control characters aren't looked for.
#[inline]
pub(super) fn inside(rest: &[u8]) -> Option<Inside> {
    // Most strings are names and short words without escapes.
    let (parts, _) = rest.as_chunks::<LANES>();
    for (number, part) in parts.iter().take(SHORT / LANES).enumerate() {
        let part = u8x16::new(*part);
        let (quotes, slashes) = (equal(part, b'"'), equal(part, b'\\'));
        if slashes & before(quotes) != 0 {
            break;
        }
        if quotes != 0 {
            return Some(Inside { length: number * LANES + index(quotes), plain: true });
        }
    }
    long(rest)
}

fn long(rest: &[u8]) -> Option<Inside> {
    let mut search = Search { rest, at: 0, escape: 0, plain: true };
    let (blocks, tail) = rest.as_chunks::<BLOCK>();
    for block in blocks {
        if let Some(length) = search.block(block)? {
            return Some(Inside { length, plain: search.plain });
        }
    }
    let mut last = [0; BLOCK];
    last.get_mut(..tail.len())?.copy_from_slice(tail);
    let length = search.block(&last)??;
    Some(Inside { length, plain: search.plain })
}

/// A search on its way.
struct Search<'a> {
    rest: &'a [u8],
    at: usize,
    /// 1 if what comes next is escaped.
    escape: u64,
    plain: bool,
}

impl Search<'_> {
    /// Looks at the next block, and gives the string's length if it ends there. Nothing if the string is none.
    #[inline]
    fn block(&mut self, block: &[u8; BLOCK]) -> Option<Option<usize>> {
        let (mut quotes, mut slashes, mut lines) = (0, 0, 0);
        let (parts, _) = block.as_chunks::<LANES>();
        for (number, part) in parts.iter().enumerate() {
            let part = u8x16::new(*part);
            quotes |= equal(part, b'"') << (number * LANES);
            slashes |= equal(part, b'\\') << (number * LANES);
            lines |= equal(part, b'n') << (number * LANES);
        }
        let escaped = self.escaped(slashes);
        let ends = quotes & !escaped;
        let inside = before(ends);
        self.plain &= slashes & inside == 0;
        self.check(escaped & inside & !(quotes | slashes | lines))?;
        if ends != 0 {
            return Some(Some(self.at + index(ends)));
        }
        self.at += BLOCK;
        Some(None)
    }

    /// Which bytes are escaped: those behind a backslash that isn't escaped itself. In a row of backslashes that is every
    /// second one; taking the rows' beginnings from the odd places lets a borrow run through each row.
    fn escaped(&mut self, slashes: u64) -> u64 {
        let may = slashes & !self.escape;
        let codes = ((may << 1 | ODD).wrapping_sub(may)) ^ ODD;
        let escaped = codes ^ (slashes | self.escape);
        self.escape = (codes & slashes) >> 63;
        escaped
    }

    /// Whether bytes of this block may be escaped that aren't what mostly is.
    fn check(&self, mut escaped: u64) -> Option<()> {
        while escaped != 0 {
            let at = self.at + index(escaped);
            match self.rest.get(at)? {
                b'/' | b'b' | b'f' | b'r' | b't' => {}
                b'u' if self.rest.get(at + 1..at + 5)?.iter().all(u8::is_ascii_hexdigit) => {}
                _ => return None,
            }
            escaped &= escaped - 1;
        }
        Some(())
    }
}

/// A bit for each byte that is this one.
fn equal(bytes: u8x16, byte: u8) -> u64 {
    bytes.simd_eq(u8x16::splat(byte)).to_bitmask().into()
}

/// The bits before the first one that is set; all if none is.
const fn before(bits: u64) -> u64 {
    bits.wrapping_sub(1) & !bits
}

/// Where the first bit stands.
const fn index(bits: u64) -> usize {
    bits.trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a reader sees that goes byte by byte.
    fn slowly(rest: &[u8]) -> Option<Inside> {
        let mut plain = true;
        let mut at = 0;
        loop {
            match rest.get(at)? {
                b'"' => return Some(Inside { length: at, plain }),
                b'\\' => {
                    plain = false;
                    at += match rest.get(at + 1)? {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
                        b'u' if rest.get(at + 2..at + 6)?.iter().all(u8::is_ascii_hexdigit) => 6,
                        _ => return None,
                    };
                }
                _ => at += 1,
            }
        }
    }

    #[test]
    fn ends_wherever_a_block_does() {
        for length in 0..150 {
            for inside in ["", "\\\\", "\\\"", "\\\\\\\"", "\\n\\t", "\\u00e9", "\\x", "\\", "\\u12"] {
                for tail in ["", "\"", "\",\"b\":\"c\\\\\"}"] {
                    let text = format!("{}{inside}{tail}", "a".repeat(length));
                    assert_eq!(super::inside(text.as_bytes()), slowly(text.as_bytes()), "{text}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn finds_what_a_slow_reader_finds(start in 0_usize..140, text in "[\\\\]{0,70}(a{0,20}[\\\\nu0/\"x]{0,9}){0,9}") {
            let text = format!("{}{text}", "b".repeat(start));
            prop_assert_eq!(inside(text.as_bytes()), slowly(text.as_bytes()));
        }
    }
}
