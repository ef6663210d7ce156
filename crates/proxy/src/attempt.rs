//! One attempt: dispatch, watch what comes back until it is an answer, the first content of one, or a failure.

pub(crate) mod checked;
mod whole;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName};
use tokio::time::Instant;
use waybill_domain::attempt::Limits;
use waybill_domain::observation::{Ending, Limit, Observation, Shape};
use waybill_event::LogTime;
use waybill_event::failure::Sent;
use waybill_upstream::{Dispatcher, Outbound, Reply, Target, observe};
use waybill_wire::chat::{Seen, StreamWatch};
use waybill_wire::headers::{self, is_event_stream};
use waybill_wire::schema::Schema;
use waybill_wire::sse::Splitter;

use crate::record::Heard;
use crate::replica::Clock;

pub use whole::Answer;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Most of an error's body that is looked at, in bytes.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Time the rest of an error's body may take once its head is there.
const ERROR_BODY_DEADLINE: Duration = Duration::from_secs(10);
/// Most that is held back of a stream before its first content, in bytes.
const MAX_HELD_BYTES: usize = 1 << 20;

/// What an attempt needs.
pub struct Ask<'a> {
    /// Sends it.
    pub dispatcher: &'a Dispatcher,
    /// Where to.
    pub target: &'a Target,
    /// The provider's kind.
    pub provider: &'a str,
    /// What goes out of the client's headers.
    pub headers: &'a headers::ToUpstream,
    /// The body with the upstream's model name.
    pub body: Bytes,
    /// Whether a stream is wanted.
    pub stream: bool,
    /// What it may take.
    pub limits: Limits,
    /// Largest answer that is read whole, in bytes.
    pub max_answer_bytes: usize,
    /// Largest event of a stream, in bytes.
    pub max_frame_bytes: usize,
    /// What the answer must match, where that is to be checked.
    pub schema: Option<Schema>,
    /// When it was made ready: its limits count from then.
    pub begun: Instant,
    /// Tells the time for dates in wait hints, which few answers have.
    pub clock: &'a Clock,
}

impl Ask<'_> {
    fn now_ms(&self) -> i64 {
        now_ms(self.clock)
    }
}

/// UTC now, in milliseconds.
#[must_use]
pub fn now_ms(clock: &Clock) -> i64 {
    clock().map_or(0, LogTime::as_millis)
}

/// A stream whose first content is there.
pub struct Opened {
    /// The rest of it.
    pub reply: Reply,
    /// What was received and not yet cut into frames.
    pub splitter: Splitter,
    /// What it amounts to so far.
    pub watch: StreamWatch,
    /// The frames up to the first content, as they came.
    pub held: Bytes,
    /// The upstream's headers.
    pub headers: HeaderMap,
    /// The upstream's status.
    pub status: u16,
    /// What was heard.
    pub heard: Heard,
}

/// How an attempt went.
pub enum Attempted {
    /// A whole answer.
    Answered(Box<Answer>),
    /// The first content of a stream.
    Opened(Box<Opened>),
    /// A failure.
    Failed(Box<(Observation, Heard)>),
}

impl Attempted {
    fn failed(observation: Observation, heard: Heard) -> Self {
        Self::Failed(Box::new((observation, heard)))
    }
}

/// An observation of a limit of time that passed.
#[must_use]
pub fn timed_out(provider: &str, limit: Limit, sent: Sent, committed: bool) -> Observation {
    Observation { committed, ..Observation::new(provider, Ending::TimedOut { limit, sent }) }
}

/// Makes one attempt.
pub async fn attempt(ask: Ask<'_>) -> Attempted {
    let begun = ask.begun;
    // Until the head the clock of the whole, or of the first content, runs already: headers alone don't stop it.
    let own = ask.limits.whole.or(ask.limits.first_content).unwrap_or(ask.limits.total);
    let outbound =
        Outbound { path: "chat/completions", headers: ask.headers, body: ask.body.clone(), accept_stream: ask.stream };
    let limits = waybill_upstream::Limits { connect: ask.limits.connect, head: own };
    let reply = match ask.dispatcher.dispatch(ask.target, outbound, limits).await {
        Ok(reply) => reply,
        Err(fault) => return Attempted::failed(observe::transport(ask.provider, fault, false), Heard::default()),
    };
    let heard = Heard { status: Some(reply.status().as_u16()), upstream_request_id: upstream_id(reply.headers()) };
    let end = begun + own;
    if !reply.status().is_success() {
        return Box::pin(refused(&ask, reply, heard)).await;
    }
    let attempted = if ask.stream && is_event_stream(reply.headers()) {
        open(&ask, reply, heard, end).await
    } else {
        whole::read(&ask, reply, heard, end).await
    };
    match (&ask.schema, attempted) {
        (Some(schema), Attempted::Answered(answer)) => checked::whole(&ask, schema, answer),
        (Some(schema), Attempted::Opened(opened)) => {
            checked::stream(&ask, schema, opened, begun + ask.limits.total).await
        }
        (_, attempted) => attempted,
    }
}

fn upstream_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(X_REQUEST_ID)?.to_str().ok()?;
    (1..=128).contains(&id.len()).then(|| id.to_owned())
}

/// An error status: its body is read within bounds, for the classifier.
async fn refused(ask: &Ask<'_>, mut reply: Reply, heard: Heard) -> Attempted {
    let status = reply.status().as_u16();
    let body = match tokio::time::timeout(ERROR_BODY_DEADLINE, reply.read_up_to(MAX_ERROR_BYTES)).await {
        Ok(Ok((body, _))) => body,
        // The status alone says enough; what broke off after it changes nothing.
        Ok(Err(_)) | Err(_) => Bytes::new(),
    };
    Attempted::failed(observe::status(ask.provider, status, reply.headers(), &body, ask.now_ms()), heard)
}

/// Holds a stream back until its first content.
async fn open(ask: &Ask<'_>, mut reply: Reply, heard: Heard, end: Instant) -> Attempted {
    let status = reply.status().as_u16();
    let mut splitter = Splitter::new(ask.max_frame_bytes);
    let mut watch = StreamWatch::new();
    let mut held = BytesMut::new();
    loop {
        let seen = match take_frames(&mut splitter, &mut watch, &mut held) {
            Ok(seen) => seen,
            Err(shape) => {
                return Attempted::failed(wrong(ask.provider, status, shape, false), heard);
            }
        };
        match seen {
            Taken::Content => {
                let headers = reply.take_headers();
                let held = held.freeze();
                return Attempted::Opened(Box::new(Opened { reply, splitter, watch, held, headers, status, heard }));
            }
            Taken::Over => {
                let observed = observe::stream(ask.provider, status, reply.headers(), &watch, ask.now_ms());
                return Attempted::failed(observed, heard);
            }
            Taken::More => {}
        }
        match tokio::time::timeout_at(end, reply.chunk()).await {
            Ok(Ok(Some(chunk))) => splitter.push(&chunk),
            Ok(Ok(None)) => {
                if let Some(last) = splitter.finish() {
                    watch.take(&last);
                }
                let observed = observe::stream(ask.provider, status, reply.headers(), &watch, ask.now_ms());
                return Attempted::failed(observed, heard);
            }
            Ok(Err(fault)) => return Attempted::failed(observe::transport(ask.provider, fault, false), heard),
            Err(_) => {
                let limit = if ask.limits.first_content >= Some(ask.limits.total) {
                    Limit::Deadline
                } else {
                    Limit::FirstContent
                };
                return Attempted::failed(timed_out(ask.provider, limit, Sent::Response, false), heard);
            }
        }
    }
}

/// What the frames received so far amount to.
enum Taken {
    /// Nothing yet.
    More,
    /// The first content is among them: everything up to it is held.
    Content,
    /// The stream is over without content.
    Over,
}

fn take_frames(splitter: &mut Splitter, watch: &mut StreamWatch, held: &mut BytesMut) -> Result<Taken, Shape> {
    loop {
        let Some(frame) = splitter.next_frame().map_err(|_| Shape::BrokenEvent)? else { return Ok(Taken::More) };
        let seen = watch.take(&frame);
        match seen {
            Seen::Content => {
                held.extend_from_slice(&frame.raw);
                return Ok(Taken::Content);
            }
            Seen::Silent | Seen::UsageOnly => {
                held.extend_from_slice(&frame.raw);
                // An end that may be silent (a filter's, a length's) is an answer and goes to the client as it is.
                if watch.ended() && watch.silent_answer() {
                    return Ok(Taken::Content);
                }
            }
            Seen::Done | Seen::Error | Seen::Malformed => return Ok(Taken::Over),
        }
        if held.len() > MAX_HELD_BYTES {
            return Err(Shape::EmptyOutput);
        }
    }
}

/// A 2xx that isn't the protocol's success.
#[must_use]
pub fn wrong(provider: &str, status: u16, shape: Shape, committed: bool) -> Observation {
    Observation { committed, ..Observation::new(provider, Ending::Wrong2xx { status, shape }) }
}
