//! The API over the log in memory and rows folded in memory: every route, every refusal, and what happens when stores
//! are away. Nothing leaves the process but what the scripted upstream hears.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a helper that fails fails its test")]

mod applying;
mod away;
mod channels;
mod desk;
mod feed;
mod keys;
mod pools;
mod reading;
mod rules;
mod upstreams;
