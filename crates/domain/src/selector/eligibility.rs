//! Whether a source may be asked for a model now, and if not, why and for how long.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use waybill_event::LogTime;
use waybill_event::config::{FactorBands, HeldOpen};
use waybill_event::failure::Strength;
use waybill_event::selection::SkipReason;
use waybill_event::traffic::Factors;

use super::blocks::Block;
use super::breaker::{Breaker, Opening, Phase};
use super::factors::{FULL, Load, factors, load_factor};
use super::state::{ByHand, Revisions, ScopeState, SourceState};

/// What the catalogue says of a source. It acts at once, before any fold knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogFacts {
    /// Whether an operator lets it serve.
    pub enabled: bool,
    /// Whether it has a credential.
    pub has_credential: bool,
    /// Its credential and base URL now.
    pub revisions: Revisions,
    /// What operators have done by hand to the source and to the model.
    pub by_hand: [ByHand; 2],
}

/// A limit that alone keeps a source out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limited {
    /// Id of the block that lasts longest.
    pub block: Arc<str>,
    /// From when on one request at a time may try the source again before the limit's end.
    pub retry_from: LogTime,
}

/// What may be done with a source now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eligibility {
    /// Why it is out; a half-open one is out but for probes ([`SkipReason::Probing`]).
    pub skip: Option<SkipReason>,
    /// The opening whose probe permit lets one request through.
    pub half_open: Option<Arc<str>>,
    /// How many probes of that opening may run at once in the whole fleet.
    pub probes: u32,
    /// When what keeps it out ends by itself; `None` where only an edit or a probe ends it, or nothing keeps it out.
    pub returns_at: Option<LogTime>,
    /// Whether only limits keep it out: it is busy, not broken.
    pub busy: bool,
    /// The limit, where that is told by the upstream and is all that keeps it out.
    pub limited: Option<Limited>,
    /// Its factors.
    pub factors: Factors,
}

impl CatalogFacts {
    /// The longer of the two by which an operator holds a breaker open.
    fn held(&self, as_of: LogTime) -> Option<HeldOpen> {
        let held = self.by_hand.iter().filter_map(|done| done.holds(as_of));
        held.max_by_key(|held| (held.until.is_none(), held.until))
    }
}

impl Eligibility {
    fn held(held: HeldOpen, factors: Factors) -> Self {
        Self { returns_at: held.until, ..Self::out(SkipReason::HeldOpen, factors) }
    }

    fn out(skip: SkipReason, factors: Factors) -> Self {
        Self { skip: Some(skip), half_open: None, probes: 0, returns_at: None, busy: false, limited: None, factors }
    }
}

/// Judges a source of which no state is known yet.
#[must_use]
pub fn unknown(facts: CatalogFacts, load: Load, as_of: LogTime) -> Eligibility {
    let factors = Factors { load: load_factor(load, &FactorBands::default()), ..FULL };
    let skip = catalog_skip(facts);
    if skip.is_none()
        && let Some(held) = facts.held(as_of)
    {
        return Eligibility::held(held, factors);
    }
    Eligibility { skip, half_open: None, probes: 0, returns_at: None, busy: false, limited: None, factors }
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
    let factors = if stale {
        Factors { load: load_factor(load, &state.policy.bands), ..FULL }
    } else {
        factors(state, upstream_model, load, as_of)
    };
    if let Some(skip) = catalog_skip(facts) {
        return Eligibility::out(skip, factors);
    }
    // What the fold hasn't adopted yet acts at once: what it is going to end counts no more.
    let adopted = [state.by_hand(None), state.by_hand(Some(upstream_model))];
    let [whole_lifted, model_lifted] = [0, 1].map(|at| done(&adopted, at).lifted < done(&facts.by_hand, at).lifted);
    let [whole_reset, model_reset] = [0, 1].map(|at| done(&adopted, at).reset < done(&facts.by_hand, at).reset);
    // What is done to the whole is done to its models too.
    let lifted = [whole_lifted, whole_lifted || model_lifted];
    let reset = [whole_reset, whole_reset || model_reset];
    if !whole_lifted && state.disabled.as_ref().is_some_and(|held| !held.revisions.older_than(facts.revisions)) {
        return Eligibility::out(SkipReason::Disabled, factors);
    }
    if let Some(held) = facts.held(as_of) {
        return Eligibility::held(held, factors);
    }
    let scopes = [Some(&state.whole), state.models.get(upstream_model)];
    let still = |ended: [bool; 2]| {
        let both = scopes.into_iter().zip(ended);
        both.map(|(scope, ended)| scope.filter(|_| !ended)).collect::<SmallVec<[Option<&ScopeState>; 2]>>()
    };
    let (blocking, breaking) = (still(lifted), still(reset));
    let retry_after = Duration::from_millis(state.policy.retry_limited_ms);
    let valid = facts.revisions;
    let mut judge = Judge { valid, as_of, retry_after, ends: None, skip: None, busy: true, limited: None };
    for strength in [Strength::Hard, Strength::Hint] {
        blocking.iter().copied().flatten().for_each(|scope| judge.block(scope, strength));
    }
    let (mut half_open, mut probes) = (None, 0);
    let policies = [state.policy.source_breaker, state.model_breaker(upstream_model)];
    let reasons = [SkipReason::SourceBreakerOpen, SkipReason::ModelBreakerOpen];
    for ((scope, why), policy) in breaking.into_iter().zip(reasons).zip(policies) {
        if let Some(opening) = scope.and_then(|scope| judge.breaker(&scope.breaker, why))
            && half_open.is_none()
        {
            half_open = Some(Arc::clone(&opening.id));
            probes = policy.half_open_probes;
        }
    }
    // Behind anything stricter a soft block changes nothing, neither now nor when that ends: a half-open source is probed
    // all the same, and any other one is a last resort then.
    if judge.skip.is_none() && half_open.is_none() {
        blocking.iter().copied().flatten().for_each(|scope| judge.block(scope, Strength::Soft));
    }
    let busy = judge.skip.is_some() && judge.busy;
    let limited = judge.limited.filter(|_| busy && half_open.is_none()).map(|(_, limited)| limited);
    let half_open = half_open.filter(|_| judge.skip.is_none());
    let skip = judge.skip.or(half_open.as_ref().map(|_| SkipReason::Probing));
    let returns_at = if half_open.is_some() { Some(as_of) } else { judge.ends };
    Eligibility { skip, half_open, probes, returns_at, busy, limited, factors }
}

fn done(by_hand: &[ByHand; 2], at: usize) -> ByHand {
    by_hand.get(at).copied().unwrap_or_default()
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
    retry_after: Duration,
    ends: Option<LogTime>,
    skip: Option<SkipReason>,
    busy: bool,
    /// The limits met so far, with the latest end of them.
    limited: Option<(LogTime, Limited)>,
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
        let busy = block.is_limit(strength);
        if busy && strength != Strength::Soft {
            self.limit(block);
        }
        self.out(why, block.until, busy);
    }

    fn limit(&mut self, block: &Block) {
        let (before, until) = (self.limited.take(), block.until);
        let from = block.retry_from(self.retry_after);
        let retry_from = before.as_ref().map_or(from, |(_, before)| before.retry_from.max(from));
        let limited = match before {
            Some((end, before)) if end >= until => (end, Limited { retry_from, ..before }),
            Some(_) | None => (until, Limited { block: Arc::clone(&block.id), retry_from }),
        };
        self.limited = Some(limited);
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
