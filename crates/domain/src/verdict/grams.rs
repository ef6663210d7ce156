//! A quick "surely not": which runs of four bytes a message may hold, so that most phrases need not be searched for.

const WORDS: usize = 64;

/// A set of the four-byte runs of a text, with false positives and no false negatives.
pub(super) struct Grams([u64; WORDS]);

impl Grams {
    /// The runs of a text; one pass.
    pub(super) fn of(text: &[u8]) -> Self {
        let mut bits = [0; WORDS];
        for gram in text.windows(4) {
            let (word, bit) = place(gram);
            if let Some(slot) = bits.get_mut(word) {
                *slot |= 1 << bit;
            }
        }
        Self(bits)
    }

    /// Whether the text may hold this phrase.
    pub(super) fn may_hold(&self, phrase: &[u8]) -> bool {
        phrase.windows(4).all(|gram| {
            let (word, bit) = place(gram);
            self.0.get(word).is_some_and(|slot| slot >> bit & 1 == 1)
        })
    }
}

fn place(gram: &[u8]) -> (usize, u32) {
    let joined = gram.iter().fold(0_u32, |all, byte| all << 8 | u32::from(*byte));
    let mixed = joined.wrapping_mul(0x9e37_79b1) >> 20;
    (usize::try_from(mixed >> 6).unwrap_or(0) % WORDS, mixed & 63)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_there_is_never_denied(text in "[a-z ]{0,200}", from in 0_usize..200, length in 0_usize..20) {
            let end = (from + length).min(text.len());
            if let Some(part) = text.get(from.min(end)..end) {
                prop_assert!(Grams::of(text.as_bytes()).may_hold(part.as_bytes()));
            }
        }
    }

    #[test]
    fn most_of_what_is_not_there_is_denied() {
        assert!(!Grams::of(b"rate limit reached").may_hold(b"insufficient balance"));
    }
}
