//! Protocols, bytes to bytes: reading what a request asks for, splitting event streams, judging answers, errors and
//! headers. No I/O, no clock, no policy: what a fact means for a request is decided elsewhere.

pub mod peek;
pub mod splice;

pub mod answer;
pub mod chat;
pub mod sse;
pub mod usage;

pub mod error;
pub mod mask;
pub mod models;

pub mod endpoint;
pub mod headers;
pub mod retry;
pub mod schema;

mod json;
