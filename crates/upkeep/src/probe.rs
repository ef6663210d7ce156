//! One probe: the cheapest chat call there is, judged like any other attempt.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::json;
use waybill_domain::observation::{Ending, Limit, Observation};
use waybill_domain::verdict::Rulebook;
use waybill_event::config::Channel;
use waybill_event::failure::Sent;
use waybill_event::{FailureKind, LogTime};
use waybill_journal::{Log, Stream};
use waybill_secret::{SecretString, Vault};
use waybill_upstream::{Dispatcher, Limits, Outbound, Target, observe};
use waybill_wire::chat::inspect_answer;
use waybill_wire::endpoint::BaseUrl;

/// A whole probe takes no longer.
pub(crate) const PROBE_LIFE: Duration = Duration::from_secs(45);
const CONNECT: Duration = Duration::from_secs(5);
/// Most of an answer that is read.
const ANSWER_BYTES: usize = 256 * 1_024;

/// Why a probe couldn't be sent; the source's state stays what it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unready {
    #[error("the credential that the catalogue names isn't in the log's newest")]
    Credential,
    #[error("the credential can't be read: {reason}")]
    Vault { reason: String },
    #[error("no request can be made for it: {reason}")]
    Target { reason: String },
}

/// Sends probes.
pub(crate) struct Prober {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) vault: Arc<Vault>,
    pub(crate) dispatcher: Dispatcher,
}

impl Prober {
    /// Probes a channel with one of its models: another one each time, so that one model's trouble hides nothing.
    pub(crate) async fn probe(
        &self,
        rules: &Rulebook,
        channel: &Channel,
        tries: u32,
        now: LogTime,
    ) -> Result<FailureKind, Unready> {
        let target = self.target(channel).await?;
        let turn = usize::try_from(tries.saturating_sub(1)).unwrap_or(0);
        let model = channel.models.get(turn % channel.models.len().max(1)).map_or("", |model| model.upstream_name());
        let asking = self.ask(&channel.provider, &target, model, now.as_millis());
        let observation = tokio::time::timeout(PROBE_LIFE, asking).await.unwrap_or_else(|_| {
            let ending = Ending::TimedOut { limit: Limit::Whole, sent: Sent::Request };
            Observation::new(channel.provider.as_str(), ending)
        });
        Ok(rules.classify(Some(channel.source()), &observation).kind)
    }

    async fn target(&self, channel: &Channel) -> Result<Target, Unready> {
        let credential = self.credential(channel).await?;
        let wrong = |reason: String| Unready::Target { reason };
        let base_url = BaseUrl::parse(&channel.base_url).map_err(|fault| wrong(fault.to_string()))?;
        Target::new(base_url, &credential, channel.allow_private).map_err(|fault| wrong(fault.to_string()))
    }

    /// The credential of exactly the revision that the catalogue names.
    async fn credential(&self, channel: &Channel) -> Result<Arc<SecretString>, Unready> {
        let revision = channel.credential.as_ref().ok_or(Unready::Credential)?.revision;
        let id = channel.id.get();
        if let Some(held) = self.vault.get("channel", id, revision) {
            return Ok(held);
        }
        let subject = Vault::subject("channel", id);
        let unreadable = |reason: String| Unready::Vault { reason };
        let newest = self.log.last_of_subject(Stream::Secret, &subject).await;
        let message = newest.map_err(|error| unreadable(error.to_string()))?.ok_or(Unready::Credential)?;
        let taken = self.vault.take(&subject, message.sequence, &message.payload);
        taken.map_err(|error| unreadable(error.to_string()))?;
        self.vault.get("channel", id, revision).ok_or(Unready::Credential)
    }

    async fn ask(&self, provider: &str, target: &Target, model: &str, now_ms: i64) -> Observation {
        let body = json!({
            "model": model,
            "messages": [{"role": "user", "content": "ping"}],
            "max_tokens": 1,
            "stream": false,
        });
        let outbound = Outbound {
            path: "chat/completions",
            headers: &HeaderMap::new(),
            body: Bytes::from(body.to_string()),
            accept_stream: false,
        };
        let limits = Limits { connect: CONNECT, head: PROBE_LIFE };
        let mut reply = match self.dispatcher.dispatch(target, outbound, limits).await {
            Ok(reply) => reply,
            Err(fault) => return observe::transport(provider, fault, false),
        };
        let (status, headers) = (reply.status(), reply.headers().clone());
        let body = match reply.read_up_to(ANSWER_BYTES).await {
            Ok((body, _)) => body,
            Err(fault) => return observe::transport(provider, fault, false),
        };
        if !status.is_success() {
            return observe::status(provider, status.as_u16(), &headers, &body, now_ms);
        }
        match inspect_answer(&body) {
            Ok(_) => observe::success(provider, false),
            Err(fault) => observe::wrong_answer(provider, status.as_u16(), &headers, &fault, now_ms),
        }
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
