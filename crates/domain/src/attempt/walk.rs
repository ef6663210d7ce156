//! What follows: the same source at once, a sibling, the same source patiently, or the end.

use std::time::Duration;

use waybill_event::config::RetryUnknown;
use waybill_event::selection::{Chosen, Next, Skip, SkipReason};

use super::outcome::Tally;
use super::{Conclusion, Full, Left, Machine, Order, Recheck, State, Step, as_last_resort};
use crate::candidate::{Candidate, Candidates};
use crate::verdict::Verdict;
use crate::verdict::rule::{After, Elsewhere, SameSource};

/// A health factor from which on a source counts as healthy to the retry budget.
const HEALTHY: u8 = 50;

/// What drawing brought.
enum Drawn {
    /// An order, or the wait for one.
    Next(Step),
    Spent(Conclusion),
    None,
}

impl Machine {
    /// Decides what follows a failure: the same source at once, a sibling, the same source patiently, or the end.
    pub(super) fn after(
        &mut self,
        now: Duration,
        verdict: &Verdict,
        candidates: &mut dyn Candidates,
        recheck: Recheck<'_>,
    ) -> Step {
        if !self.may_repeat(verdict) {
            return self.stop(Conclusion::Refused);
        }
        if let Some(not_before) = self.same_source(now, verdict, After::AtOnce, candidates) {
            return self.again(now, not_before, recheck, candidates);
        }
        let elsewhere = self.may_go_elsewhere(verdict);
        if elsewhere {
            match self.draw_for_dispatch(now, candidates, recheck) {
                Drawn::Next(step) => return step,
                // Patience is for a list that has ended, not for budgets that are spent.
                Drawn::None => {}
                Drawn::Spent(conclusion) => return self.stop(conclusion),
            }
        }
        if let Some(not_before) = self.same_source(now, verdict, After::Siblings, candidates) {
            return self.again(now, not_before, recheck, candidates);
        }
        if elsewhere {
            match self.degrade(now, candidates, recheck) {
                Drawn::Next(step) => return step,
                Drawn::None => {}
                Drawn::Spent(conclusion) => return self.stop(conclusion),
            }
        }
        let conclusion = match verdict.retry_elsewhere {
            Elsewhere::Anyone => Conclusion::Exhausted,
            Elsewhere::Never | Elsewhere::Capable => Conclusion::Refused,
        };
        if elsewhere { self.queue(now, conclusion) } else { self.stop(conclusion) }
    }

    /// Whether other candidates come into question, and from now on which.
    fn may_go_elsewhere(&mut self, verdict: &Verdict) -> bool {
        match verdict.retry_elsewhere {
            Elsewhere::Anyone => true,
            Elsewhere::Never => false,
            Elsewhere::Capable => {
                let window = self.current.as_ref().and_then(|tally| tally.candidate.capabilities.context_window);
                let needs = &mut self.opening.needs;
                needs.more_than = needs.more_than.max(Some(window.unwrap_or(0).max(needs.tokens)));
                true
            }
        }
    }

    /// The first candidate of a later target that may be asked, as an order.
    fn degrade(&mut self, now: Duration, candidates: &mut dyn Candidates, recheck: Recheck<'_>) -> Drawn {
        while self.opening.policy.degrade && candidates.next_target() {
            match self.draw_for_dispatch(now, candidates, recheck) {
                Drawn::None => {}
                drawn => return drawn,
            }
        }
        Drawn::None
    }

    fn may_repeat(&self, verdict: &Verdict) -> bool {
        !verdict.outcome_unknown()
            || match self.opening.policy.retry_unknown {
                RetryUnknown::Always => true,
                RetryUnknown::Never => false,
                RetryUnknown::IdempotentOnly => self.opening.idempotent,
            }
    }

    /// From when on the same source may be asked again, if it may.
    fn same_source(
        &mut self,
        now: Duration,
        verdict: &Verdict,
        after: After,
        candidates: &mut dyn Candidates,
    ) -> Option<Duration> {
        let SameSource { times, delay_ms, after: when } = verdict.retry_same?;
        if when != after || self.again >= times || self.opening.client_retry > 0 {
            return None;
        }
        let policy = &self.opening.policy;
        let delay = match verdict.wait {
            Some(wait) if wait > policy.patience => return None,
            // Never sooner than the hint; a little later, so that those who were told the same don't all come at once.
            Some(wait) => wait + self.spread(wait.min(Duration::from_secs(1)) / 4),
            None => Duration::from_millis(delay_ms) + self.spread(Duration::from_millis(delay_ms) / 4),
        };
        let not_before = now + delay;
        if not_before + policy.min_attempt > policy.deadline {
            return None;
        }
        let candidate = &self.current.as_ref()?.candidate;
        if candidates.may_strain(candidate) {
            return Some(not_before);
        }
        self.skips.push(Skip { source: candidate.source.source, why: SkipReason::RetryBudget });
        None
    }

    /// A part of `most`, by the request's dice and the number of attempts.
    fn spread(&self, most: Duration) -> Duration {
        let turned = self.opening.dice.rotate_left(self.attempts.wrapping_mul(13)) % 1_024;
        most.mul_f64(f64::from(u32::try_from(turned).unwrap_or(0)) / 1_024.0)
    }

    pub(super) fn again(
        &mut self,
        now: Duration,
        not_before: Duration,
        recheck: Recheck<'_>,
        candidates: &mut dyn Candidates,
    ) -> Step {
        if now < not_before {
            self.state = State::Again { not_before };
            return Step::Wait { until: not_before, ends: None, next: Next::Same };
        }
        let Some(tally) = &mut self.current else { return self.draw(now, candidates, recheck) };
        // A soft block takes a source out for those who haven't chosen it yet; who waits for it has.
        tally.candidate.last_resort = true;
        if let Err(why) = recheck(&tally.candidate) {
            self.skips.push(Skip { source: tally.candidate.source.source, why });
            return self.draw(now, candidates, recheck);
        }
        let Some(left) = self.opening.policy.time_left(now) else { return self.stop(Conclusion::DeadlineExceeded) };
        tally.dispatched(now);
        let candidate = tally.candidate.clone();
        self.again += 1;
        Step::Dispatch(Box::new(self.order(candidate, Chosen::SameSource, left)))
    }

    pub(super) fn draw(&mut self, now: Duration, candidates: &mut dyn Candidates, recheck: Recheck<'_>) -> Step {
        match self.draw_for_dispatch(now, candidates, recheck) {
            Drawn::Next(step) => step,
            Drawn::Spent(conclusion) => self.stop(conclusion),
            Drawn::None => match self.degrade(now, candidates, recheck) {
                Drawn::Next(step) => step,
                Drawn::Spent(conclusion) => self.stop(conclusion),
                Drawn::None if self.walk == 0 => self.queue(now, Conclusion::NoCandidate),
                Drawn::None => self.queue(now, Conclusion::Exhausted),
            },
        }
    }

    /// Nobody is left but who is full: room there is waited for, as long as policy and deadline allow.
    pub(super) fn queue(&mut self, now: Duration, otherwise: Conclusion) -> Step {
        self.drop_excluded();
        if self.full.is_empty() || self.spent().is_some() {
            return self.stop(otherwise);
        }
        let policy = &self.opening.policy;
        let since = *self.queued_at.get_or_insert(now);
        let until = (since + policy.queue).min(policy.deadline.saturating_sub(policy.min_attempt));
        if now >= until {
            return self.stop(otherwise);
        }
        self.leave();
        self.state = State::Queued;
        Step::Queue { full: self.full.iter().map(|full| full.candidate.clone()).collect(), until }
    }

    /// Since the turn of those that were full others were asked, or the same source for another model: what that says
    /// against one of them ends its waiting.
    fn drop_excluded(&mut self) {
        for full in std::mem::take(&mut self.full) {
            match self.not_excluded(&full.candidate) {
                Ok(()) => self.full.push(full),
                Err(why) => self.skips.push(Skip { source: full.candidate.source.source, why }),
            }
        }
    }

    /// There is room at a candidate that was full. Says what to do: ask it, unless it may no longer be asked.
    pub fn freed(
        &mut self,
        now: Duration,
        candidate: &Candidate,
        candidates: &mut dyn Candidates,
        recheck: Recheck<'_>,
    ) -> Step {
        if !matches!(self.state, State::Queued) {
            return self.stop(Conclusion::Refused);
        }
        let at = self.full.iter().position(|full| full.candidate == *candidate);
        let Some(Full { mut candidate, within_budget }) = at.map(|at| self.full.remove(at)) else {
            return self.queue(now, Conclusion::Exhausted);
        };
        let may = match recheck(&candidate) {
            Ok(()) => Ok(()),
            // Nobody better is left.
            Err(SkipReason::SoftBlocked) => {
                candidate = as_last_resort(candidate);
                Ok(())
            }
            Err(why) => Err(why),
        };
        // Others may have been asked since its turn.
        let may = may.and_then(|()| if within_budget { Ok(()) } else { self.may_strain(&candidate, candidates) });
        if let Err(why) = may {
            self.skips.push(Skip { source: candidate.source.source, why });
            return self.queue(now, Conclusion::Exhausted);
        }
        let Some(left) = self.opening.policy.time_left(now) else { return self.stop(Conclusion::DeadlineExceeded) };
        // What makes it special goes before that room was waited for.
        let why = match self.why(&candidate) {
            Chosen::First | Chosen::FailOver | Chosen::NextTarget | Chosen::Sticky => Chosen::RoomFreed,
            why => why,
        };
        self.ask(now, left, candidate, why)
    }

    /// Room was waited for in vain.
    pub fn none_freed(&mut self) -> Step {
        self.stop(if self.walk == 0 { Conclusion::NoCandidate } else { Conclusion::Exhausted })
    }

    /// The next candidate that may be asked, as an order.
    fn draw_for_dispatch(&mut self, now: Duration, candidates: &mut dyn Candidates, recheck: Recheck<'_>) -> Drawn {
        // Where several budgets are spent, the deadline is what the client has to know of.
        let Some(left) = self.opening.policy.time_left(now) else {
            return Drawn::Spent(Conclusion::DeadlineExceeded);
        };
        if let Some(spent) = self.spent() {
            return Drawn::Spent(spent);
        }
        while let Some(candidate) = candidates.next_candidate().or_else(|| self.deferred.pop_front()) {
            let later = std::mem::replace(&mut self.drawn, true);
            let kind = candidate.source.source.kind;
            if self.opening.policy.same_kind && *self.kind.get_or_insert(kind) != kind {
                self.skips.push(Skip { source: candidate.source.source, why: SkipReason::OtherKind });
                continue;
            }
            let patient = candidate.waiting.as_ref().map(|waiting| self.patient(now, waiting.not_before));
            if patient == Some(None) && candidate.retry_of().is_none() {
                let why = candidate.waiting.map_or(SkipReason::HintBlocked, |waiting| waiting.why);
                self.skips.push(Skip { source: candidate.source.source, why });
                continue;
            }
            // The plan has just looked at its first place; everything later may have changed since, also where nobody was
            // asked and nobody skipped. What is waited for is looked at after the wait.
            let waits = patient.flatten();
            if waits.is_none()
                && later
                && let Err(why) = recheck(&candidate)
            {
                if why == SkipReason::SoftBlocked && !candidate.last_resort {
                    self.defer(candidate);
                    continue;
                }
                self.skips.push(Skip { source: candidate.source.source, why });
                continue;
            }
            if let Err(why) = self.may_ask(&candidate, candidates) {
                self.skips.push(Skip { source: candidate.source.source, why });
                continue;
            }
            self.leave();
            if let Some(until) = waits {
                let ends = candidate.waiting.as_ref().map(|waiting| waiting.ends);
                self.state = State::Later { candidate: Box::new(candidate), not_before: until };
                return Drawn::Next(Step::Wait { until, ends, next: Next::Elsewhere });
            }
            let why = self.why(&candidate);
            return Drawn::Next(self.ask(now, left, candidate, why));
        }
        Drawn::None
    }

    /// Asks a source for the first time.
    fn ask(&mut self, now: Duration, left: Duration, candidate: Candidate, why: Chosen) -> Step {
        self.walk += 1;
        self.after_timeout = self.after_timeout.map(|asked| asked + 1);
        let mut tally = Tally::new(candidate.clone());
        tally.dispatched(now);
        self.current = Some(tally);
        Step::Dispatch(Box::new(self.order(candidate, why, left)))
    }

    /// Until when a limit is waited for, if patience and deadline allow it: never sooner than its end; a little later, so
    /// that those who wait for the same don't all come at once.
    fn patient(&self, now: Duration, ends: Duration) -> Option<Duration> {
        let policy = &self.opening.policy;
        let wait = ends.saturating_sub(now);
        let until = now + wait + self.spread(wait.min(Duration::from_secs(1)) / 4);
        (wait <= policy.patience && until + policy.min_attempt <= policy.deadline).then_some(until)
    }

    /// The source whose limit was waited for.
    pub(super) fn later(
        &mut self,
        now: Duration,
        candidate: Box<Candidate>,
        not_before: Duration,
        recheck: Recheck<'_>,
        candidates: &mut dyn Candidates,
    ) -> Step {
        if now < not_before {
            let ends = candidate.waiting.as_ref().map(|waiting| waiting.ends);
            self.state = State::Later { candidate, not_before };
            return Step::Wait { until: not_before, ends, next: Next::Elsewhere };
        }
        if let Err(why) = recheck(&candidate) {
            match why {
                // Behind the limit there was less, or something came: its turn comes again at the list's end.
                SkipReason::SoftBlocked => self.defer(*candidate),
                why => self.skips.push(Skip { source: candidate.source.source, why }),
            }
            return self.draw(now, candidates, recheck);
        }
        let Some(left) = self.opening.policy.time_left(now) else { return self.stop(Conclusion::DeadlineExceeded) };
        self.ask(now, left, Candidate { waiting: None, ..*candidate }, Chosen::LimitEnded)
    }

    /// What the request itself has to say against a candidate.
    fn may_ask(&self, candidate: &Candidate, candidates: &mut dyn Candidates) -> Result<(), SkipReason> {
        self.not_excluded(candidate)?;
        self.may_strain(candidate, candidates)
    }

    /// Capabilities that failures have shown to be needed, and what was asked before.
    fn not_excluded(&self, candidate: &Candidate) -> Result<(), SkipReason> {
        if self.opening.needs.more_than.is_some() && !self.opening.needs.met_by(&candidate.capabilities) {
            return Err(SkipReason::CapabilityMissing);
        }
        let (source, model) = (candidate.source.source, &candidate.upstream_model);
        // What isn't told yet is known here alone.
        let excluded_now = self.current.as_ref().is_some_and(|tally| tally.excludes(candidate))
            || self.outcomes.iter().any(|outcome| outcome.excludes(candidate));
        let excludes = |left: &Left| left.source == source && (left.failed_wholly || left.upstream_model == *model);
        if excluded_now || self.left.iter().any(excludes) {
            return Err(SkipReason::Excluded);
        }
        Ok(())
    }

    /// The budget of tries at sources that are ill. A probe, and what is asked only because nothing better is left, are
    /// bounded already.
    fn may_strain(&self, candidate: &Candidate, candidates: &mut dyn Candidates) -> Result<(), SkipReason> {
        let ill = candidate.health < HEALTHY && candidate.probe_of.is_none();
        if self.walk > 0 && ill && !candidates.may_strain(candidate) {
            return Err(SkipReason::RetryBudget);
        }
        Ok(())
    }

    /// Which budget of sources is spent, if one is.
    fn spent(&self) -> Option<Conclusion> {
        let policy = &self.opening.policy;
        if self.walk >= policy.max_walk {
            Some(Conclusion::WalkSpent)
        } else if self.counted >= policy.max_attempts {
            Some(Conclusion::AttemptsSpent)
        } else if self.after_timeout.is_some_and(|asked| asked >= policy.max_after_timeout) {
            Some(Conclusion::TimeoutsSpent)
        } else {
            None
        }
    }

    fn why(&self, candidate: &Candidate) -> Chosen {
        if candidate.probe_of.is_some() {
            Chosen::Probe
        } else if candidate.waiting.is_some() {
            Chosen::LimitRetried
        } else if candidate.despite_open {
            Chosen::LeastBad
        } else if candidate.last_resort {
            Chosen::LastResort
        } else if candidate.target > self.target {
            Chosen::NextTarget
        } else if candidate.sticky {
            Chosen::Sticky
        } else if self.walk == 0 {
            Chosen::First
        } else {
            Chosen::FailOver
        }
    }

    fn order(&mut self, candidate: Candidate, why: Chosen, left: Duration) -> Order {
        self.state = State::Ordered;
        let limits = self.opening.policy.limits(left, self.opening.streamed);
        let skips = self.take_skips();
        self.told.clone_from(&skips);
        Order { candidate, attempt: self.attempts + 1, why, limits, skips }
    }
}
