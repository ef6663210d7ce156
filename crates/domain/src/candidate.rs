//! A candidate of a plan, and where the attempt loop gets the next one from.

use std::sync::Arc;

use waybill_event::SourceRef;
use waybill_event::config::Capabilities;

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
    /// How many probes of that opening may run at once in the whole fleet.
    pub probes: u32,
    /// Whether it is softly blocked, and here only because nothing better was left.
    pub last_resort: bool,
    /// Whether its breaker is open, and it is here all the same: too much of its tier would be out, or nothing better was
    /// left.
    pub despite_open: bool,
    /// What it can do, as far as it is declared.
    pub capabilities: Capabilities,
    /// The route's target that it serves, from 0.
    pub target: u32,
    /// Its health factor as planned, 1 to 100.
    pub health: u8,
}

/// The candidates of one request, in the order of its plan.
pub trait Candidates {
    /// The next candidate, drawn when it is needed; `None` at the end. Never the same source and model twice.
    fn next_candidate(&mut self) -> Option<Candidate>;

    /// Goes on to the route's next target, once nobody is left for the present one; whether there was one. What comes
    /// next serves another model.
    fn next_target(&mut self) -> bool;

    /// Asks the retry budget of the candidate's model for a further try that strains what may be ill: at the same source,
    /// or at one whose health is low. A yes is counted.
    fn may_strain(&mut self, candidate: &Candidate) -> bool;
}
