//! The envelope: what reads without the payload, and how events are written and read.
//!
//! A message of the traffic stream is a JSON array of events; a message of the configuration stream is one event.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::body::{Body, PayloadError};
use crate::json::{self, escape, usual};
use crate::{Boot, ConfigPosition, Identity, LogTime, Mark, ProducerId, RequestId, SourceRef};

/// Who made an edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Actor {
    /// An admin token.
    AdminToken {
        /// The token's id; 0 for the bootstrap that made the first one.
        id: u64,
        /// The token's name.
        name: String,
    },
    /// A person with access to the machine, through the command line.
    Operator,
}

/// An event as it is in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// What tells it apart from every other.
    pub identity: Identity,
    /// The rest.
    pub draft: Draft,
}

/// An event before it has its place: all but its identity.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// When it happened, by its producer's clock of the log.
    pub at: LogTime,
    /// The request it belongs to, with its ordinal among that request's events.
    pub request: Option<(RequestId, u32)>,
    /// The source it speaks of.
    pub source: Option<SourceRef>,
    /// The position in `WB_CONFIG` that was in force.
    pub config: Option<ConfigPosition>,
    /// Who did it.
    pub actor: Option<Actor>,
    /// Why, in the actor's words.
    pub reason: Option<String>,
    /// What it says.
    pub body: Body,
}

impl Draft {
    /// A draft with nothing but its time and its body.
    #[must_use]
    pub fn new(at: LogTime, body: impl Into<Body>) -> Self {
        Self { at, request: None, source: None, config: None, actor: None, reason: None, body: body.into() }
    }
}

/// Room for the tail of a usual event of a request, in bytes.
const TAIL: usize = 640;
/// Bytes of `"at":"…","request":"…"`.
const WHEN: usize = 96;

/// A draft written up to its identity, which only the outbox can give, under its lock.
#[derive(Debug, Clone)]
pub struct Encoded {
    at: LogTime,
    tail: Vec<u8>,
    urgent: bool,
}

/// Encodes drafts one after the other. Those that are written together mostly bear one time and are of one request, whose
/// text is made once.
#[derive(Debug, Default)]
pub struct Encoder {
    /// What the text was made of.
    last: Option<(LogTime, Option<RequestId>)>,
    text: Vec<u8>,
}

/// What the events of one boot have in common before their tails.
#[derive(Debug, Clone)]
pub struct Head {
    /// Up to the ordinal within the id.
    id: Vec<u8>,
    /// From behind it up to the ordinal itself.
    rest: Vec<u8>,
}

impl Head {
    /// The head of this boot's events.
    #[must_use]
    pub fn new(producer: &ProducerId, boot: Boot) -> Self {
        let mark = Mark { producer: producer.clone(), boot, n: 0 };
        let mut id = br#"{"id":""#.to_vec();
        mark.write(&mut id);
        id.pop();
        let mut rest = br#"","producer":""#.to_vec();
        escape(producer.as_str(), &mut rest);
        rest.extend_from_slice(br#"","boot":""#);
        boot.write(&mut rest);
        rest.extend_from_slice(br#"","n":"#);
        Self { id, rest }
    }
}

impl Encoded {
    /// Appends the whole event, the `n`-th of a boot, to `out` as one JSON object.
    pub fn write_sequenced(&self, head: &Head, n: u64, out: &mut Vec<u8>) {
        out.reserve(self.size_bound());
        let mut digits = itoa::Buffer::new();
        let n = digits.format(n).as_bytes();
        for piece in [&head.id, n, &head.rest, n] {
            out.extend_from_slice(piece);
        }
        self.write_tail(out);
    }

    /// The tail is an object of its own; its opening brace is replaced by the head.
    fn write_tail(&self, out: &mut Vec<u8>) {
        out.push(b',');
        out.extend_from_slice(self.tail.get(1..).unwrap_or_default());
    }

    /// When the event happened.
    #[must_use]
    pub const fn at(&self) -> LogTime {
        self.at
    }

    /// Whether others act on it: [`Body::is_urgent`].
    #[must_use]
    pub const fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Size in bytes of the event with its identity, at most.
    #[must_use]
    pub fn size_bound(&self) -> usize {
        self.tail.len() + 320
    }

    /// Appends the whole event to `out` as one JSON object.
    pub fn write(&self, identity: &Identity, out: &mut Vec<u8>) {
        match identity {
            Identity::Sequenced(mark) => self.write_sequenced(&Head::new(&mark.producer, mark.boot), mark.n, out),
            Identity::Derived { id, producer } => {
                out.reserve(self.size_bound());
                out.extend_from_slice(br#"{"id":""#);
                escape(id, out);
                out.extend_from_slice(br#"","producer":""#);
                escape(producer.as_str(), out);
                out.push(b'"');
                self.write_tail(out);
            }
        }
    }
}

impl Draft {
    /// Writes all but the identity.
    ///
    /// # Errors
    /// What `serde_json` reports; the stored types give it no reason to.
    pub fn encode(&self) -> Result<Encoded, serde_json::Error> {
        Encoder::default().encode(self)
    }
}

impl Encoder {
    /// Writes all of a draft but the identity.
    ///
    /// # Errors
    /// As [`Draft::encode`].
    pub fn encode(&mut self, draft: &Draft) -> Result<Encoded, serde_json::Error> {
        let Draft { at, request, actor, reason, body, .. } = draft;
        let when = (*at, request.map(|(id, _)| id));
        if self.last.replace(when) != Some(when) {
            self.text.clear();
            self.text.reserve(WHEN);
            usual::when(when, &mut self.text);
        }
        let mut tail = Vec::with_capacity(TAIL);
        usual::envelope(draft, &self.text, &body.kind_text(), &mut tail);
        if let Some(actor) = actor {
            tail.extend_from_slice(br#","actor":"#);
            json::write(actor, &mut tail)?;
        }
        if let Some(reason) = reason {
            tail.extend_from_slice(br#","reason":"#);
            json::write(reason, &mut tail)?;
        }
        tail.extend_from_slice(br#","data":"#);
        match body {
            Body::Unknown(unknown) => tail.extend_from_slice(unknown.data.get().as_bytes()),
            known if usual::payload(known, &mut tail) => {}
            known => json::write(known, &mut tail)?,
        }
        tail.push(b'}');
        Ok(Encoded { at: *at, tail, urgent: body.is_urgent() })
    }
}

impl Event {
    /// Writes the event as one JSON object.
    ///
    /// # Errors
    /// As [`Draft::encode`].
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        let encoded = self.draft.encode()?;
        let mut out = Vec::with_capacity(encoded.size_bound());
        encoded.write(&self.identity, &mut out);
        Ok(out)
    }
}

/// Why a message could not be read.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// It isn't an event, or not a list of events.
    #[error("the message holds no event")]
    Envelope(#[source] serde_json::Error),
    /// One event's data is not what its type and version promise.
    #[error("event {id} can't be read")]
    Payload {
        /// The event's id.
        id: String,
        /// What is wrong.
        #[source]
        source: PayloadError,
    },
}

#[derive(Deserialize)]
struct Stored<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    v: u16,
    at: LogTime,
    producer: ProducerId,
    boot: Option<Boot>,
    n: Option<u64>,
    request: Option<RequestId>,
    rn: Option<u32>,
    source: Option<SourceRef>,
    config: Option<ConfigPosition>,
    actor: Option<Actor>,
    reason: Option<String>,
    #[serde(borrow)]
    data: &'a RawValue,
}

impl Stored<'_> {
    fn into_event(self) -> Result<Event, DecodeError> {
        let body = Body::read(&self.kind, self.v, self.data)
            .map_err(|source| DecodeError::Payload { id: self.id.clone().into_owned(), source })?;
        let identity = match (self.boot, self.n) {
            (Some(boot), Some(n)) => Identity::Sequenced(Mark { producer: self.producer, boot, n }),
            (None | Some(_), None) | (None, Some(_)) => {
                Identity::Derived { id: self.id.into_owned(), producer: self.producer }
            }
        };
        let draft = Draft {
            at: self.at,
            request: self.request.map(|id| (id, self.rn.unwrap_or(0))),
            source: self.source,
            config: self.config,
            actor: self.actor,
            reason: self.reason,
            body,
        };
        Ok(Event { identity, draft })
    }
}

/// Reads a message that holds one event.
///
/// # Errors
/// [`DecodeError`]; a type or version that isn't known is no error (see [`Body::Unknown`]).
pub fn decode_one(message: &[u8]) -> Result<Event, DecodeError> {
    serde_json::from_slice::<Stored<'_>>(message).map_err(DecodeError::Envelope)?.into_event()
}

/// Reads a message that holds a list of events; each may fail on its own, so that one bad event doesn't hide the
/// others.
///
/// # Errors
/// [`DecodeError::Envelope`] when the message isn't a JSON list; then none of it can be read.
pub fn decode_batch(message: &[u8]) -> Result<Vec<Result<Event, DecodeError>>, DecodeError> {
    let items: Vec<&RawValue> = serde_json::from_slice(message).map_err(DecodeError::Envelope)?;
    Ok(items.into_iter().map(|item| decode_one(item.get().as_bytes())).collect())
}
