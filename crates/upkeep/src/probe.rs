//! One probe or check: the cheapest call there is, judged like any other attempt.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use waybill_domain::catalog::SourceEntity;
use waybill_domain::observation::{Fault, Observation, Phase, TransportFault};
use waybill_domain::verdict::{Rulebook, Verdict};
use waybill_event::config::CheckBy;
use waybill_event::failure::{Health, Sent};
use waybill_event::{FailureKind, LogTime, SourceKind};
use waybill_journal::{Log, Stream};
use waybill_secret::{Bearer, NoBearer, Vault};
use waybill_upstream::models::FetchModelsError;
use waybill_upstream::{Dispatcher, Limits, Target, observe};
use waybill_wire::endpoint::BaseUrl;
use waybill_wire::mask::mask;

use crate::suitable;

/// A whole probe takes no longer.
pub(crate) const PROBE_LIFE: Duration = Duration::from_secs(45);
/// How many models one probe asks at most: one that is slow, or gone, or made for something else says nothing of the
/// credential.
const MODELS: usize = 3;

/// Why a probe couldn't be sent; the source's state stays what it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unready {
    #[error(transparent)]
    Credential(#[from] NoBearer),
    #[error("the credential can't be read: {reason}")]
    Vault { reason: String },
    #[error("no request can be made for it: {reason}")]
    Target { reason: String },
}

/// What a probe or check showed.
#[derive(Debug)]
pub(crate) struct Probed {
    pub(crate) verdict: Verdict,
    /// What was sent as model, if one was.
    pub(crate) upstream_model: Option<String>,
    /// What the upstream said, masked.
    pub(crate) message: Option<String>,
    pub(crate) took: Duration,
}

/// Sends probes.
pub(crate) struct Prober {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) vault: Arc<Vault>,
    pub(crate) dispatcher: Dispatcher,
    /// Time that one model has to answer.
    pub(crate) each: Duration,
}

impl Prober {
    /// Probes a source with one of its models, or with a few where the first says nothing of the source: others each
    /// time, so that one model's trouble hides nothing.
    pub(crate) async fn probe(
        &self,
        rules: &Rulebook,
        entity: &SourceEntity,
        tries: u32,
        now: LogTime,
    ) -> Result<Probed, Unready> {
        let target = self.target(entity, now).await?;
        let mut models = suitable::models(entity, tries).into_iter().take(MODELS);
        let begun = Instant::now();
        let mut probed = self.chat(rules, entity, &target, models.next().unwrap_or_default(), now).await;
        for model in models {
            if !says_of_the_model_only(&probed.verdict) || begun.elapsed() + self.each > PROBE_LIFE {
                break;
            }
            probed = self.chat(rules, entity, &target, model, now).await;
        }
        Ok(probed)
    }

    /// Checks a source that serves.
    pub(crate) async fn check(&self, rules: &Rulebook, entity: &SourceEntity, now: LogTime) -> Result<Probed, Unready> {
        let target = self.target(entity, now).await?;
        Ok(match entity.probe().check_by {
            CheckBy::Chat => {
                let model = suitable::models(entity, 1).into_iter().next().unwrap_or_default();
                self.chat(rules, entity, &target, model, now).await
            }
            CheckBy::Models => self.list(rules, entity, &target).await,
        })
    }

    async fn chat(
        &self,
        rules: &Rulebook,
        entity: &SourceEntity,
        target: &Target,
        upstream_model: &str,
        now: LogTime,
    ) -> Probed {
        let begun = Instant::now();
        let (provider, now_ms) = (entity.provider(), now.as_millis());
        let tried = self.dispatcher.try_chat(target, provider, upstream_model, self.each, now_ms).await;
        judged(rules, entity, Some(upstream_model), &tried.observation, begun)
    }

    /// Whether it can be reached: an answer counts only if it is a list of models.
    async fn list(&self, rules: &Rulebook, entity: &SourceEntity, target: &Target) -> Probed {
        let begun = Instant::now();
        let provider = entity.provider();
        let limits = Limits { head: self.each, ..Limits::default() };
        let observation = match self.dispatcher.fetch_models(target, limits).await {
            Ok(_) => observe::success(provider, false),
            Err(FetchModelsError::Transport(fault)) => observe::transport(provider, fault, false),
            Err(FetchModelsError::Status { facts }) => observe::refused(provider, &facts),
            Err(FetchModelsError::List(fault)) => {
                let invalid = TransportFault {
                    phase: Phase::Body,
                    fault: Fault::Protocol,
                    sent: Sent::Response,
                    received: 0,
                    detail: format!("invalid_response: {fault}"),
                };
                observe::transport(provider, invalid, false)
            }
        };
        judged(rules, entity, None, &observation, begun)
    }

    async fn target(&self, entity: &SourceEntity, now: LogTime) -> Result<Target, Unready> {
        let bearer = self.bearer(entity, now).await?;
        let wrong = |reason: String| Unready::Target { reason };
        let base_url = BaseUrl::parse(entity.base_url()).map_err(|fault| wrong(fault.to_string()))?;
        let target = Target::new(entity.source(), base_url, &bearer, entity.allow_private());
        target.map_err(|fault| wrong(fault.to_string()))
    }

    /// What the catalogue's word for a credential stands for; read from the log where this process doesn't have it.
    async fn bearer(&self, entity: &SourceEntity, now: LogTime) -> Result<Bearer, Unready> {
        let named = entity.credential().ok_or(NoBearer::Missing)?.revision;
        let held = || match entity.source().kind {
            SourceKind::Channel => self.vault.of_channel(entity.id(), named),
            SourceKind::Account => self.vault.of_account(entity.id(), named, now.as_millis()),
        };
        if let Ok(bearer) = held() {
            return Ok(bearer);
        }
        let subject = Vault::subject(entity.kind(), entity.id());
        let unreadable = |reason: String| Unready::Vault { reason };
        let newest = self.log.last_of_subject(Stream::Secret, &subject).await;
        let message = newest.map_err(|error| unreadable(error.to_string()))?.ok_or(NoBearer::Missing)?;
        let taken = self.vault.take(&subject, message.sequence, &message.payload);
        taken.map_err(|error| unreadable(error.to_string()))?;
        Ok(held()?)
    }
}

fn judged(
    rules: &Rulebook,
    entity: &SourceEntity,
    upstream_model: Option<&str>,
    observation: &Observation,
    begun: Instant,
) -> Probed {
    Probed {
        verdict: rules.classify(Some(entity.source()), observation),
        upstream_model: upstream_model.map(str::to_owned),
        message: observation.told().map(|text| mask(&text)),
        took: begun.elapsed(),
    }
}

/// Whether a failure is the model's own: another one may tell more of the source.
fn says_of_the_model_only(verdict: &Verdict) -> bool {
    match verdict.kind {
        FailureKind::ModelUnavailable | FailureKind::Timeout | FailureKind::Overloaded => true,
        FailureKind::ServerError => verdict.source_health == Health::None,
        kind => kind == FailureKind::MalformedResponse,
    }
}

/// Whether a probe with this result brings the source back: the credential was taken and the wallet charged, or would
/// have been, had the tiny request been to the model's taste. A source that is broken otherwise is the breaker's.
pub(crate) const fn brings_back(kind: FailureKind) -> bool {
    match kind {
        FailureKind::Success
        | FailureKind::EmptyOutput
        | FailureKind::InvalidRequest
        | FailureKind::CapabilityMismatch
        | FailureKind::ContextOverflow
        | FailureKind::PolicyRefusal => true,
        FailureKind::PayloadTooLarge
        | FailureKind::RelayFilter
        | FailureKind::AuthInvalid
        | FailureKind::AuthRefreshable
        | FailureKind::AccountBanned
        | FailureKind::BillingExhausted
        | FailureKind::EgressBlocked
        | FailureKind::ChannelMisconfigured
        | FailureKind::ModelUnavailable
        | FailureKind::Overloaded
        | FailureKind::RateLimited
        | FailureKind::WindowExhausted
        | FailureKind::TransientConflict
        | FailureKind::ServerError
        | FailureKind::EdgeError
        | FailureKind::Timeout
        | FailureKind::Network
        | FailureKind::MalformedResponse
        | FailureKind::ClientCancelled
        | FailureKind::LocalFailure
        | FailureKind::LocalLimit => false,
    }
}
