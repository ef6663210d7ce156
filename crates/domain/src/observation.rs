//! What was seen of one attempt: the classifier's input. It never holds a prompt or an answer's text.

mod seen;

use serde::{Deserialize, Serialize};
use waybill_event::failure::Sent;

pub use seen::{ErrorBody, Headers};

/// How far a connection had got when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Resolving the name.
    Resolve,
    /// Connecting.
    Connect,
    /// Negotiating TLS.
    Tls,
    /// Sending the request or waiting for the answer's head.
    Head,
    /// Reading the answer's body.
    Body,
}

/// What went wrong with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The name doesn't resolve.
    Dns,
    /// Nobody listens.
    Refused,
    /// The address may not be dialled (private, link-local, metadata).
    AddressRefused,
    /// The peer can't be reached.
    Unreachable,
    /// TLS failed.
    Tls,
    /// The peer reset the connection.
    Reset,
    /// The peer closed it before the answer was complete.
    Closed,
    /// A time limit passed.
    TimedOut,
    /// What came was not HTTP.
    Protocol,
    /// The answer was larger than we read.
    TooLarge,
}

/// A connection that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault:?} in phase {phase:?}: {detail}")]
pub struct TransportFault {
    /// When.
    pub phase: Phase,
    /// What.
    pub fault: Fault,
    /// How much of the request had left.
    pub sent: Sent,
    /// Bytes of the answer's body received before.
    pub received: u64,
    /// The library's words, masked and bounded (≤ 300 characters).
    pub detail: String,
}

/// The error fields of an answer, already read by the protocol, bounded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorFields {
    /// A status inside the body, where one stands there.
    pub status: Option<u16>,
    /// The error's code.
    pub code: Option<String>,
    /// Finer codes beside it: reasons in details, an exception's name from a header, a code within the message.
    pub reasons: Vec<String>,
    /// The error's type.
    pub kind: Option<String>,
    /// The parameter at fault.
    pub param: Option<String>,
    /// The message, unmasked: for matching only, never stored.
    pub message: Option<String>,
    /// Where the error stands in the body, members joined with dots: `error`, `response.error`, empty for the whole.
    pub at: String,
    /// Where its message stands, likewise: `error.message`.
    pub message_at: String,
}

/// The shape of a body that isn't the protocol's success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// A JSON object with error fields.
    Error,
    /// JSON, but nothing the protocol knows.
    UnknownJson,
    /// HTML.
    Html,
    /// No body.
    Empty,
    /// Anything else.
    Text,
    /// The protocol's answer with nothing in it.
    EmptyOutput,
    /// A stream whose event can't be parsed.
    BrokenEvent,
    /// A stream that ended without its terminal signal.
    Cut,
    /// The protocol's answer, whose text isn't what the request's JSON schema asks for.
    SchemaMismatch,
}

/// Which limit of time passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Until the first content of a stream.
    FirstContent,
    /// Between two chunks of a stream.
    Idle,
    /// For the whole answer.
    Whole,
    /// The request's own deadline.
    Deadline,
}

/// What ended the attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The protocol's complete answer.
    Success,
    /// A status that isn't 2xx.
    Status {
        /// The status.
        status: u16,
        /// The body's shape.
        shape: Shape,
    },
    /// A 2xx whose body, or whose stream before or after the first content, isn't a success.
    Wrong2xx {
        /// The status.
        status: u16,
        /// What it was instead.
        shape: Shape,
    },
    /// The connection failed.
    Transport(TransportFault),
    /// A limit of time passed.
    TimedOut {
        /// Which.
        limit: Limit,
        /// How much of the request had left.
        sent: Sent,
    },
    /// The client went away.
    ClientGone,
    /// The gateway itself failed.
    Local,
}

/// Everything the classifier may look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The provider's kind from the channel's settings.
    pub provider: String,
    /// The protocol that was spoken, such as `openai-chat`.
    pub protocol: String,
    /// What ended the attempt.
    pub ending: Ending,
    /// Whether the answer was a stream, or was asked for as one.
    pub streamed: bool,
    /// The error fields, where there were some.
    pub error: ErrorFields,
    /// Why a complete answer ended, where it says so.
    pub finish: Option<String>,
    /// The answer's headers.
    pub headers: Headers,
    /// The body of an error.
    pub body: ErrorBody,
    /// What the gateway knows beside the answer, by name: `route` is `converted`.
    pub facts: Vec<(String, String)>,
    /// When it was seen, in milliseconds since 1970 (UTC); 0 where nobody looked at a clock.
    pub at_ms: i64,
    /// Whether content had already gone to the client.
    pub committed: bool,
}

impl Observation {
    /// What went wrong, in the upstream's words or in ours: unmasked, to be masked before it is kept.
    #[must_use]
    pub fn told(&self) -> Option<String> {
        match (&self.error.message, &self.ending) {
            (Some(message), _) => Some(message.clone()),
            (None, Ending::Transport(fault)) => Some(fault.to_string()),
            (None, Ending::TimedOut { limit, .. }) => Some(format!("time limit passed: {limit:?}")),
            (None, Ending::Wrong2xx { shape, .. } | Ending::Status { shape, .. }) => Some(format!("body: {shape:?}")),
            (None, Ending::Success | Ending::ClientGone | Ending::Local) => None,
        }
    }
}
