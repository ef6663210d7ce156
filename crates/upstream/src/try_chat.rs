//! One small chat, to see whether a source works: what probes, checks and an administrator's test send.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use waybill_domain::observation::{Fault, Observation, Phase, TransportFault};
use waybill_event::failure::Sent;
use waybill_wire::chat::inspect_answer;
use waybill_wire::headers::ToUpstream;

use crate::dispatch::{Dispatcher, Limits, Outbound};
use crate::observe;
use crate::target::Target;

/// Most of an answer that is read.
const ANSWER_BYTES: usize = 1024 * 1024;
/// The limit's older name, and how many tokens it lets through.
const OLDER: (&str, u32) = ("max_tokens", 1);
/// Its newer name, which models know that think before they answer; they need some room to do so.
const NEWER: (&str, u32) = ("max_completion_tokens", 64);

/// What a try showed.
#[derive(Debug)]
pub struct Tried {
    /// What was observed.
    pub observation: Observation,
    /// The HTTP status, if one came.
    pub status: Option<u16>,
}

impl Dispatcher {
    /// Asks a model for one token. `now_ms` is UTC in milliseconds since 1970; the whole takes no longer than `deadline`,
    /// twice if the model refuses the older name of the limit.
    pub async fn try_chat(
        &self,
        target: &Target,
        provider: &str,
        upstream_model: &str,
        deadline: Duration,
        now_ms: i64,
    ) -> Tried {
        let ask = async |limit| {
            let asking = self.ask_for_little(target, provider, upstream_model, limit, deadline, now_ms);
            tokio::time::timeout(deadline, asking).await.unwrap_or_else(|_| late(provider))
        };
        let tried = ask(OLDER).await;
        if tried.observation.error.param.as_deref() == Some(OLDER.0) { ask(NEWER).await } else { tried }
    }

    async fn ask_for_little(
        &self,
        target: &Target,
        provider: &str,
        upstream_model: &str,
        (limit, tokens): (&str, u32),
        deadline: Duration,
        now_ms: i64,
    ) -> Tried {
        let body = json!({
            "model": upstream_model,
            "messages": [{"role": "user", "content": "ping"}],
            limit: tokens,
            "stream": false,
        });
        let outbound = Outbound {
            path: "chat/completions",
            headers: &ToUpstream::default(),
            body: Bytes::from(body.to_string()),
            accept_stream: false,
        };
        let limits = Limits { head: deadline, ..Limits::default() };
        let broken = |fault, status| Tried { observation: observe::transport(provider, fault, false), status };
        let mut reply = match self.dispatch(target, outbound, limits).await {
            Ok(reply) => reply,
            Err(fault) => return broken(fault, None),
        };
        let (status, headers) = (reply.status(), reply.headers().clone());
        let code = status.as_u16();
        let body = match reply.read_up_to(ANSWER_BYTES).await {
            Ok((body, _)) => body,
            Err(fault) => return broken(fault, Some(code)),
        };
        let observation = if status.is_success() {
            match inspect_answer(&body) {
                Ok(_) => observe::success(provider, false),
                Err(fault) => observe::wrong_answer(provider, code, &headers, &fault, now_ms),
            }
        } else {
            observe::status(provider, code, &headers, &body, now_ms)
        };
        Tried { observation, status: Some(code) }
    }
}

fn late(provider: &str) -> Tried {
    let fault = TransportFault {
        phase: Phase::Body,
        fault: Fault::TimedOut,
        sent: Sent::Response,
        received: 0,
        detail: "the answer didn't arrive in time".to_owned(),
    };
    Tried { observation: observe::transport(provider, fault, false), status: None }
}
