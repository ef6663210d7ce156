//! What a request needs of the model that serves it, and what a model declared so can't give.

use smallvec::SmallVec;
use waybill_event::config::{Capabilities, Capability};

/// Capabilities by name.
pub type Missing = SmallVec<[Capability; 2]>;

/// What a request needs, as far as its body tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// It offers tools.
    pub tools: bool,
    /// It shows images.
    pub vision: bool,
    /// It wants an answer by a JSON schema.
    pub json_schema: bool,
    /// Size of its body, in bytes.
    pub body_bytes: u64,
    /// Tokens that prompt and answer need at the least: a bound from below, never a guess.
    pub tokens: u64,
    /// Tokens that a source before has called too many for its window: only a model that declares more is asked.
    pub more_than: Option<u64>,
}

impl Needs {
    /// The capabilities that the request needs whatever its size.
    #[must_use]
    pub fn named(&self) -> Missing {
        let needed = [
            (self.tools, Capability::Tools),
            (self.vision, Capability::Vision),
            (self.json_schema, Capability::JsonSchema),
        ];
        needed.into_iter().filter_map(|(needed, capability)| needed.then_some(capability)).collect()
    }

    /// What a model with these declared capabilities can't give. What isn't declared is taken to be there, but for a
    /// window that is known to be needed larger.
    #[must_use]
    pub fn missing(&self, declared: &Capabilities) -> Missing {
        let lacks = |needed: bool, has: Option<bool>| needed && has == Some(false);
        let window = match (declared.context_window, self.more_than) {
            (window, Some(more)) => window.is_none_or(|window| window <= more.max(self.tokens)),
            (Some(window), None) => window < self.tokens,
            (None, None) => false,
        };
        let missing = [
            (window, Capability::ContextWindow),
            (declared.max_body_bytes.is_some_and(|most| most < self.body_bytes), Capability::MaxBodyBytes),
            (lacks(self.tools, declared.tools), Capability::Tools),
            (lacks(self.vision, declared.vision), Capability::Vision),
            (lacks(self.json_schema, declared.json_schema), Capability::JsonSchema),
        ];
        missing.into_iter().filter_map(|(missing, capability)| missing.then_some(capability)).collect()
    }

    /// Whether a model with these declared capabilities can serve the request.
    #[must_use]
    pub fn met_by(&self, declared: &Capabilities) -> bool {
        self.missing(declared).is_empty()
    }
}

/// What a target declares less of than the first one does: what a degraded answer lacks.
#[must_use]
pub fn lesser(first: &Capabilities, served: &Capabilities) -> Missing {
    let less = |first: Option<u64>, served: Option<u64>| matches!((first, served), (Some(f), Some(s)) if s < f);
    let lost = |first: Option<bool>, served: Option<bool>| first == Some(true) && served == Some(false);
    let missing = [
        (less(first.context_window, served.context_window), Capability::ContextWindow),
        (less(first.max_body_bytes, served.max_body_bytes), Capability::MaxBodyBytes),
        (lost(first.tools, served.tools), Capability::Tools),
        (lost(first.vision, served.vision), Capability::Vision),
        (lost(first.json_schema, served.json_schema), Capability::JsonSchema),
    ];
    missing.into_iter().filter_map(|(missing, capability)| missing.then_some(capability)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_declared_missing_is_missing() {
        let check = |needs: Needs, declared: Capabilities, expected: &[Capability]| {
            assert_eq!(needs.missing(&declared).as_slice(), expected, "{needs:?} of {declared:?}");
        };
        let needs = Needs { tools: true, tokens: 1_000, body_bytes: 5_000, ..Needs::default() };
        let none = Capabilities::default();
        check(needs, none, &[]);
        check(needs, Capabilities { tools: Some(true), vision: Some(false), ..none }, &[]);
        check(needs, Capabilities { tools: Some(false), ..none }, &[Capability::Tools]);
        check(needs, Capabilities { context_window: Some(1_000), ..none }, &[]);
        check(needs, Capabilities { context_window: Some(999), ..none }, &[Capability::ContextWindow]);
        check(needs, Capabilities { max_body_bytes: Some(4_999), ..none }, &[Capability::MaxBodyBytes]);
        let overflown = Needs { more_than: Some(8_000), ..needs };
        check(overflown, none, &[Capability::ContextWindow]);
        check(overflown, Capabilities { context_window: Some(8_000), ..none }, &[Capability::ContextWindow]);
        check(overflown, Capabilities { context_window: Some(8_001), ..none }, &[]);
    }

    #[test]
    fn a_lesser_target_is_told_by_what_it_declares() {
        let first = Capabilities { context_window: Some(9), tools: Some(true), ..Capabilities::default() };
        let served = Capabilities { context_window: Some(8), tools: Some(false), ..Capabilities::default() };
        assert_eq!(lesser(&first, &served).as_slice(), [Capability::ContextWindow, Capability::Tools]);
        assert!(lesser(&first, &Capabilities::default()).is_empty(), "unknown is not less");
    }
}
