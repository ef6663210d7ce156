//! What an observation must show for a rule to hold.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use waybill_event::failure::Sent;

use super::StatusRange;
use crate::observation::{Fault, Limit, Phase, Shape};

/// The endings there are, without what they carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndingKind {
    /// The protocol's complete answer.
    Success,
    /// A status that isn't 2xx.
    Status,
    /// A 2xx that isn't a success.
    Wrong2xx,
    /// The connection failed.
    Transport,
    /// A limit of time passed.
    TimedOut,
    /// The client went away.
    ClientGone,
    /// The gateway itself failed.
    Local,
}

/// Where in an answer an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// At a status that isn't 2xx.
    Status,
    /// In a 2xx answer that was no stream.
    Body200,
    /// In a 2xx stream of which nothing had gone to the client.
    SseFirst,
    /// In a 2xx stream of which content had gone to the client.
    SseMid,
    /// Without an answer: the connection, a limit of time, or the gateway itself.
    Transport,
}

/// A test of one member of the body. Exactly one of the questions is asked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BodyTest {
    /// A JSON pointer (RFC 6901) into the body, or into the error that it wraps.
    pub at: String,
    /// It is this value; a number and its text are equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equals: Option<Value>,
    /// It is one of these.
    #[serde(rename = "in", skip_serializing_if = "Vec::is_empty")]
    pub one_of: Vec<Value>,
    /// Its text, in any case, holds what this regular expression describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches: Option<String>,
    /// It is there and not null (`true`), or it isn't (`false`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
}

/// A test of one header. Exactly one of the questions is asked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeaderTest {
    /// Its name, in any case.
    pub name: String,
    /// It is this, in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equals: Option<String>,
    /// It is one of these, in any case.
    #[serde(rename = "in", skip_serializing_if = "Vec::is_empty")]
    pub one_of: Vec<String>,
    /// It holds, in any case, what this regular expression describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches: Option<String>,
    /// It is there (`true`), or it isn't (`false`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
}

/// What an observation must show for a rule to hold. Of each list of words one must be met; of each list of tests, and of
/// the facts, all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// How it ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endings: Vec<EndingKind>,
    /// Where it ended.
    #[serde(rename = "where", skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Place>,
    /// The provider's kind, in any case; a `*` at either end stands for anything there, here and in all lists of words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<String>,
    /// The protocol that was spoken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<String>,
    /// The status; inside a 2xx the status that the error speaks of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<StatusRange>,
    /// The status of the answer itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outer: Vec<StatusRange>,
    /// The status that the body speaks of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inner: Vec<StatusRange>,
    /// The error's code, or one of its finer reasons, in any case.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub codes: Vec<String>,
    /// The error's type, likewise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    /// The parameter at fault.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<String>,
    /// Whether no parameter may be named.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_param: bool,
    /// Why a complete answer ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finish: Vec<String>,
    /// A part of the error's message, in any case (of ASCII letters).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phrases: Vec<String>,
    /// A further part of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub and_phrases: Vec<String>,
    /// Parts that it may not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_phrases: Vec<String>,
    /// A regular expression of which the message, in any case, holds what it describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches: Option<String>,
    /// The shape of the body.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shapes: Vec<Shape>,
    /// What members of the body are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub body: Vec<BodyTest>,
    /// What headers are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderTest>,
    /// What the gateway knows beside the answer: of each name one of the words.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, Vec<String>>,
    /// What went wrong with the connection.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// How far the connection had got.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// How much of the request had left.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sent: Vec<Sent>,
    /// Which limit of time passed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
}
