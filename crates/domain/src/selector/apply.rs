//! The fold: what one event does to the state of its source. The projector folds the log with it, each replica its own
//! view, and a replay any past; there is no second implementation of it.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use waybill_event::control::ProbeOf;
use waybill_event::failure::{BlockVerdict, Health, Recovery};
use waybill_event::{Event, FailureKind, LogTime, Mark, Scope};

use super::blocks::Wanted;
use super::breaker::Opening;
use super::evidence::{Evidence, Place, Says};
use super::state::{Disabled, ScopeState, SourceState};
use super::transition::{Transition, Turn};

/// Transitions of one event.
pub type Transitions = SmallVec<[Transition; 2]>;

/// Folds one event into the state of its source. Events that are no evidence, or speak of another source, change
/// nothing.
pub fn apply(state: &mut SourceState, event: &Event, place: Place) -> Transitions {
    Evidence::of(event).map_or_else(Transitions::new, |evidence| apply_evidence(state, &evidence, place))
}

/// Folds evidence into the state of its source.
pub fn apply_evidence(state: &mut SourceState, evidence: &Evidence, place: Place) -> Transitions {
    if evidence.source != state.source {
        return Transitions::new();
    }
    if let Some(position) = place.position {
        state.position = state.position.max(position);
    }
    let late_after = Duration::from_millis(state.policy.late_after_ms);
    if evidence.is_late(place, late_after) || evidence.is_void(state) {
        return Transitions::new();
    }
    let t = evidence.t(place);
    state.clock = state.clock.max(t);
    let mut step = Step { evidence, place, t, out: Transitions::new() };
    match &evidence.says {
        Says::Outcome { .. } => step.outcome(state),
        Says::Probe { of, model, ok } => step.probe(state, of, model.as_deref(), *ok),
        Says::Refreshed { credential } => {
            for (scope, turn) in state.adopt_token(*credential, t) {
                step.push(scope, turn);
            }
        }
        Says::RefreshFailed { kind } => step.disable(state, *kind, Recovery::Operator),
    }
    step.out
}

struct Step<'a> {
    evidence: &'a Evidence,
    place: Place,
    t: LogTime,
    out: Transitions,
}

impl Step<'_> {
    fn outcome(&mut self, state: &mut SourceState) {
        let Says::Outcome { upstream_model, kind, source_health, model_health, latency_ms, block, probe } =
            &self.evidence.says
        else {
            return;
        };
        let retry_after = Duration::from_millis(state.policy.retry_limited_ms);
        // What one scope says is kept before blocks are set, so that a success lifts only what came before it.
        for (health, model) in [(*source_health, None), (*model_health, Some(upstream_model.as_str()))] {
            let clock = state.clock;
            let (scope, policy) = match model {
                None => (state.scope(), state.policy.source_breaker),
                Some(model) => (state.model_scope(model), state.model_breaker(model)),
            };
            let held = match model {
                None => &mut state.whole,
                Some(model) => state.model_mut(model),
            };
            held.heard = held.heard.max(self.t);
            if let Some(ms) = latency_ms {
                held.latencies.push(*ms);
            }
            if *kind == FailureKind::Success {
                held.blocks.lift(self.t);
                for (block, strength) in held.blocks.retried(self.t, self.evidence.admitted, retry_after) {
                    self.push(scope.clone(), Turn::Lifted { block, strength });
                }
            }
            if !probe {
                self.count(held, scope, health, clock, &policy);
            }
        }
        match block {
            Some(BlockVerdict::Block { strength, model_only, duration_ms }) => {
                let wanted = Wanted {
                    strength: *strength,
                    kind: *kind,
                    t: self.t,
                    duration: Duration::from_millis(*duration_ms),
                    admitted: self.evidence.admitted,
                    revisions: self.evidence.revisions,
                };
                let scope = if *model_only { state.model_scope(upstream_model) } else { state.scope() };
                let growth_max = Duration::from_millis(state.policy.block_growth_max_ms);
                let held = if *model_only { state.model_mut(upstream_model) } else { &mut state.whole };
                self.block(held, scope, wanted, growth_max);
            }
            Some(BlockVerdict::Disable { recovery }) => self.disable(state, *kind, *recovery),
            None => {}
        }
    }

    fn count(
        &mut self,
        held: &mut ScopeState,
        scope: Scope,
        health: Health,
        clock: LogTime,
        policy: &waybill_event::config::BreakerPolicy,
    ) {
        // Closing cleared the window: what happened before it doesn't come back.
        if held.breaker.closed_since().is_some_and(|closed| self.t < closed) {
            return;
        }
        held.window.add(self.t, health);
        let counts = held.window.totals(clock);
        if held.breaker.observe(health, counts, policy) {
            let id = self.id(&scope);
            let opening = held.breaker.open(id, self.t, self.evidence.revisions, policy);
            self.opened(scope, opening, counts.ok, counts.fail);
        }
    }

    fn block(&mut self, held: &mut ScopeState, scope: Scope, wanted: Wanted, growth_max: Duration) {
        let mark = &self.evidence.mark;
        if let Some(block) = held.blocks.set(|| id(&scope, mark), wanted, growth_max) {
            let (strength, kind) = (wanted.strength, wanted.kind);
            let turn = Turn::Blocked { block: Arc::clone(&block.id), strength, kind, until: block.until };
            self.push(scope, turn);
        }
    }

    /// The stricter recovery wins over the laxer one, and newer evidence over what an edit has made void; otherwise the
    /// first disabling stands.
    fn disable(&mut self, state: &mut SourceState, kind: FailureKind, recovery: Recovery) {
        let stands = state.disabled.as_ref().is_some_and(|held| {
            !held.revisions.older_than(self.evidence.revisions)
                && (held.recovery == Recovery::Operator || recovery == Recovery::Probe)
        });
        if stands {
            return;
        }
        let scope = state.scope();
        let id = self.id(&scope);
        let revisions = self.evidence.revisions;
        state.disabled = Some(Disabled { id: Arc::clone(&id), kind, recovery, since: self.t, revisions });
        self.push(scope, Turn::Disabled { disabling: id, kind, recovery });
    }

    /// Only the result of a probe of this very opening or disabling decides; a foreign or late one changes nothing.
    fn probe(&mut self, state: &mut SourceState, of: &ProbeOf, model: Option<&str>, ok: bool) {
        match of {
            ProbeOf::Opening { opening } => self.probed_breaker(state, opening, model, ok),
            ProbeOf::Disabled { disabling } => {
                let held = state.disabled.as_ref().filter(|held| *held.id == **disabling && ok);
                if held.is_some_and(|held| held.recovery == Recovery::Probe)
                    && let Some(ended) = state.disabled.take()
                {
                    self.push(state.scope(), Turn::Enabled { disabling: ended.id });
                }
            }
        }
    }

    fn probed_breaker(&mut self, state: &mut SourceState, opening: &str, model: Option<&str>, ok: bool) {
        let policy = model.map_or(state.policy.source_breaker, |model| state.model_breaker(model));
        let clock = state.clock;
        let scope = model.map_or_else(|| state.scope(), |model| state.model_scope(model));
        let held = match model {
            None => Some(&mut state.whole),
            Some(model) => state.models.get_mut(model),
        };
        let Some(held) = held else { return };
        if held.breaker.opening().is_none_or(|held| *held.id != *opening) {
            return;
        }
        held.heard = held.heard.max(self.t);
        if ok {
            if held.breaker.probed(self.t, &policy) {
                held.window.clear();
                self.push(scope, Turn::Closed { opening: opening.into() });
            }
        } else {
            held.window.add(self.t, Health::Fail);
            let counts = held.window.totals(clock);
            let id = self.id(&scope);
            let again = held.breaker.open(id, self.t, self.evidence.revisions, &policy);
            self.opened(scope, again, counts.ok, counts.fail);
        }
    }

    fn opened(&mut self, scope: Scope, opening: Opening, ok: u32, fail: u32) {
        let Opening { id, times, open_until, .. } = opening;
        self.push(scope, Turn::Opened { opening: id, ok, fail, times, open_until });
    }

    fn push(&mut self, scope: Scope, turn: Turn) {
        let cause = Some(self.evidence.mark.clone());
        self.out.push(Transition { scope, cause, position: self.place.position, t: self.t, turn });
    }

    fn id(&self, scope: &Scope) -> Arc<str> {
        id(scope, &self.evidence.mark)
    }
}

fn id(scope: &Scope, mark: &Mark) -> Arc<str> {
    format!("{scope}@{mark}").into()
}
