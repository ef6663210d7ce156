//! An OpenAI-compatible server over raw TCP that answers sensibly by default and misbehaves as its script says, down to
//! single bytes. No HTTP library stands in between, so that it can send what none of them would; it measures nothing and
//! judges nothing.

pub mod calls;
pub mod issuer;
pub mod script;

mod answer;
mod chat;
mod connection;
mod delivery;
mod request;
mod server;

pub use calls::{Call, Outcome};
pub use issuer::{Issuer, Reuse, Terms, TokenCall, Tokens, Trouble};
pub use script::{
    After, Body, Chat, Chunking, Drip, Fault, Framing, Insert, Reply, Script, Source, Then, ToolCall, Usage,
};
pub use server::{ScriptedUpstream, StartError};
