//! Verdicts: what an observation means. Classification is data: a rule set says it, this module only reads it.
//!
//! One observation goes in, orthogonal answers come out: what failed, what may be tried next, what it says about the
//! source and the model, what is taken out, what the client sees and whether it may have cost money. None of them
//! follows from another.

mod answer;
mod builtin;
pub mod client_type;
mod fingerprint;
pub(crate) mod hint;
mod layer;
mod matching;
pub mod public;
pub mod report;
pub mod rule;
mod rulebook;
mod source;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use waybill_event::FailureKind;
use waybill_event::failure::{BlockVerdict, FallbackReason, Health, Recovery, Strength};

use crate::observation::{Ending, Observation};

pub use answer::{Answer, FailureRecord, all_busy, answer};
pub use layer::Layer;
pub use public::PublicCode;
pub use report::{Class, Report};
pub use rule::{CompiledRules, Elsewhere, RuleSet, RuleSetError, SameSource, Scope, When};
pub use rulebook::{Judged, Rulebook};
pub use source::BlockSource;

use hint::Hinted;
use matching::Found;
use rule::{BlockRule, ClientRule};

/// The shortest block that a hint makes: a hint of nothing would otherwise be no block at all.
const MIN_HINTED_BLOCK: Duration = Duration::from_secs(1);
/// How long a model is given up that only a probe would bring back: after that it is asked again.
const MODEL_UNTIL_PROBE: Duration = Duration::from_secs(3_600);
/// How long a model is given up that only an operator would bring back.
const MODEL_UNTIL_OPERATOR: Duration = Duration::from_secs(86_400);

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
    /// The kind in four words, as far as those can say it.
    pub class: Class,
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
    /// What that is about; nothing where nothing is taken out.
    pub scope: Option<Scope>,
    /// What says for how long.
    pub block_source: BlockSource,
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
    /// Where no rule knows what the upstream said: a fingerprint of its shape, without any of its values, so that a rule
    /// can be written.
    pub unmatched: Option<Arc<str>>,
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
/// Costs time linear in the size of what is looked at, which is bounded. Whatever the rules say, nothing is tried again
/// once content has gone to the client.
#[must_use]
pub fn classify(rules: &RuleSet, observation: &Observation) -> Verdict {
    resolve(&rules.find(observation, &|_| true), observation)
}

/// Turns a treatment, which speaks of cases, into a verdict on this one.
fn resolve(found: &Found<'_>, observation: &Observation) -> Verdict {
    let treatment = found.treatment;
    let status = status_of(&observation.ending);
    let hinted = treatment.hint.as_ref().and_then(|hint| hint::read(hint, observation));
    let said = status.or(observation.error.status);
    // A refusal before any work costs the upstream nothing, whatever kind it is.
    let refused_early = matches!(said, Some(401 | 402 | 403 | 429));
    // An overload that came as 429 is told as the limit it claims to be.
    let fallback = match (treatment.kind, said) {
        (FailureKind::Overloaded, Some(429)) => FallbackReason::RateLimited,
        _ => treatment.fallback,
    };
    let committed = observation.committed;
    let (block, scope, block_source) = block(treatment.block, hinted.as_ref());
    Verdict {
        kind: treatment.kind,
        class: Class::of(treatment),
        rule: Arc::clone(&found.label),
        retry_elsewhere: if committed { Elsewhere::Never } else { treatment.elsewhere },
        retry_same: if committed { None } else { treatment.same },
        source_health: treatment.source_health,
        model_health: treatment.model_health,
        block,
        scope,
        block_source,
        client: treatment.client.as_ref().map(|rule| client(rule, status)),
        status,
        maybe_billed: treatment.maybe_billed,
        wait: hinted.map(|hinted| hinted.wait),
        counts_attempt: treatment.counts && !refused_early,
        fallback,
        unmatched: found.unmatched.then(|| fingerprint::of(observation)),
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

type Blocked = (Option<BlockVerdict>, Option<Scope>, BlockSource);

fn block(rule: BlockRule, hinted: Option<&Hinted>) -> Blocked {
    match rule {
        BlockRule::None => (None, None, BlockSource::None),
        BlockRule::Disable { recovery, scope } => {
            let (source, model) = match recovery {
                Recovery::Probe => (BlockSource::UntilProbe, MODEL_UNTIL_PROBE),
                Recovery::Operator => (BlockSource::UntilOperator, MODEL_UNTIL_OPERATOR),
            };
            let block = match scope {
                Scope::Model => timed(Strength::Hard, scope, model),
                Scope::Key | Scope::Account | Scope::Channel => BlockVerdict::Disable { recovery },
            };
            (Some(block), Some(scope), source)
        }
        BlockRule::Block { strength, scope, seconds, hinted: otherwise } => {
            let (strength, time, source) = match hinted {
                Some(Hinted { wait, from }) => {
                    (otherwise.unwrap_or(strength), (*wait).max(MIN_HINTED_BLOCK), from.clone())
                }
                None => (strength, Duration::from_secs(seconds), BlockSource::Rule),
            };
            if time.is_zero() {
                return (None, None, BlockSource::None);
            }
            (Some(timed(strength, scope, time)), Some(scope), source)
        }
    }
}

fn timed(strength: Strength, scope: Scope, time: Duration) -> BlockVerdict {
    let duration_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    BlockVerdict::Block { strength, model_only: scope == Scope::Model, duration_ms }
}

fn client(rule: &ClientRule, status: Option<u16>) -> ClientAnswer {
    let kept = status.filter(|status| rule.keep.iter().any(|range| range.contains(*status)));
    ClientAnswer { status: kept.or(rule.status).unwrap_or_else(|| rule.code.status()), code: rule.code }
}
