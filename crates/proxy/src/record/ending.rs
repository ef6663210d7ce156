//! The request ends, once, on every path: served, broken off, refused, or left by its client.

use std::time::Duration;

use waybill_domain::observation::Observation;
use waybill_event::FailureKind;
use waybill_event::money::UsageReport;
use waybill_event::selection::{Next, SkipReason};
use waybill_event::traffic::{AttemptFinished, FinalState, RequestFinished};
use waybill_wire::usage::Usage;

use super::{Heard, Record, Running, drafts};
use crate::emit::Drafts;
use crate::gates::Spender;
use crate::metrics::Ended;
use crate::sessions;

impl Record {
    /// A whole answer is there: what [`Record::commit`], [`Record::reported`] and [`Record::succeeded`] do, at one time.
    pub fn answered(&mut self, usage: Option<Usage>, model: Option<&str>, heard: Heard) {
        let now = self.now();
        self.committed(now);
        self.reported(usage, model);
        self.ended_well(heard, now);
        self.upstream_over();
    }

    /// The answer is complete: the attempt, the outcome and the request end, before the last byte goes out.
    pub fn succeeded(&mut self, heard: Heard) {
        self.ended_well(heard, self.now());
    }

    fn ended_well(&mut self, heard: Heard, now: Duration) {
        self.machine.succeeded(now);
        let mut drafts = Drafts::new();
        if let Some(mut running) = self.running.take() {
            self.parting = std::mem::take(&mut running.held);
            let source = running.order.candidate.source;
            self.served = Some(source);
            if let (Some(session), Some(home)) = (&self.session, self.home) {
                let was_full = self.machine.was_full(home);
                sessions::served(&self.replica.bindings, session, home, source.source, was_full);
            }
            self.spent(&running);
            let finished = AttemptFinished {
                kind: FailureKind::Success,
                status: heard.status,
                upstream_request_id: heard.upstream_request_id,
                ..self.story.attempt_finished(&running, now)
            };
            drafts.push(self.story.of_source(&running, finished));
            self.outcomes(&mut drafts);
            self.release(running);
        }
        self.close_at(now, drafts, FinalState::Succeeded, 200, None);
    }

    /// What an answer cost is its session's, where an account limits what sessions spend.
    fn spent(&self, running: &Running) {
        let limited = running.entity.session_window().is_some();
        let (Some(usage), Some(session), true) = (&self.usage, &self.session, limited) else { return };
        let snapshot = self.replica.snapshot.load();
        let price = snapshot.catalog().prices.get(&*running.order.candidate.upstream_model);
        if let (Some(price), Some(now)) = (price, (self.replica.clock)()) {
            let spender = Spender { session: session.key, now };
            self.replica.gates.spent(&running.entity, spender, price.of(usage));
        }
    }

    /// The stream broke after its first content.
    pub fn broke_off(&mut self, observation: Observation, heard: Heard, error: &str) {
        self.served = self.running.as_ref().map(|r| r.order.candidate.source);
        self.failed(observation, heard);
        self.machine.broken();
        let mut drafts = Drafts::new();
        self.attempt_failed(Next::Stop, &mut drafts);
        self.close(drafts, FinalState::Partial, 200, Some(error.to_owned()));
    }

    /// The stream broke after its first content, and nobody goes on with it.
    pub fn interrupted(&mut self, error: &str) {
        self.served = self.answering.as_ref().map(|(candidate, _)| candidate.source);
        self.close(Drafts::new(), FinalState::Partial, 200, Some(error.to_owned()));
    }

    /// The client gets an error.
    pub fn refused(&mut self, state: FinalState, status: u16, error: &str) {
        self.close(Drafts::new(), state, status, Some(error.to_owned()));
    }

    fn close(&mut self, drafts: Drafts, state: FinalState, status: u16, error: Option<String>) {
        self.close_at(self.now(), drafts, state, status, error);
    }

    fn close_at(&mut self, took: Duration, mut drafts: Drafts, state: FinalState, status: u16, error: Option<String>) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        // A source that was waited for, and then not asked again, was left without a further attempt.
        self.outcomes(&mut drafts);
        let finished = RequestFinished {
            state,
            status,
            error,
            served_model: self.served_model.take(),
            // An order that was never begun is no attempt.
            attempts: self.machine.attempts().min(self.begun),
            fallback: self.machine.fallback(),
            degraded: self.answering.as_ref().is_some_and(|(candidate, _)| candidate.target > 0),
            missing: self.answering.as_ref().map_or_else(Vec::new, |(_, lacks)| lacks.to_vec()),
            skips: self.machine.take_skips().into_vec(),
            usage: self.usage.map_or(UsageReport::Absent, UsageReport::Reported),
            first_content_ms: self.first_content.map(drafts::millis),
            took_ms: drafts::millis(took),
            maybe_billed: self.machine.maybe_billed(),
        };
        if finished.degraded {
            self.replica.metrics.degraded();
        }
        let (attempts, fallback) = (finished.attempts, finished.fallback);
        drafts.push(self.story.finished(finished, self.served));
        self.awaited = self.write(drafts);
        let stream = self.story.stream;
        self.replica.metrics.ended(Ended { state, stream, attempts, fallback, took });
    }

    /// The client is gone, or the handler died: whatever was under way ends here.
    fn abandoned(&mut self) {
        let (state, kind, status, rule) = if std::thread::panicking() {
            (FinalState::Unknown, FailureKind::LocalFailure, 500, "local/panic@v1")
        } else {
            // What had begun to be answered was answered with 200; else nobody was there to take a status.
            let status = if self.first_content.is_some() { 200 } else { 499 };
            (FinalState::Cancelled, FailureKind::ClientCancelled, status, "local/client_gone@v1")
        };
        if self.running.is_none() || self.failure.is_some() {
            // What was ordered next had not begun: only a probe's permit is waited for before that.
            self.machine.passed_over(SkipReason::Probing);
        }
        self.machine.cancelled();
        // An attempt that had failed already keeps its verdict.
        let mut drafts = Drafts::new();
        self.attempt_failed(Next::Stop, &mut drafts);
        if let Some(running) = self.running.take() {
            let finished = AttemptFinished {
                kind,
                rule: rule.to_owned(),
                maybe_billed: true,
                ..self.story.attempt_finished(&running, self.now())
            };
            drafts.push(self.story.of_source(&running, finished));
            self.outcomes(&mut drafts);
            self.left(running);
        }
        self.close(drafts, state, status, None);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.closed {
            self.abandoned();
        }
        self.replica.gates.left_unfinished(std::mem::take(&mut self.parting));
    }
}
