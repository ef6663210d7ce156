//! Answers that must match a JSON schema and come from another model than the route's first: they are judged before
//! anything of them goes to the client. A stream is held until its model has ended it.

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;
use waybill_domain::observation::{Limit, Shape};
use waybill_event::failure::Sent;
use waybill_upstream::observe;
use waybill_wire::chat::{Finished, Seen};
use waybill_wire::headers::is_encoded;
use waybill_wire::schema::{Judged, Schema};
use waybill_wire::sse::{Frame, Splitter};

use super::{Answer, Ask, Attempted, Opened, timed_out, wrong};

/// Judges a whole answer.
pub(super) fn whole(ask: &Ask<'_>, schema: &Schema, answer: Box<Answer>) -> Attempted {
    let mut finished = Finished::default();
    // What is encoded can't be looked into.
    if !is_encoded(&answer.headers) {
        finished.take(&answer.body);
    }
    if differs(schema, &finished) {
        return Attempted::failed(wrong(ask.provider, answer.status, Shape::SchemaMismatch, false), answer.heard);
    }
    Attempted::Answered(answer)
}

/// Holds a stream from its first content until its model has ended it, and judges it. One that is larger than a whole
/// answer may be isn't judged.
pub(super) async fn stream(ask: &Ask<'_>, schema: &Schema, mut opened: Box<Opened>, end: Instant) -> Attempted {
    let mut finished = Finished::default();
    frames(&opened.held).iter().for_each(|frame| finished.take(frame.data()));
    let mut held = BytesMut::from(std::mem::take(&mut opened.held));
    loop {
        while !opened.watch.ended() {
            let frame = match opened.splitter.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(_) => return failed(ask, &opened, Shape::BrokenEvent),
            };
            match opened.watch.take(&frame) {
                Seen::Content | Seen::Silent | Seen::UsageOnly => {
                    held.extend_from_slice(&frame.raw);
                    finished.take(frame.data());
                }
                Seen::Done | Seen::Error | Seen::Malformed => return observed(ask, &opened),
            }
        }
        if opened.watch.ended() {
            if differs(schema, &finished) {
                return failed(ask, &opened, Shape::SchemaMismatch);
            }
            break;
        }
        if held.len() > ask.max_answer_bytes {
            break;
        }
        let idle = ask.limits.idle.map_or(end, |idle| end.min(Instant::now() + idle));
        match tokio::time::timeout_at(idle, opened.reply.chunk()).await {
            Ok(Ok(Some(chunk))) => opened.splitter.push(&chunk),
            Ok(Ok(None)) => {
                let Some(last) = opened.splitter.finish() else { return observed(ask, &opened) };
                opened.watch.take(&last);
                if !opened.watch.ended() {
                    return observed(ask, &opened);
                }
                held.extend_from_slice(&last.raw);
                finished.take(last.data());
            }
            Ok(Err(fault)) => return Attempted::failed(observe::transport(ask.provider, fault, false), opened.heard),
            Err(_) => {
                let limit = if idle == end { Limit::Deadline } else { Limit::Idle };
                return Attempted::failed(timed_out(ask.provider, limit, Sent::Response, false), opened.heard);
            }
        }
    }
    opened.held = held.freeze();
    Attempted::Opened(opened)
}

fn differs(schema: &Schema, finished: &Finished) -> bool {
    finished.texts().any(|text| schema.judge(text) == Judged::Differs)
}

fn failed(ask: &Ask<'_>, opened: &Opened, shape: Shape) -> Attempted {
    Attempted::failed(wrong(ask.provider, opened.status, shape, false), opened.heard.clone())
}

/// The stream isn't a complete answer.
fn observed(ask: &Ask<'_>, opened: &Opened) -> Attempted {
    let observed = observe::stream(ask.provider, opened.status, &opened.headers, &opened.watch, ask.now_ms());
    Attempted::failed(observed, opened.heard.clone())
}

/// The frames of a piece that ends with a complete one.
pub(crate) fn frames(held: &Bytes) -> Vec<Frame> {
    let mut splitter = Splitter::new(held.len().saturating_add(1));
    splitter.push(held);
    std::iter::from_fn(|| splitter.next_frame().ok().flatten()).collect()
}
