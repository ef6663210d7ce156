//! Attempts fail: what each was, and what it says about its source.

use std::sync::Arc;
use std::time::Duration;

use waybill_domain::attempt::Step;
use waybill_domain::observation::{Ending, Observation};
use waybill_domain::verdict::{Judged, Verdict};
use waybill_event::FailureKind;
use waybill_event::failure::{BlockVerdict, Health};
use waybill_event::selection::Next;
use waybill_event::traffic::{AttemptFinished, Evidence};
use waybill_wire::mask::{Said, mask};

use super::{Failure, Heard, Record, Running, drafts};
use crate::emit::Drafts;

/// What takes less than this wasn't a wait.
const WAITED: Duration = Duration::from_millis(50);

impl Record {
    /// The running attempt failed. What follows isn't known yet: [`Record::after_failure`] writes both.
    pub fn failed(&mut self, observation: Observation, heard: Heard) -> Arc<str> {
        let source = self.running.as_ref().map(|running| running.order.candidate.source.source);
        let Judged { verdict, shadow } = self.replica.snapshot.load().rulebook().judge(source, &observation);
        self.replica.metrics.failed(verdict.kind);
        if let Some(running) = &self.running
            && verdict.kind == FailureKind::AuthRefreshable
        {
            self.replica.refused(&running.entity, running.credential_revision);
        }
        if let Some(fingerprint) = &verdict.unmatched
            && self.replica.metrics.unmatched(&observation.provider, heard.status)
        {
            tracing::info!(
                %fingerprint,
                provider = %observation.provider,
                status = heard.status,
                kind = verdict.kind.as_str(),
                rule = %verdict.rule,
                "an upstream failed in a way that no rule knows"
            );
        }
        if observation.committed {
            let now = self.now();
            self.machine.committed(now);
        }
        self.failed_at = self.now();
        self.machine.failed(&verdict);
        let rule = verdict.rule.clone();
        self.failure = Some(Box::new(Failure { verdict, shadow, observation, heard }));
        rule
    }

    /// Writes the end of the failed attempt, the outcome of its source if that was left, and the next start if one
    /// follows at once. Says whether that has begun.
    #[must_use]
    pub fn after_failure(&mut self, step: &Step, next: Option<Running>) -> bool {
        let mut ended = Drafts::new();
        self.attempt_failed(step.follows(), &mut ended);
        match next {
            Some(next) => self.go_on(ended, next),
            None => {
                self.write(ended);
                false
            }
        }
    }

    pub(super) fn attempt_failed(&mut self, next: Next, drafts: &mut Drafts) {
        let Some(failure) = self.failure.take() else { return };
        let Failure { verdict, shadow, observation, heard } = *failure;
        let Some(running) = self.running.take() else { return };
        let said = self.request.as_ref().map_or_else(Said::unknown, |request| Said::of(request));
        let evidence = evidence(&observation, &said, verdict.wait);
        if let Some(evidence) = evidence.clone() {
            self.evidence.push((running.order.attempt, evidence));
        }
        if let Some(decided) = probe_decided(&running, &verdict) {
            drafts.extend(self.story.probe_finished(&running, decided, verdict.kind));
        }
        let finished = AttemptFinished {
            kind: verdict.kind,
            rule: verdict.rule.to_string(),
            status: heard.status,
            sent: drafts::sent(&observation),
            maybe_billed: verdict.maybe_billed,
            next: Some(next),
            evidence,
            upstream_request_id: heard.upstream_request_id,
            shadow,
            ..self.story.attempt_finished(&running, self.now())
        };
        drafts.push(self.story.of_source(&running, finished));
        self.outcomes(drafts);
        if let Some(permit) = running.permit {
            self.replica.probes.release_failed(permit);
        }
        if left_unfinished(&observation.ending) {
            self.replica.gates.left_unfinished(running.held);
        }
    }

    /// The outcome of the source that was asked last, if it was left. It is taken before another attempt begins.
    pub(super) fn outcomes(&mut self, drafts: &mut Drafts) {
        while let Some(mut outcome) = self.machine.take_outcome() {
            let usage = self.usage.filter(|_| outcome.kind == FailureKind::Success);
            if let Some(block) = outcome.block.take() {
                outcome.block = left_of(block, self.now().saturating_sub(self.failed_at));
            }
            drafts.push(self.story.outcome(&outcome, self.used, usage));
        }
    }
}

/// Whether the upstream may still be answering an attempt that ended so.
const fn left_unfinished(ending: &Ending) -> bool {
    match ending {
        Ending::TimedOut { .. } | Ending::Wrong2xx { .. } | Ending::ClientGone | Ending::Local => true,
        Ending::Success | Ending::Status { .. } | Ending::Transport(_) => false,
    }
}

/// What is left of a block that is told so long after its cause: a source that was waited for is told of when it is left,
/// and its limit ends when the upstream said.
fn left_of(block: BlockVerdict, since: Duration) -> Option<BlockVerdict> {
    match block {
        BlockVerdict::Block { strength, model_only, duration_ms } if since >= WAITED => {
            let since = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
            let left = duration_ms.checked_sub(since).filter(|left| *left > 0);
            left.map(|duration_ms| BlockVerdict::Block { strength, model_only, duration_ms })
        }
        BlockVerdict::Block { .. } | BlockVerdict::Disable { .. } => Some(block),
    }
}

/// What of an error is kept: bounded and masked.
fn evidence(observation: &Observation, said: &Said, wait: Option<Duration>) -> Option<Evidence> {
    let error = &observation.error;
    let word = |word: &Option<String>| word.as_deref().map(mask);
    // Our own words quote nobody.
    let own = error.message.is_none();
    let message = observation.told().map(|text| if own { mask(&text) } else { mask(&said.out_of(&text)) });
    let wait_ms = wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    let (code, kind) = (word(&error.code), word(&error.kind));
    let param = error.param.as_deref().map(|param| mask(&said.out_of(param)));
    let evidence = Evidence { code, kind, param, message, wait_ms };
    (evidence != Evidence::default()).then_some(evidence)
}

/// What a failed probe decides about its scope; nothing where the failure says nothing about health.
fn probe_decided(running: &Running, verdict: &Verdict) -> Option<bool> {
    running.permit.as_ref()?;
    let opening = running.order.candidate.probe_of.as_deref()?;
    let health = if drafts::is_of_model(opening) { verdict.model_health } else { verdict.source_health };
    match health {
        Health::Ok => Some(true),
        Health::Fail => Some(false),
        Health::Busy | Health::None => None,
    }
}
