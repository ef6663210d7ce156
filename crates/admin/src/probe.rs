//! Trying a channel: one small chat, judged by the same rules as the attempts of clients.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::json;
use tokio::time::Instant;
use waybill_domain::observation::{Fault, Observation, Phase, TransportFault};
use waybill_domain::verdict::{Rulebook, Verdict};
use waybill_event::LogTime;
use waybill_event::config::Channel;
use waybill_event::failure::Sent;
use waybill_secret::SecretString;
use waybill_upstream::{Dispatcher, Limits, Outbound, Target, TargetFault, observe};
use waybill_wire::chat::inspect_answer;
use waybill_wire::endpoint::{BaseUrl, BaseUrlFault};

/// Time the whole try may take: models that think before they answer are slow.
const WHOLE: Duration = Duration::from_secs(60);
/// Most of an answer that is read.
const ANSWER_BYTES: usize = 1024 * 1024;

/// Why a channel can't even be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    /// Its base URL can't be used.
    #[error("the base URL can't be used")]
    BaseUrl(#[from] BaseUrlFault),
    /// Its credential can't be used.
    #[error(transparent)]
    Credential(#[from] TargetFault),
}

/// Where a channel's attempts go.
pub(crate) fn target(channel: &Channel, credential: &SecretString) -> Result<Target, TargetError> {
    Ok(Target::new(BaseUrl::parse(&channel.base_url)?, credential, channel.allow_private)?)
}

/// What a try showed.
pub(crate) struct Tried {
    pub(crate) verdict: Verdict,
    pub(crate) observation: Observation,
    pub(crate) status: Option<u16>,
    pub(crate) took: Duration,
}

/// Asks the model of a channel for one token.
pub(crate) async fn try_chat(
    dispatcher: &Dispatcher,
    rules: &Rulebook,
    target: &Target,
    channel: &Channel,
    upstream_model: &str,
    now: LogTime,
) -> Tried {
    let begun = Instant::now();
    let provider = channel.provider.as_str();
    let (mut observation, mut status) = ask(dispatcher, target, provider, upstream_model, "max_tokens", now).await;
    // Models that think before they answer refuse the older name of the limit.
    if observation.error.param.as_deref() == Some("max_tokens") {
        (observation, status) = ask(dispatcher, target, provider, upstream_model, "max_completion_tokens", now).await;
    }
    let verdict = rules.classify(Some(channel.source()), &observation);
    Tried { verdict, observation, status, took: begun.elapsed() }
}

async fn ask(
    dispatcher: &Dispatcher,
    target: &Target,
    provider: &str,
    upstream_model: &str,
    limit: &str,
    now: LogTime,
) -> (Observation, Option<u16>) {
    let body = json!({
        "model": upstream_model,
        "messages": [{"role": "user", "content": "Say ok."}],
        limit: if limit == "max_tokens" { 1 } else { 64 },
        "stream": false,
    });
    let outbound = Outbound {
        path: "chat/completions",
        headers: &HeaderMap::new(),
        body: Bytes::from(body.to_string()),
        accept_stream: false,
    };
    let limits = Limits { head: WHOLE, ..Limits::default() };
    let asking = async {
        let mut reply = match dispatcher.dispatch(target, outbound, limits).await {
            Ok(reply) => reply,
            Err(fault) => return (observe::transport(provider, fault, false), None),
        };
        let (status, headers) = (reply.status(), reply.headers().clone());
        let code = status.as_u16();
        let (body, _) = match reply.read_up_to(ANSWER_BYTES).await {
            Ok(read) => read,
            Err(fault) => return (observe::transport(provider, fault, false), Some(code)),
        };
        let now_ms = now.as_millis();
        let observation = if status.is_success() {
            match inspect_answer(&body) {
                Ok(_) => observe::success(provider, false),
                Err(fault) => observe::wrong_answer(provider, code, &headers, &fault, now_ms),
            }
        } else {
            observe::status(provider, code, &headers, &body, now_ms)
        };
        (observation, Some(code))
    };
    match tokio::time::timeout(WHOLE, asking).await {
        Ok(observed) => observed,
        Err(_) => {
            let fault = TransportFault {
                phase: Phase::Body,
                fault: Fault::TimedOut,
                sent: Sent::Response,
                received: 0,
                detail: "the answer didn't arrive in time".to_owned(),
            };
            (observe::transport(provider, fault, false), None)
        }
    }
}
