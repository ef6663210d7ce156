//! The attempt loop as one pure state machine, the same for every protocol.
//!
//! The caller asks [`Machine::next`], does what the step says and reports back: [`Machine::failed`],
//! [`Machine::committed`], [`Machine::succeeded`], [`Machine::cancelled`]. Siblings come first, then patience, then the
//! end. All budgets are here and nowhere else. Times are durations since the request's admission.

mod outcome;
mod policy;
mod step;
mod walk;

#[cfg(test)]
mod evidence;
#[cfg(test)]
mod full;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod targets;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod waiters;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use waybill_event::failure::{FallbackReason, Health};
use waybill_event::selection::{Skip, SkipReason};
use waybill_event::{FailureKind, Source, SourceKind};

use crate::candidate::{Candidate, Candidates};
use crate::needs::Needs;
use crate::verdict::{FailureRecord, Verdict};

pub use outcome::Outcome;
pub use policy::{Limits, Policy};
use step::MOST_SKIPS;
pub use step::{Conclusion, Order, Skips, Step};

use outcome::Tally;

/// Asked before every attempt but the first: whether the candidate may still be used. Not knowing is a no.
pub type Recheck<'a> = &'a mut dyn FnMut(&Candidate) -> Result<(), SkipReason>;

/// What the machine must know of a request.
#[derive(Debug, Clone)]
pub struct Opening {
    /// Its budgets.
    pub policy: Policy,
    /// Whether the answer is streamed.
    pub streamed: bool,
    /// Which of its own retries a client says this is; above 0 the same source isn't asked twice.
    pub client_retry: u32,
    /// Whether the provider recognises a repetition of this request.
    pub idempotent: bool,
    /// A random number of the request's, for the spread of waits.
    pub dice: u64,
    /// What it needs of the model that serves it.
    pub needs: Needs,
}

impl Opening {
    /// An opening with the default policy.
    #[must_use]
    pub fn new(streamed: bool, dice: u64) -> Self {
        Self { policy: Policy::default(), streamed, client_retry: 0, idempotent: false, dice, needs: Needs::default() }
    }
}

/// Where the loop stands.
#[derive(Debug, Clone)]
enum State {
    /// The next candidate is to be drawn.
    Draw,
    /// An order is with the caller.
    Ordered,
    /// The attempt failed like this; what follows isn't decided yet.
    Failed(Verdict),
    /// The same source again, not before then.
    Again { not_before: Duration },
    /// This source, whose limit ends by then.
    Later { candidate: Box<Candidate>, not_before: Duration },
    /// Room is waited for at what is full.
    Queued,
    /// Over.
    Over(Conclusion),
}

/// A source that was asked and left. It isn't asked again for the same model, nor, if it failed as a whole, for another.
#[derive(Debug, Clone)]
struct Left {
    source: Source,
    upstream_model: Arc<str>,
    failed_wholly: bool,
}

/// A candidate that was full at its turn.
#[derive(Debug, Clone)]
struct Full {
    candidate: Candidate,
    /// Whether it was a further try at its turn already, and within the retry budget.
    within_budget: bool,
}

/// A candidate that is softly blocked now: a last resort, whatever the plan had it as. What was stricter is over.
fn as_last_resort(candidate: Candidate) -> Candidate {
    Candidate { last_resort: true, despite_open: false, probe_of: None, waiting: None, ..candidate }
}

/// The attempt loop of one request.
#[derive(Debug, Clone)]
pub struct Machine {
    opening: Opening,
    state: State,
    current: Option<Tally>,
    committed: bool,
    /// Attempts that have ended.
    attempts: u32,
    /// Sources whose attempts may have cost work, the current one included once it has failed so.
    counted: u32,
    current_counts: bool,
    /// Sources asked.
    walk: u32,
    /// The route's target that was asked last.
    target: u32,
    /// Sources asked since the first timeout.
    after_timeout: Option<u32>,
    /// Tries at the current source after its first.
    again: u32,
    first_failure: Option<FallbackReason>,
    maybe_billed: bool,
    skips: Skips,
    /// Whether a candidate was drawn.
    drawn: bool,
    /// What the present order tells of candidates passed over before it.
    told: Skips,
    failures: Vec<FailureRecord>,
    outcomes: SmallVec<[Outcome; 1]>,
    /// Sources that were left.
    left: SmallVec<[Left; 1]>,
    /// Candidates that were softly blocked when their turn came: a last resort at the list's end.
    deferred: VecDeque<Candidate>,
    /// Candidates that were full when their turn came, while room there is of use.
    full: Vec<Full>,
    /// Sources that were full at their turn.
    met_full: SmallVec<[Source; 2]>,
    /// Since when room is waited for.
    queued_at: Option<Duration>,
    /// The kind of the first candidate there was.
    kind: Option<SourceKind>,
}

impl Machine {
    /// The loop of a request that was just admitted.
    #[must_use]
    pub fn new(opening: Opening) -> Self {
        Self {
            opening,
            state: State::Draw,
            current: None,
            committed: false,
            attempts: 0,
            counted: 0,
            current_counts: false,
            walk: 0,
            target: 0,
            after_timeout: None,
            again: 0,
            first_failure: None,
            maybe_billed: false,
            skips: Skips::new(),
            drawn: false,
            told: Skips::new(),
            failures: Vec::new(),
            outcomes: SmallVec::new(),
            left: SmallVec::new(),
            deferred: VecDeque::new(),
            full: Vec::new(),
            met_full: SmallVec::new(),
            queued_at: None,
            kind: None,
        }
    }

    /// What to do now. After [`Machine::failed`] it decides what follows; the outcome of a source that is left is ready
    /// afterwards. While an order is under way it says [`Conclusion::Refused`], because nothing may be asked twice.
    pub fn next(&mut self, now: Duration, candidates: &mut dyn Candidates, recheck: Recheck<'_>) -> Step {
        let step = match std::mem::replace(&mut self.state, State::Ordered) {
            State::Draw => self.draw(now, candidates, recheck),
            State::Failed(verdict) => self.after(now, &verdict, candidates, recheck),
            State::Again { not_before } => self.again(now, not_before, recheck, candidates),
            State::Later { candidate, not_before } => self.later(now, candidate, not_before, recheck, candidates),
            State::Queued => self.queue(now, Conclusion::Exhausted),
            State::Ordered => self.stop(Conclusion::Refused),
            State::Over(conclusion) => self.stop(conclusion),
        };
        debug_assert!(self.walk <= self.opening.policy.max_walk, "the walk has a limit");
        step
    }

    /// The ordered attempt failed. [`Machine::next`] says what follows.
    pub fn failed(&mut self, verdict: &Verdict) {
        if !matches!(self.state, State::Ordered) {
            return;
        }
        let Some(tally) = &mut self.current else { return };
        self.attempts += 1;
        tally.failed(verdict);
        self.target = tally.candidate.target;
        // What a later target was asked for isn't asked of an earlier one.
        self.full.retain(|full| full.candidate.target >= self.target);
        if let Some(client) = verdict.client {
            self.failures.push(FailureRecord {
                attempt: self.attempts,
                source: tally.candidate.source,
                kind: verdict.kind,
                client,
                status: verdict.status,
                wait: verdict.passes_after(),
            });
        }
        self.first_failure.get_or_insert(verdict.fallback);
        self.maybe_billed |= verdict.maybe_billed;
        if verdict.counts_attempt && !self.current_counts {
            self.current_counts = true;
            self.counted += 1;
        }
        if verdict.kind == FailureKind::Timeout {
            self.after_timeout.get_or_insert(0);
        }
        let over = match (verdict.kind, self.committed) {
            (FailureKind::ClientCancelled, _) => Some(Conclusion::Cancelled),
            (_, true) if !self.opening.policy.resume => Some(Conclusion::Broken),
            (_, true | false) => None,
        };
        self.state = over.map_or_else(|| State::Failed(verdict.clone()), State::Over);
        if over.is_some() {
            self.leave();
        }
    }

    /// The order wasn't carried out (its permit was taken, say): it doesn't count, and the walk goes on.
    pub fn passed_over(&mut self, why: SkipReason) {
        if !matches!(self.state, State::Ordered) {
            return;
        }
        // The order isn't written, so neither is what it told.
        if self.skips.is_empty() {
            self.skips = std::mem::take(&mut self.told);
            self.skips.truncate(MOST_SKIPS);
        }
        if let Some((candidate, asked_before)) = self.take_back() {
            let source = candidate.source.source;
            match why {
                // Its turn comes again at the list's end.
                SkipReason::SoftBlocked if !candidate.last_resort && !asked_before => {
                    self.defer(candidate);
                }
                why if why.is_full() => {
                    self.skips.push(Skip { source, why });
                    self.met_full.push(source);
                    // A session's window takes hours to pass.
                    if !asked_before && why != SkipReason::SessionWindow {
                        self.full.push(Full { candidate, within_budget: self.walk > 0 });
                    }
                }
                why => self.skips.push(Skip { source, why }),
            }
        }
        self.state = State::Draw;
    }

    /// Its turn comes again at the list's end.
    fn defer(&mut self, candidate: Candidate) {
        self.deferred.push_back(as_last_resort(candidate));
    }

    /// Whether somebody could have served but for being full.
    #[must_use]
    pub fn met_full(&self) -> bool {
        !self.met_full.is_empty()
    }

    /// Whether this source was full at its turn.
    #[must_use]
    pub fn was_full(&self, source: Source) -> bool {
        self.met_full.contains(&source)
    }

    /// The order wasn't carried out because nothing further can be recorded: the loop is over.
    pub fn unrecordable(&mut self) {
        if matches!(self.state, State::Ordered) {
            let _not_asked = self.take_back();
            self.state = State::Over(Conclusion::Unrecordable);
        }
    }

    /// The order that is under way doesn't count; its source is left, with what its tries before have said, if there were
    /// any.
    fn take_back(&mut self) -> Option<(Candidate, bool)> {
        let tally = self.current.as_mut()?;
        tally.taken_back();
        let (candidate, asked_before) = (tally.candidate.clone(), tally.tries > 0);
        if !asked_before {
            self.walk = self.walk.saturating_sub(1);
            self.after_timeout = self.after_timeout.map(|asked| asked.saturating_sub(1));
        }
        self.leave();
        Some((candidate, asked_before))
    }

    /// Content goes to the client: from here on nothing is tried again, unless the policy resumes what broke off. Not
    /// streamed: the whole answer is there.
    pub fn committed(&mut self, now: Duration) {
        self.committed = true;
        if let Some(tally) = &mut self.current {
            tally.committed(now);
        }
    }

    /// The answer is complete.
    pub fn succeeded(&mut self, now: Duration) {
        if !matches!(self.state, State::Ordered) {
            return;
        }
        if let Some(tally) = &mut self.current {
            self.attempts += 1;
            tally.succeeded(now);
            self.state = State::Over(Conclusion::Served);
            self.leave();
        }
    }

    /// What failed after content had gone to the client is not asked for again after all.
    pub fn broken(&mut self) {
        if !matches!(self.state, State::Over(_)) {
            self.state = State::Over(Conclusion::Broken);
            self.leave();
        }
    }

    /// The client went away. An attempt that was under way says nothing about its source.
    pub fn cancelled(&mut self) {
        if !matches!(self.state, State::Over(_)) {
            let under_way = matches!(self.state, State::Ordered) && self.current.is_some();
            self.attempts += u32::from(under_way);
            self.maybe_billed |= under_way;
            self.state = State::Over(Conclusion::Cancelled);
            self.leave();
        }
    }

    /// The outcome of a source that was left, once for each source.
    pub fn take_outcome(&mut self) -> Option<Outcome> {
        if self.outcomes.is_empty() { None } else { Some(self.outcomes.remove(0)) }
    }

    /// Candidates passed over since the last order.
    pub fn take_skips(&mut self) -> Skips {
        std::mem::take(&mut self.skips)
    }

    /// The failed attempts so far, for [`crate::verdict::answer`].
    #[must_use]
    pub fn failures(&self) -> &[FailureRecord] {
        &self.failures
    }

    /// Why the request changed its source; nothing if it never asked a second one.
    #[must_use]
    pub fn fallback(&self) -> Option<FallbackReason> {
        self.first_failure.filter(|_| self.walk > 1)
    }

    /// Whether a failed attempt may be charged.
    #[must_use]
    pub const fn maybe_billed(&self) -> bool {
        self.maybe_billed
    }

    /// Time for the whole request.
    #[must_use]
    pub const fn deadline(&self) -> Duration {
        self.opening.policy.deadline
    }

    /// Attempts that have ended.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    fn stop(&mut self, conclusion: Conclusion) -> Step {
        self.state = State::Over(conclusion);
        self.leave();
        Step::Stop(conclusion)
    }

    /// The current source is left for good: its outcome is ready.
    fn leave(&mut self) {
        self.again = 0;
        self.current_counts = false;
        let Some(mut outcome) = self.current.take().and_then(Tally::finish) else { return };
        let source = outcome.candidate.source.source;
        if self.left.iter().any(|left| left.source == source) {
            // Asked before for another model: a request says about a source as a whole what it has to say once.
            outcome.source_health = Health::None;
        }
        self.left.push(Left {
            source,
            upstream_model: Arc::clone(&outcome.candidate.upstream_model),
            failed_wholly: outcome.source_health == Health::Fail,
        });
        self.outcomes.push(outcome);
    }
}
