//! Whether a source may be asked for a model now, and if not, why and for how long.

use std::sync::Arc;

use waybill_event::failure::Strength;
use waybill_event::selection::SkipReason;
use waybill_event::traffic::Factors;
use waybill_event::{FailureKind, LogTime};

use super::breaker::{Breaker, Opening, Phase};
use super::factors::{FULL, Load, factors, load_factor};
use super::state::{Revisions, ScopeState, SourceState};

/// What the catalogue says of a source. It acts at once, before any fold knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogFacts {
    /// Whether an operator lets it serve.
    pub enabled: bool,
    /// Whether it has a credential.
    pub has_credential: bool,
    /// Its credential and base URL now.
    pub revisions: Revisions,
}

/// What may be done with a source now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eligibility {
    /// Why it is out; a half-open one is out but for probes ([`SkipReason::Probing`]).
    pub skip: Option<SkipReason>,
    /// The opening whose probe permit lets one request through.
    pub half_open: Option<Arc<str>>,
    /// When what keeps it out ends by itself; `None` where only an edit or a probe ends it, or nothing keeps it out.
    pub returns_at: Option<LogTime>,
    /// Whether only limits keep it out: it is busy, not broken.
    pub busy: bool,
    /// Its factors.
    pub factors: Factors,
}

impl Eligibility {
    fn out(skip: SkipReason, factors: Factors) -> Self {
        Self { skip: Some(skip), half_open: None, returns_at: None, busy: false, factors }
    }
}

/// Judges a source of which no state is known yet.
#[must_use]
pub fn unknown(facts: CatalogFacts, load: Load) -> Eligibility {
    let factors = Factors { load: load_factor(load), ..FULL };
    let skip = catalog_skip(facts);
    Eligibility { skip, half_open: None, returns_at: None, busy: false, factors }
}

/// Judges a source by its state, as of `as_of`. What was made with an older credential or base URL than the catalogue's
/// counts as cleared.
#[must_use]
pub fn eligibility(
    state: &SourceState,
    facts: CatalogFacts,
    upstream_model: &str,
    load: Load,
    as_of: LogTime,
) -> Eligibility {
    let stale = state.revisions.older_than(facts.revisions);
    let factors =
        if stale { Factors { load: load_factor(load), ..FULL } } else { factors(state, upstream_model, load, as_of) };
    if let Some(skip) = catalog_skip(facts) {
        return Eligibility::out(skip, factors);
    }
    if state.disabled.as_ref().is_some_and(|held| !held.revisions.older_than(facts.revisions)) {
        return Eligibility::out(SkipReason::Disabled, factors);
    }
    let scopes = [Some(&state.whole), state.models.get(upstream_model)];
    let mut judge = Judge { valid: facts.revisions, as_of, ends: None, skip: None, busy: true };
    for strength in [Strength::Hard, Strength::Hint] {
        scopes.into_iter().flatten().for_each(|scope| judge.block(scope, strength));
    }
    let mut half_open = None;
    for (scope, why) in scopes.into_iter().zip([SkipReason::SourceBreakerOpen, SkipReason::ModelBreakerOpen]) {
        if let Some(opening) = scope.and_then(|scope| judge.breaker(&scope.breaker, why)) {
            half_open.get_or_insert_with(|| Arc::clone(&opening.id));
        }
    }
    if judge.skip.is_some() || half_open.is_none() {
        scopes.into_iter().flatten().for_each(|scope| judge.block(scope, Strength::Soft));
    }
    let half_open = half_open.filter(|_| judge.skip.is_none());
    let skip = judge.skip.or(half_open.as_ref().map(|_| SkipReason::Probing));
    let returns_at = if half_open.is_some() { Some(as_of) } else { judge.ends };
    Eligibility { skip, half_open, returns_at, busy: judge.skip.is_some() && judge.busy, factors }
}

const fn catalog_skip(facts: CatalogFacts) -> Option<SkipReason> {
    match facts {
        CatalogFacts { enabled: false, .. } => Some(SkipReason::Disabled),
        CatalogFacts { has_credential: false, .. } => Some(SkipReason::NoCredential),
        CatalogFacts { .. } => None,
    }
}

struct Judge {
    valid: Revisions,
    as_of: LogTime,
    ends: Option<LogTime>,
    skip: Option<SkipReason>,
    busy: bool,
}

impl Judge {
    /// The first reason is the one told; the source returns when the last one has ended.
    fn out(&mut self, why: SkipReason, until: LogTime, busy: bool) {
        self.skip.get_or_insert(why);
        self.ends = self.ends.max(Some(until));
        self.busy &= busy;
    }

    fn block(&mut self, scope: &ScopeState, strength: Strength) {
        let Some(block) = scope.blocks.active(strength, self.as_of) else { return };
        if block.revisions.older_than(self.valid) {
            return;
        }
        let why = match strength {
            Strength::Hard => SkipReason::HardBlocked,
            Strength::Hint => SkipReason::HintBlocked,
            Strength::Soft => SkipReason::SoftBlocked,
        };
        let busy = match block.kind {
            FailureKind::RateLimited | FailureKind::WindowExhausted | FailureKind::Overloaded => true,
            _ => strength == Strength::Hint,
        };
        self.out(why, block.until, busy);
    }

    /// The opening, if it is half-open.
    fn breaker<'a>(&mut self, breaker: &'a Breaker, why: SkipReason) -> Option<&'a Opening> {
        match breaker.phase(self.as_of) {
            Phase::Closed => None,
            Phase::Open(opening) | Phase::HalfOpen(opening) if opening.revisions.older_than(self.valid) => None,
            Phase::Open(opening) => {
                self.out(why, opening.open_until, false);
                None
            }
            Phase::HalfOpen(opening) => Some(opening),
        }
    }
}
