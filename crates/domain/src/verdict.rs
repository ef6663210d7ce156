//! Verdicts: what an observation means. Classification is data: a rule set says it, this module only reads it.
//!
//! One observation goes in, orthogonal answers come out: what failed, what may be tried next, what it says about the
//! source and the model, what is taken out, what the client sees and whether it may have cost money. None of them
//! follows from another.

mod answer;
mod builtin;
mod grams;
mod hint;
mod layer;
mod matching;
pub mod public;
pub mod rule;
mod rulebook;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use waybill_event::FailureKind;
use waybill_event::failure::{BlockVerdict, FallbackReason, Health};

use crate::observation::{Ending, Observation};

pub use answer::{Answer, FailureRecord, all_busy, answer};
pub use layer::Layer;
pub use public::PublicCode;
pub use rule::{Elsewhere, RuleSet, RuleSetError, SameSource, When};
pub use rulebook::{Judged, Rulebook};

use rule::{BlockRule, ClientRule, Treatment};

/// The shortest block that a hint makes: a hint of nothing would otherwise be no block at all.
const MIN_HINTED_BLOCK: Duration = Duration::from_secs(1);

/// What the client is told if this failure ends its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAnswer {
    /// HTTP status; never 401, 402 or 403, because the client's own credential is fine.
    pub status: u16,
    /// The public error code.
    pub code: PublicCode,
}

/// What an observation means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What became of the attempt.
    pub kind: FailureKind,
    /// The rule that said so, with its version: `id@vN`.
    pub rule: Arc<str>,
    /// Whether another source may be asked.
    pub retry_elsewhere: Elsewhere,
    /// Whether the same source may be asked again.
    pub retry_same: Option<SameSource>,
    /// Evidence on the source.
    pub source_health: Health,
    /// Evidence on the model at the source.
    pub model_health: Health,
    /// What is taken out.
    pub block: Option<BlockVerdict>,
    /// What the client sees if it ends here; nothing after success.
    pub client: Option<ClientAnswer>,
    /// The upstream's own status, where it answered with an error.
    pub status: Option<u16>,
    /// Whether the upstream may charge for it although it failed.
    pub maybe_billed: bool,
    /// How long the upstream asks to wait, capped by the kind; only for kinds that obey hints.
    pub wait: Option<Duration>,
    /// Whether the attempt may have cost the upstream work and so counts against `max_attempts`.
    pub counts_attempt: bool,
    /// The label if this is the request's first failure and another source is asked.
    pub fallback: FallbackReason,
}

impl Verdict {
    /// After what time another try makes sense: what the upstream asks for, or how long a limit takes it out.
    #[must_use]
    pub fn passes_after(&self) -> Option<Duration> {
        let limit =
            matches!(self.kind, FailureKind::RateLimited | FailureKind::WindowExhausted | FailureKind::Overloaded);
        self.wait.or(match &self.block {
            Some(BlockVerdict::Block { duration_ms, .. }) if limit => Some(Duration::from_millis(*duration_ms)),
            Some(BlockVerdict::Block { .. } | BlockVerdict::Disable { .. }) | None => None,
        })
    }

    /// Whether the upstream may have done the work without our having its answer.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        self.kind == FailureKind::Network && self.maybe_billed
    }
}

/// Says what an observation means.
///
/// Costs time linear in the size of the error's message. Whatever the rules say, nothing is tried again once content
/// has gone to the client.
#[must_use]
pub fn classify(rules: &RuleSet, observation: &Observation) -> Verdict {
    let (label, treatment) = rules.find(observation, &|_| true);
    resolve(label, treatment, observation)
}

/// Turns a treatment, which speaks of cases, into a verdict on this one.
fn resolve(label: Arc<str>, treatment: &Treatment, observation: &Observation) -> Verdict {
    let status = status_of(&observation.ending);
    let wait = treatment.hint.and_then(|hint| {
        let told = observation.wait.or_else(|| observation.error.message.as_deref().and_then(hint::in_message))?;
        Some(told.min(Duration::from_secs(hint.cap_s)))
    });
    let said = status.or(observation.error.status);
    // A refusal before any work costs the upstream nothing, whatever kind it is.
    let refused_early = matches!(said, Some(401 | 402 | 403 | 429));
    // An overload that came as 429 is told as the limit it claims to be.
    let fallback = match (treatment.kind, said) {
        (FailureKind::Overloaded, Some(429)) => FallbackReason::RateLimited,
        _ => treatment.fallback,
    };
    let committed = observation.committed;
    Verdict {
        kind: treatment.kind,
        rule: label,
        retry_elsewhere: if committed { Elsewhere::Never } else { treatment.elsewhere },
        retry_same: if committed { None } else { treatment.same },
        source_health: treatment.source_health,
        model_health: treatment.model_health,
        block: block(treatment.block, wait),
        client: treatment.client.as_ref().map(|rule| client(rule, status)),
        status,
        maybe_billed: treatment.maybe_billed,
        wait,
        counts_attempt: treatment.counts && !refused_early,
        fallback,
    }
}

fn status_of(ending: &Ending) -> Option<u16> {
    match ending {
        Ending::Status { status, .. } => Some(*status),
        Ending::Wrong2xx { .. }
        | Ending::Success
        | Ending::Transport(_)
        | Ending::TimedOut { .. }
        | Ending::ClientGone
        | Ending::Local => None,
    }
}

fn block(rule: BlockRule, wait: Option<Duration>) -> Option<BlockVerdict> {
    match rule {
        BlockRule::None => None,
        BlockRule::Disable { recovery } => Some(BlockVerdict::Disable { recovery }),
        BlockRule::Block { strength, model_only, seconds, hinted } => {
            let (strength, time) = match wait {
                Some(wait) => (hinted.unwrap_or(strength), wait.max(MIN_HINTED_BLOCK)),
                None => (strength, Duration::from_secs(seconds)),
            };
            let duration_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            (duration_ms > 0).then_some(BlockVerdict::Block { strength, model_only, duration_ms })
        }
    }
}

fn client(rule: &ClientRule, status: Option<u16>) -> ClientAnswer {
    let kept = status.filter(|status| rule.keep.iter().any(|range| range.contains(*status)));
    ClientAnswer { status: kept.or(rule.status).unwrap_or_else(|| rule.code.status()), code: rule.code }
}
