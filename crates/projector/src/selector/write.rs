//! Writing one value by compare-and-set on the revision known.

use std::sync::Arc;

use bytes::Bytes;
use waybill_event::{Position, Source};
use waybill_journal::{AppendError, Bucket, Held, Keyed, settle};

use super::takeover::epoch_of;

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// It stands under this revision.
    Done(u64),
    /// The key is gone.
    Gone,
    /// Something of a lower or of our own epoch stands there: to be written again over this revision.
    Moved(Option<u64>),
    /// The store didn't take it, now.
    Failed,
    /// Another one leads, under this epoch.
    Deposed(u64),
}

/// A write of a source's value, or its removal.
pub(super) struct Write {
    pub(super) source: Source,
    /// Position up to which the value is complete.
    pub(super) position: Position,
    pub(super) outcome: Written,
}

/// Writes `value` under `key`; without a value removes what is there.
pub(super) async fn write(
    keyed: Arc<dyn Keyed>,
    key: String,
    value: Option<Bytes>,
    revision: Option<u64>,
    epoch: u64,
) -> Written {
    let held = revision.map_or(Held::Nothing, Held::Revision);
    let written = match &value {
        Some(value) => {
            settle::write(keyed.as_ref(), Bucket::Selector, &key, value, held, None).await.map(Written::Done)
        }
        None if revision.is_none() => return Written::Gone,
        None => settle::delete(keyed.as_ref(), Bucket::Selector, &key, held).await.map(|()| Written::Gone),
    };
    match written {
        Ok(done) => done,
        Err(AppendError::Conflict) => in_the_way(keyed.as_ref(), &key, epoch).await,
        Err(error) => {
            tracing::warn!(key, %error, "a value waits to be written");
            Written::Failed
        }
    }
}

async fn in_the_way(keyed: &dyn Keyed, key: &str, epoch: u64) -> Written {
    match keyed.get(Bucket::Selector, key).await {
        Ok(None) => Written::Moved(None),
        Ok(Some(entry)) => match epoch_of(&entry) {
            Some(found) if found > epoch => Written::Deposed(found),
            Some(_) | None => Written::Moved(Some(entry.revision)),
        },
        Err(error) => {
            tracing::warn!(key, %error, "a value waits to be written");
            Written::Failed
        }
    }
}
