//! Words and phrases of the rules as numbers, so that an observation's are looked up once and compared as such.

use std::collections::HashMap;

use aho_corasick::AhoCorasick;
use smallvec::SmallVec;

/// The numbers of what an observation's word meets.
pub(super) type Ids = SmallVec<[u32; 4]>;

/// The words of each selector: an observation's word is looked up among its own kind only.
#[derive(Debug, Clone, Default)]
pub(super) struct Vocabulary {
    pub(super) providers: Words,
    pub(super) protocols: Words,
    pub(super) codes: Words,
    pub(super) types: Words,
    pub(super) params: Words,
    pub(super) finish: Words,
}

/// Words in lower case. A `*` at either end stands for anything there.
#[derive(Debug, Clone, Default)]
pub(super) struct Words {
    exact: HashMap<String, u32>,
    parts: Vec<Part>,
}

/// A part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    text: String,
    /// Whether anything may stand before it.
    before: bool,
    /// Whether anything may stand behind it.
    behind: bool,
    number: u32,
}

impl Part {
    fn is_in(&self, word: &str) -> bool {
        match (self.before, self.behind) {
            (true, true) => word.contains(&self.text),
            (true, false) => word.ends_with(&self.text),
            (false, _) => word.starts_with(&self.text),
        }
    }
}

impl Words {
    /// The numbers of a rule's words.
    pub(super) fn numbers(&mut self, words: &[String]) -> Vec<u32> {
        words.iter().map(|word| self.number(word)).collect()
    }

    /// The number of a rule's word.
    fn number(&mut self, word: &str) -> u32 {
        let word = word.to_lowercase();
        let next = u32::try_from(self.exact.len() + self.parts.len()).unwrap_or(u32::MAX);
        let (before, behind) = (word.starts_with('*'), word.ends_with('*'));
        if !before && !behind {
            return *self.exact.entry(word).or_insert(next);
        }
        let text = word.trim_matches('*').to_owned();
        let same = |part: &&Part| part.text == text && part.before == before && part.behind == behind;
        if let Some(part) = self.parts.iter().find(same) {
            return part.number;
        }
        self.parts.push(Part { text, before, behind, number: next });
        next
    }

    /// Adds the numbers of all that an observation's word meets.
    pub(super) fn meet(&self, word: &str, met: &mut Ids) {
        if word.is_empty() {
            return;
        }
        let word = word.to_lowercase();
        met.extend(self.exact.get(&word).copied());
        met.extend(self.parts.iter().filter(|part| part.is_in(&word)).map(|part| part.number));
    }
}

/// Phrases, looked for all at once in one pass over a message.
#[derive(Debug, Clone, Default)]
pub(super) struct Phrases {
    /// Nothing where there are no phrases.
    automaton: Option<AhoCorasick>,
    words: usize,
}

/// The phrases of a set while it is being read.
#[derive(Debug, Default)]
pub(super) struct PhraseList(Vec<String>);

impl PhraseList {
    /// The number of a rule's phrase.
    pub(super) fn number(&mut self, phrase: &str) -> u32 {
        let phrase = phrase.to_lowercase();
        let at = self.0.iter().position(|held| *held == phrase).unwrap_or_else(|| {
            self.0.push(phrase);
            self.0.len() - 1
        });
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// Makes them ready.
    pub(super) fn build(self) -> Result<Phrases, aho_corasick::BuildError> {
        let automaton = match self.0.as_slice() {
            [] => None,
            phrases => Some(AhoCorasick::builder().ascii_case_insensitive(true).build(phrases)?),
        };
        Ok(Phrases { automaton, words: self.0.len().div_ceil(64) })
    }
}

impl Phrases {
    /// Which of them a message has.
    pub(super) fn of(&self, message: &str) -> Said {
        let mut said = Said(SmallVec::from_elem(0, self.words));
        for found in self.automaton.iter().flat_map(|automaton| automaton.find_overlapping_iter(message)) {
            let at = found.pattern().as_usize();
            if let Some(word) = said.0.get_mut(at / 64) {
                *word |= 1 << (at % 64);
            }
        }
        said
    }
}

/// The phrases that a message has.
#[derive(Debug, Default)]
pub(super) struct Said(SmallVec<[u64; 8]>);

impl Said {
    /// Whether it has one of these.
    pub(super) fn any(&self, numbers: &[u32]) -> bool {
        numbers.iter().any(|number| {
            let at = usize::try_from(*number).unwrap_or(usize::MAX);
            self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_meet_in_any_case_and_by_their_parts() {
        let mut words = Words::default();
        let (whole, start, same) = (words.number("Rate"), words.number("rate*"), words.number("RATE"));
        assert_eq!(whole, same);
        let met = |word: &str| {
            let mut met = Ids::new();
            words.meet(word, &mut met);
            met.into_vec()
        };
        assert_eq!(met("RATE"), [whole, start]);
        assert_eq!(met("rate_limit"), [start]);
        let (end, inside) = (words.number("*limit"), words.number("*per_day*"));
        let met = |word: &str| {
            let mut met = Ids::new();
            words.meet(word, &mut met);
            met.into_vec()
        };
        assert_eq!(met("rate_limit"), [start, end]);
        assert_eq!(met("tokens_per_day_free"), [inside]);
        assert!(met("r").is_empty() && met("").is_empty());
    }

    #[test]
    fn phrases_are_found_where_they_overlap_and_in_any_case() {
        let mut list = PhraseList::default();
        let (quota, over, absent, chinese) = (
            list.number("Quota exceeded"),
            list.number("exceeded your"),
            list.number("nothing"),
            list.number("余额不足"),
        );
        let phrases = list.build().unwrap();
        let said = phrases.of("QUOTA EXCEEDED YOUR plan; 余额不足");
        assert!(said.any(&[quota]) && said.any(&[over]) && said.any(&[absent, chinese]));
        assert!(!said.any(&[absent]) && !said.any(&[]));
        assert!(!PhraseList::default().build().unwrap().of("x").any(&[0]));
    }
}
