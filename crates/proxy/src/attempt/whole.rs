//! An answer that is read whole before anything goes to the client.

use bytes::Bytes;
use http::HeaderMap;
use tokio::time::Instant;
use waybill_domain::observation::Limit;
use waybill_event::failure::Sent;
use waybill_upstream::{Reply, observe};
use waybill_wire::chat::{ShapeFault, inspect_answer};
use waybill_wire::headers::{is_encoded, is_encoded_so};
use waybill_wire::usage::Usage;

use super::{Ask, Attempted, timed_out};
use crate::record::Heard;

/// A whole answer.
pub struct Answer {
    /// The upstream's status.
    pub status: u16,
    /// The upstream's headers.
    pub headers: HeaderMap,
    /// The body, as it came.
    pub body: Bytes,
    /// What it reports.
    pub usage: Option<Usage>,
    /// The model it names.
    pub model: Option<String>,
    /// What was heard.
    pub heard: Heard,
}

/// Reads a 2xx answer to its end and looks whether it is one.
pub(super) async fn read(ask: &Ask<'_>, mut reply: Reply, heard: Heard, end: Instant) -> Attempted {
    let status = reply.status().as_u16();
    let body = match tokio::time::timeout_at(end, reply.read_to_end(ask.max_answer_bytes)).await {
        Ok(Ok(body)) => body,
        Ok(Err(fault)) => return Attempted::failed(observe::transport(ask.provider, fault, false), heard),
        Err(_) => {
            let own = ask.limits.whole.or(ask.limits.first_content);
            let limit = if own >= Some(ask.limits.total) { Limit::Deadline } else { Limit::Whole };
            return Attempted::failed(timed_out(ask.provider, limit, Sent::Response, false), heard);
        }
    };
    let headers = reply.take_headers();
    let wrong = |fault: &ShapeFault| {
        Attempted::failed(observe::wrong_answer(ask.provider, status, &headers, fault, ask.now_ms()), heard.clone())
    };
    // A body that is encoded although nobody asked for it can't be looked into; the client can decode it.
    if is_encoded(&headers) && !ask.stream && !body.is_empty() && is_encoded_so(&headers, &body) {
        let answer = Answer { status, headers, body, usage: None, model: None, heard };
        return Attempted::Answered(Box::new(answer));
    }
    match inspect_answer(&body) {
        // A whole answer where a stream was asked for isn't what the client can read.
        Ok(_) if ask.stream => wrong(&ShapeFault::WrongShape),
        Ok(facts) => Attempted::Answered(Box::new(Answer {
            status,
            headers,
            body,
            usage: facts.usage,
            model: facts.model.map(|m| m.to_string()),
            heard,
        })),
        Err(fault) => wrong(&fault),
    }
}
