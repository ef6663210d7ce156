//! What black-box suites run on: a whole fleet as child processes, its admin API, HTTP as bytes, the real SDKs, scripted
//! upstreams. Nothing of the product is here, and nothing of it is replaced: what isn't a real process or a real server
//! is only the upstream.

#![expect(clippy::panic, reason = "a harness fails the test that uses it, with all that helps to see why")]

mod admin;
mod chat;
mod fleet;
mod front;
mod haproxy;
mod load;
mod process;
mod raw;
mod refusing;
pub mod sdk;
mod story;
mod wait;

pub use admin::{Admin, ChannelSpec, Reply};
pub use chat::{Answer, Chat, sse_data};
pub use fleet::{Fleet, FleetOptions, Process};
pub use front::{Front, Open};
pub use haproxy::Haproxy;
pub use load::{Asked, Load, Saw, Seen};
pub use process::Descendants;
pub use raw::{RawClient, RawReply};
pub use refusing::refusing_url;
pub use story::{Attempt, Story, source_text};
pub use wait::{until, wait_until};
pub use waybill_journal::Stream;
pub use waybill_scripted_upstream as upstream;
