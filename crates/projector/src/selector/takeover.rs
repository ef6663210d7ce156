//! Taking over the selector's fold: reads what was written, claims the next epoch with the checkpoint, and rewrites every
//! value under it, so that whoever led before can't write any more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;
use tokio::time::timeout;
use waybill_domain::selector::{Checkpoint, FOLD_KEY, SourceState};
use waybill_event::Source;
use waybill_journal::{AppendError, Bucket, Entry, Held, Keyed, ReadError, Watched, settle};

/// How long reading all values, or all configuration, may take.
pub(super) const READ_WITHIN: Duration = Duration::from_secs(10);
/// Values rewritten at a time.
const AT_A_TIME: usize = 16;

/// Why a term of leadership can't begin or can't go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    /// Another one leads, under a higher epoch.
    #[error("epoch {epoch} leads")]
    Deposed {
        /// Its epoch.
        epoch: u64,
    },
    /// The log can't be read.
    #[error("the log can't be read")]
    Read(#[from] ReadError),
    /// The keyed state can't be written.
    #[error("the selector's state can't be written")]
    Write(#[from] AppendError),
    /// Reading took too long.
    #[error("what is written already was not told in time")]
    Silent,
    /// A value can't be encoded.
    #[error("a value can't be encoded")]
    Encode(#[from] serde_json::Error),
}

/// What a new leader begins with.
pub(super) struct TakenOver {
    pub(super) epoch: u64,
    pub(super) checkpoint: Checkpoint,
    pub(super) fold_revision: u64,
    pub(super) values: Vec<SourceState>,
    pub(super) revisions: BTreeMap<Source, u64>,
}

/// Takes over. Values that can't be read are left for the fold to write anew.
pub(super) async fn take_over(keyed: &Arc<dyn Keyed>) -> Result<TakenOver, Lost> {
    let written = timeout(READ_WITHIN, read_all(keyed.as_ref())).await.map_err(|_| Lost::Silent)??;
    let fold = written.get(FOLD_KEY);
    let held = fold.map_or(Held::Nothing, |entry| Held::Revision(entry.revision));
    let mut checkpoint = fold.and_then(read_checkpoint).unwrap_or_default();
    let mut revisions = BTreeMap::new();
    let mut values = Vec::new();
    for entry in written.values() {
        let Ok(source) = entry.key.parse::<Source>() else { continue };
        revisions.insert(source, entry.revision);
        values.extend(read_value(entry).filter(|value| value.source == source));
    }
    let highest = values.iter().map(|value| value.epoch).max().unwrap_or(0).max(checkpoint.epoch);
    let epoch = highest + 1;
    checkpoint.epoch = epoch;
    let fold_revision = settle::write(keyed.as_ref(), Bucket::Selector, FOLD_KEY, &encode(&checkpoint)?, held, None)
        .await
        .map_err(|error| match error {
            AppendError::Conflict => Lost::Deposed { epoch },
            other => Lost::Write(other),
        })?;
    let rewriting = values.into_iter().map(|mut value| {
        value.unannounced.retain(|transition| transition.position > Some(checkpoint.position));
        let revision = revisions.get(&value.source).copied();
        rewrite(Arc::clone(keyed), value, epoch, revision)
    });
    let rewritten: Vec<(SourceState, u64)> = stream::iter(rewriting).buffer_unordered(AT_A_TIME).try_collect().await?;
    let mut values = Vec::with_capacity(rewritten.len());
    for (value, revision) in rewritten {
        revisions.insert(value.source, revision);
        values.push(value);
    }
    Ok(TakenOver { epoch, checkpoint, fold_revision, values, revisions })
}

/// The bytes of a value.
pub(super) fn encode(value: &impl Serialize) -> Result<Bytes, serde_json::Error> {
    serde_json::to_vec(value).map(Bytes::from)
}

/// The epoch that stands in a written value or checkpoint.
pub(super) fn epoch_of(entry: &Entry) -> Option<u64> {
    #[derive(serde::Deserialize)]
    struct Epoch {
        epoch: u64,
    }
    serde_json::from_slice::<Epoch>(&entry.value).ok().map(|found| found.epoch)
}

async fn read_all(keyed: &dyn Keyed) -> Result<BTreeMap<String, Entry>, Lost> {
    let mut watching = keyed.watch(Bucket::Selector);
    let mut found = BTreeMap::new();
    while let Some(watched) = watching.next().await {
        match watched {
            Ok(Watched::Put(entry)) => {
                found.insert(entry.key.clone(), entry);
            }
            Ok(Watched::Gone { key, .. }) => {
                found.remove(&key);
            }
            Ok(Watched::Current) => return Ok(found),
            // The watch goes on by itself; the time limit is around all of it.
            Err(error) => tracing::warn!(%error, "reading the selector's state goes on"),
        }
    }
    Err(Lost::Silent)
}

/// Writes a value again under the new epoch. What the leader before wrote meanwhile is taken in its place.
async fn rewrite(
    keyed: Arc<dyn Keyed>,
    mut value: SourceState,
    epoch: u64,
    mut revision: Option<u64>,
) -> Result<(SourceState, u64), Lost> {
    let key = waybill_domain::selector::value_key(value.source);
    for _ in 0..AT_A_TIME {
        value.epoch = epoch;
        let held = revision.map_or(Held::Nothing, Held::Revision);
        match settle::write(keyed.as_ref(), Bucket::Selector, &key, &encode(&value)?, held, None).await {
            Ok(revision) => return Ok((value, revision)),
            Err(AppendError::Conflict) => {}
            Err(other) => return Err(other.into()),
        }
        let found = keyed.get(Bucket::Selector, &key).await?;
        if let Some(higher) = found.as_ref().and_then(epoch_of).filter(|found| *found > epoch) {
            return Err(Lost::Deposed { epoch: higher });
        }
        revision = found.as_ref().map(|entry| entry.revision);
        if let Some(newer) = found.as_ref().and_then(read_value) {
            value = newer;
        }
    }
    Err(Lost::Write(AppendError::Conflict))
}

fn read_value(entry: &Entry) -> Option<SourceState> {
    match serde_json::from_slice::<SourceState>(&entry.value) {
        Ok(value) if value.v == SourceState::VERSION => Some(value),
        Ok(value) => {
            tracing::error!(
                key = entry.key,
                version = value.v,
                "a written value has an unknown form and is begun anew"
            );
            None
        }
        Err(error) => {
            tracing::error!(key = entry.key, %error, "a written value can't be read and is begun anew");
            None
        }
    }
}

fn read_checkpoint(entry: &Entry) -> Option<Checkpoint> {
    serde_json::from_slice(&entry.value)
        .inspect_err(|error| tracing::error!(%error, "the checkpoint can't be read: folding from the log's beginning"))
        .ok()
}
