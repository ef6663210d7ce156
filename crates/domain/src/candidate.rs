//! A candidate of a plan, and where the attempt loop gets the next one from.

use std::sync::Arc;

use waybill_event::SourceRef;

/// One source that may serve the request, as planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The source, with the version of its entity that the plan saw.
    pub source: SourceRef,
    /// What is sent as model.
    pub upstream_model: Arc<str>,
    /// Its priority: its tier.
    pub priority: i32,
    /// Its place in the plan, from 0.
    pub place: u32,
    /// Set when the source (or its model) is half-open: asking it is a probe and needs the permit of this opening.
    pub probe_of: Option<Arc<str>>,
    /// Whether it is softly blocked, and here only because nothing better was left.
    pub last_resort: bool,
}

/// The candidates of one request, in the order of its plan.
pub trait Candidates {
    /// The next candidate, drawn when it is needed; `None` at the end. Never the same source and model twice.
    fn next_candidate(&mut self) -> Option<Candidate>;
}
