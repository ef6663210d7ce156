//! Rules made ready to be asked, in order, with an index by status so that a verdict needn't try each.

use std::sync::Arc;

use super::RuleSetError;
use super::facts::Facts;
use super::ready::{Ready, Shared};
use super::words::{Phrases, Vocabulary};
use crate::observation::Observation;
use crate::verdict::rule::{Kinds, Rule, StatusRange, Treatment};
use crate::verdict::{Verdict, resolve};

/// Most rules a set holds.
pub(super) const MAX_RULES: usize = 2_000;

/// Rules in the order in which they are tried: the first that holds wins. Custom rules are compiled so too, to be asked
/// before a whole set.
#[derive(Debug, Clone, Default)]
pub struct CompiledRules {
    rules: Vec<Ready>,
    words: Vocabulary,
    phrases: Phrases,
    index: StatusIndex,
}

/// The first rule that holds.
pub(in crate::verdict) struct Found<'a> {
    /// `id@vN`.
    pub(in crate::verdict) label: Arc<str>,
    pub(in crate::verdict) treatment: &'a Treatment,
    /// Whether no rule knows what was seen.
    pub(in crate::verdict) unmatched: bool,
}

impl CompiledRules {
    /// Makes rules ready that follow these treatments of the kinds. The rules stand in the order in which they are tried.
    ///
    /// # Errors
    /// [`RuleSetError`], naming the rule.
    pub fn compile(rules: &[Rule], kinds: &Kinds) -> Result<Self, RuleSetError> {
        Self::of(rules.iter().map(|rule| (rule, false)), kinds)
    }

    /// Each rule with whether its verdicts are about what no rule knows.
    pub(super) fn of<'r>(rules: impl Iterator<Item = (&'r Rule, bool)>, kinds: &Kinds) -> Result<Self, RuleSetError> {
        let mut shared = Shared::default();
        let (mut ready, mut ranges) = (Vec::new(), Vec::new());
        for (rule, unmatched) in rules {
            if ready.len() == MAX_RULES {
                return Err(RuleSetError::TooMany);
            }
            ready.push(shared.ready(kinds, rule, unmatched)?);
            ranges.push(rule.when.status.clone());
        }
        let phrases = shared.phrases.build().map_err(|e| RuleSetError::Unreadable { reason: e.to_string() })?;
        Ok(Self { rules: ready, words: shared.words, phrases, index: StatusIndex::of(&ranges) })
    }

    /// What the first rule that holds says of an observation; nothing if none holds.
    #[must_use]
    pub fn verdict(&self, observation: &Observation) -> Option<Verdict> {
        self.first(observation, &|_| true).map(|found| resolve(&found, observation))
    }

    /// Number of rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The first rule that holds and isn't left out; `holds` is asked with its id.
    pub(in crate::verdict) fn first(
        &self,
        observation: &Observation,
        holds: &dyn Fn(&str) -> bool,
    ) -> Option<Found<'_>> {
        if self.is_empty() {
            return None;
        }
        let facts = Facts::of(observation, &self.words, &self.phrases);
        let mut candidates = self.index.with(facts.status).iter();
        let met = |rule: &&Ready| facts.meet(rule) && holds(rule.id());
        let rule = candidates.find_map(|at| self.rules.get(usize::from(*at)).filter(met))?;
        Some(Found {
            label: Arc::clone(&rule.label),
            treatment: &rule.treatment,
            unmatched: rule.unmatched && facts.tells(),
        })
    }
}

/// Which rules may hold at which status.
#[derive(Debug, Clone, Default)]
struct StatusIndex {
    /// Where the list changes, ascending; the first is 0.
    starts: Vec<u16>,
    /// The rules from each start to the next.
    lists: Vec<Box<[u16]>>,
    /// Those that ask for no status.
    any: Box<[u16]>,
}

impl StatusIndex {
    fn of(ranges: &[Vec<StatusRange>]) -> Self {
        let mut starts: Vec<u16> = ranges.iter().flatten().flat_map(|range| <[u16; 2]>::from(range.bounds())).collect();
        starts.push(0);
        starts.sort_unstable();
        starts.dedup();
        let numbered = || (0_u16..).zip(ranges);
        let at = |status: u16| {
            let holds = |of: &&Vec<StatusRange>| of.is_empty() || of.iter().any(|range| range.contains(status));
            numbered().filter(|(_, of)| holds(of)).map(|(at, _)| at).collect()
        };
        let lists = starts.iter().map(|start| at(*start)).collect();
        let any = numbered().filter(|(_, of)| of.is_empty()).map(|(at, _)| at).collect();
        Self { starts, lists, any }
    }

    fn with(&self, status: Option<u16>) -> &[u16] {
        let Some(status) = status else { return &self.any };
        let at = self.starts.partition_point(|start| *start <= status).saturating_sub(1);
        self.lists.get(at).unwrap_or(&self.any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_finds_what_the_ranges_say() {
        let ranges: Vec<Vec<StatusRange>> = ["429", "400-499", "", "500-599,402"]
            .iter()
            .map(|text| text.split(',').filter(|t| !t.is_empty()).map(|t| t.parse().unwrap()).collect())
            .collect();
        let index = StatusIndex::of(&ranges);
        for status in (0..700).chain([u16::MAX]) {
            let expected: Vec<u16> = (0_u16..)
                .zip(&ranges)
                .filter(|(_, of)| of.is_empty() || of.iter().any(|range| range.contains(status)))
                .map(|(at, _)| at)
                .collect();
            assert_eq!(index.with(Some(status)), expected, "{status}");
        }
        assert_eq!(index.with(None), [2]);
    }
}
