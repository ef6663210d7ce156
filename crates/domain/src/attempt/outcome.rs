//! What one request says about one source, gathered over all its tries there.

use std::time::Duration;

use waybill_event::FailureKind;
use waybill_event::failure::{BlockVerdict, Health};

use crate::candidate::Candidate;
use crate::verdict::Verdict;

/// What one request says about one source: exactly one for each source asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The source.
    pub candidate: Candidate,
    /// The kind of the last attempt there.
    pub kind: FailureKind,
    /// Evidence on the source.
    pub source_health: Health,
    /// Evidence on the model at the source.
    pub model_health: Health,
    /// Time from the last dispatch to the first content (not streamed: to the whole answer); only of a success.
    pub latency: Option<Duration>,
    /// What is taken out.
    pub block: Option<BlockVerdict>,
    /// Tries at this source.
    pub attempts: u32,
    /// Whether the request held the probe permit.
    pub probe: bool,
}

/// The outcome in the making.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    pub(super) candidate: Candidate,
    pub(super) tries: u32,
    dispatched: Duration,
    first_content: Option<Duration>,
    settled: Option<Settled>,
}

#[derive(Debug, Clone)]
struct Settled {
    kind: FailureKind,
    source_health: Health,
    model_health: Health,
    block: Option<BlockVerdict>,
}

impl Tally {
    pub(super) const fn new(candidate: Candidate) -> Self {
        Self { candidate, tries: 0, dispatched: Duration::ZERO, first_content: None, settled: None }
    }

    pub(super) fn dispatched(&mut self, now: Duration) {
        self.tries += 1;
        self.dispatched = now;
        self.first_content = None;
    }

    /// An order that was never carried out.
    pub(super) fn taken_back(&mut self) {
        self.tries = self.tries.saturating_sub(1);
    }

    pub(super) fn committed(&mut self, now: Duration) {
        self.first_content.get_or_insert(now.saturating_sub(self.dispatched));
    }

    pub(super) fn failed(&mut self, verdict: &Verdict) {
        let before = self.settled.take();
        // A later failure that says nothing about health doesn't take back what an earlier one said.
        let said = |now: Health, before: Option<Health>| if now == Health::None { before.unwrap_or(now) } else { now };
        self.settled = Some(Settled {
            kind: verdict.kind,
            source_health: said(verdict.source_health, before.as_ref().map(|b| b.source_health)),
            model_health: said(verdict.model_health, before.as_ref().map(|b| b.model_health)),
            block: verdict.block.clone().or_else(|| before.and_then(|b| b.block)),
        });
    }

    pub(super) fn succeeded(&mut self, now: Duration) {
        self.committed(now);
        self.settled = Some(Settled {
            kind: FailureKind::Success,
            source_health: Health::Ok,
            model_health: Health::Ok,
            block: None,
        });
    }

    /// Whether what was asked here speaks against asking this candidate: it is the same model at the same source, or what
    /// the source did speaks against it as a whole.
    pub(super) fn excludes(&self, candidate: &Candidate) -> bool {
        let wholly = self.settled.as_ref();
        let wholly = wholly.is_some_and(|settled| speaks_wholly(settled.block.as_ref(), settled.source_health));
        let same_model = self.candidate.upstream_model == candidate.upstream_model;
        self.candidate.source.source == candidate.source.source && (wholly || same_model)
    }

    /// The outcome, if the source was asked at all. A try that was still under way is the client's leaving.
    pub(super) fn finish(self) -> Option<Outcome> {
        if self.tries == 0 {
            return None;
        }
        let settled = self.settled.unwrap_or(Settled {
            kind: FailureKind::ClientCancelled,
            source_health: Health::None,
            model_health: Health::None,
            block: None,
        });
        Some(Outcome {
            probe: self.candidate.probe_of.is_some(),
            latency: self.first_content.filter(|_| settled.kind == FailureKind::Success),
            candidate: self.candidate,
            kind: settled.kind,
            source_health: settled.source_health,
            model_health: settled.model_health,
            block: settled.block,
            attempts: self.tries,
        })
    }
}

impl Outcome {
    /// Whether it speaks against asking its source for anything. While it isn't told, no view knows of that.
    pub(super) fn excludes(&self, candidate: &Candidate) -> bool {
        let wholly = speaks_wholly(self.block.as_ref(), self.source_health);
        wholly && self.candidate.source.source == candidate.source.source
    }
}

/// Whether what a source did speaks against it as a whole.
fn speaks_wholly(block: Option<&BlockVerdict>, health: Health) -> bool {
    let blocked = match block {
        Some(BlockVerdict::Block { model_only, .. }) => !model_only,
        Some(BlockVerdict::Disable { .. }) => true,
        None => false,
    };
    blocked || health == Health::Fail
}
