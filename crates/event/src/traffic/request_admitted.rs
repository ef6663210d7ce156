//! `request_admitted`: a request passed authentication and planning; written before anything is dispatched.

use serde::{Deserialize, Serialize};

use crate::body::Payload;
use crate::config::Capability;
use crate::selection::{Skip, TableHash};
use crate::{GroupId, KeyId, RouteId, Source};

/// The protocol a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// OpenAI's chat completions.
    OpenaiChat,
}

impl Protocol {
    /// The protocol as it is written in events and columns.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenaiChat => "openai_chat",
        }
    }
}

/// A request passed authentication and planning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestAdmitted {
    /// The client's key.
    pub key: KeyId,
    /// The group that serves it.
    pub group: GroupId,
    /// The protocol spoken.
    pub protocol: Protocol,
    /// What the client asked for.
    pub client_model: String,
    /// What the route resolved: its first target.
    pub model: String,
    /// The route, where the model's name is that of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<RouteId>,
    /// Capabilities that the request needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Capability>,
    /// Whether the client wants a stream.
    pub stream: bool,
    /// Size of the client's body, in bytes.
    pub body_bytes: u64,
    /// Time the whole request may take, in milliseconds.
    pub deadline_ms: u64,
    /// The selection table the plan used; absent when there was no candidate at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<TableHash>,
    /// The first 8 candidates, in the order of the plan.
    pub candidates: Vec<Source>,
    /// How many candidates the plan held.
    pub candidate_count: u32,
    /// Candidates that were skipped for this request only (the table tells of the others).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skips: Vec<Skip>,
    /// The SDK's own count of retries, where it said one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_retry: Option<u32>,
    /// The client's own id of the request, where it sent one: at most 128 printable ASCII characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_request_id: Option<String>,
    /// The conversation it belongs to, where conversations stay with their source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionRef>,
}

/// By what a conversation was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionBy {
    /// The header `x-waybill-session`.
    Header,
    /// The protocol's own field.
    Field,
    /// What the conversation begins with and keeps.
    Beginning,
}

impl SessionBy {
    /// The word as it is written in events and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Field => "field",
            Self::Beginning => "beginning",
        }
    }
}

/// A conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRef {
    /// Its hash, which tells nothing of what it was made of.
    pub hash: String,
    /// By what it was recognised.
    pub by: SessionBy,
    /// Where it belongs: where it is bound to, or where its hash falls.
    pub home: Source,
    /// Whether it is bound there, because it was served there once when where its hash falls couldn't.
    pub bound: bool,
}

impl Payload for RequestAdmitted {
    const TYPE: &'static str = "request_admitted";
    const VERSION: u16 = 1;
}
