//! The language of the log: ids, money, time, every stored event with its envelope and versions, and how they are
//! read and written as JSON. No fold, no decision, no clock and no I/O is here.

pub mod body;
pub mod config;
pub mod control;
pub mod envelope;
pub mod failure;
pub mod headroom;
pub mod id;
pub mod identity;
mod json;
pub mod money;
pub mod position;
pub mod selection;
pub mod source;
pub mod time;
pub mod traffic;

pub use body::Body;
pub use envelope::{Actor, DecodeError, Draft, Event, decode_batch, decode_one};
pub use failure::{FailureKind, FallbackReason};
pub use headroom::UsageWindow;
pub use id::{AccountId, AdminTokenId, ChannelId, GroupId, Id, KeyId, RequestId, RouteId};
pub use identity::{Boot, Identity, Mark, ProducerId};
pub use money::{NanoUsd, TokenCount};
pub use position::{ConfigPosition, Position};
pub use source::{Scope, Source, SourceKind, SourceRef};
pub use time::LogTime;
