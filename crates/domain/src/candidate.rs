//! A candidate of a plan, and where the attempt loop gets the next one from.

use std::sync::Arc;
use std::time::Duration;

use waybill_event::config::Capabilities;
use waybill_event::selection::SkipReason;
use waybill_event::{LogTime, SourceRef};

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
    /// Whether the request's conversation is served there.
    pub sticky: bool,
    /// Set where it waits for the end of a limit, and is here only because nothing better was left.
    pub waiting: Option<Waiting>,
}

/// A limit that keeps a candidate out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Why the table has it out.
    pub why: SkipReason,
    /// The limit's end.
    pub ends: LogTime,
    /// The same, counted from the request's admission.
    pub not_before: Duration,
    /// The block, where its upstream hasn't told of it for so long that one request at a time may try again. That needs
    /// the block's permit.
    pub retry_of: Option<Arc<str>>,
}

impl Candidate {
    /// The block whose permit asking it needs.
    #[must_use]
    pub fn retry_of(&self) -> Option<&Arc<str>> {
        self.waiting.as_ref()?.retry_of.as_ref()
    }
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
