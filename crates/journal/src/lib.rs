//! The log's port: streams that are appended to, read and followed, and keyed state with compare-and-set, watches and
//! expiry. What JetStream does for it is in `journal-nats`; no event is interpreted here.

pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod dice;
pub mod faulty;
pub mod keyed;
pub mod lease;
pub mod log;
pub mod memory;
pub mod outbox;
pub mod permits;
pub mod presence;
pub mod resume;
pub mod settle;
pub mod spending;
pub mod sticky;

use std::sync::Arc;

pub use keyed::{Bucket, Entry, Held, Keyed, Watched};
pub use log::{AppendError, Appended, Bounds, Expect, Log, Message, ReadError, Record, Start, Stream};

/// Both halves of the port, as components hold them.
#[derive(Clone)]
pub struct Journal {
    /// The streams.
    pub log: Arc<dyn Log>,
    /// The keyed state.
    pub keyed: Arc<dyn Keyed>,
}
