//! Keyed state: small values under keys, written by compare-and-set, watched, with a time to live.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use waybill_event::LogTime;

use crate::log::{AppendError, ReadError};

/// The buckets there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bucket {
    /// State of sources, written by the selector fold's leader alone.
    Selector,
    /// Permits, probe permits and leader leases; values expire.
    Permits,
    /// A beat of every replica; values expire.
    Presence,
    /// Where conversations are served, and what sessions have spent; values expire.
    Sticky,
}

impl Bucket {
    /// All buckets.
    pub const ALL: [Self; 4] = [Self::Selector, Self::Permits, Self::Presence, Self::Sticky];

    /// The bucket's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Selector => "wb_selector",
            Self::Permits => "wb_permits",
            Self::Presence => "wb_presence",
            Self::Sticky => "wb_sticky",
        }
    }
}

/// A value under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Bytes,
    /// Rises with each write in the bucket.
    pub revision: u64,
    /// When the store took it, by the store's clock.
    pub stored_at: LogTime,
}

/// What a write expects to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Anything: the write goes through.
    Anything,
    /// No living value: never written, deleted or expired.
    Nothing,
    /// The value of this revision.
    Revision(u64),
}

/// A time to live as stores keep it: whole seconds, rounded up, at least one.
#[must_use]
pub fn whole_seconds(ttl: Duration) -> Duration {
    let up = u64::from(ttl.subsec_nanos() > 0);
    Duration::from_secs(ttl.as_secs().saturating_add(up).max(1))
}

/// What a watch tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watched {
    /// A value was written (or was there when the watch began).
    Put(Entry),
    /// A value was deleted or has expired.
    Gone {
        /// Its key.
        key: String,
        /// Revision of the removal; of the newest change known, when the removal itself was missed.
        revision: u64,
    },
    /// Everything that was there when the watch began has been told. Comes exactly once, also for an empty bucket.
    Current,
}

/// An endless stream of changes, beginning with what is there. After an error it goes on by itself; superseded values
/// may be left out, the newest never is.
pub type Watching = BoxStream<'static, Result<Watched, ReadError>>;

/// Keyed state. Every call has a deadline of the implementation's.
#[async_trait]
pub trait Keyed: Send + Sync + 'static {
    /// The living value of a key.
    ///
    /// # Errors
    /// [`ReadError::Unavailable`].
    async fn get(&self, bucket: Bucket, key: &str) -> Result<Option<Entry>, ReadError>;

    /// Writes a value if what is expected holds, and returns its revision. `ttl` is rounded up to whole seconds, at
    /// least 1 s; without one the value stays.
    ///
    /// # Errors
    /// [`AppendError::Conflict`] when something else is held; [`AppendError::Unknown`] when nobody can tell: read
    /// back and compare a token inside the value.
    async fn write(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        held: Held,
        ttl: Option<Duration>,
    ) -> Result<u64, AppendError>;

    /// Deletes a value if what is expected holds. Deleting nothing is fine under [`Held::Anything`].
    ///
    /// # Errors
    /// As [`Keyed::write`].
    async fn delete(&self, bucket: Bucket, key: &str, held: Held) -> Result<(), AppendError>;

    /// Watches a whole bucket.
    fn watch(&self, bucket: Bucket) -> Watching;
}
