//! The commit of one batch, again and again while the store is away. It needs nothing of the leader but what stood when it
//! began, so that the leader reads on meanwhile.

use parking_lot::Mutex;
use tokio::time::sleep;
use waybill_domain::catalog::UnknownEdit;
use waybill_event::{Body, Position};
use waybill_read_model::{Batch, Checkpoint, Projection, ReadModel, StoreError};

use super::gather::Gathered;
use super::leader::{BACKOFF, Ended, trouble};
use super::status::{Counts, Status};

/// A batch on its way into the tables.
pub(super) struct Commit<'a> {
    pub(super) projection: Projection,
    pub(super) store: &'a ReadModel,
    pub(super) status: &'a Mutex<Status>,
    /// Where the fold stands.
    pub(super) from: Checkpoint,
    /// Positions of events that were in no table and are in this batch.
    pub(super) solved: Vec<Position>,
    /// Older messages are gone from the log, so that a boot may be met in its middle.
    pub(super) aged: bool,
}

/// A batch that is in the tables.
pub(super) struct Done {
    /// Where the fold stands now.
    pub(super) checkpoint: Checkpoint,
    pub(super) counts: Counts,
    /// Whether an outbox was drained: its boot says nothing more.
    pub(super) drained: bool,
    /// The edit before which the batch ended.
    pub(super) stop: Option<UnknownEdit>,
}

impl Commit<'_> {
    /// Commits it.
    pub(super) async fn run(self, mut gathered: Gathered) -> Result<Done, Ended> {
        let mut counts = Counts::default();
        let mut to = self.from.clone();
        to.position = gathered.last;
        to.stored_at = gathered.stored_at.or(to.stored_at);
        if self.solved.is_empty() {
            gathered.drop_known(&mut to.dedup, self.aged, &mut counts);
        }
        let mut pause = BACKOFF.0;
        loop {
            let batch = Batch {
                projection: self.projection,
                from: self.from.position,
                to: &to,
                events: &gathered.events,
                unreadable: gathered.unreadable.clone(),
                solved: &self.solved,
            };
            match self.store.commit(batch).await {
                Ok(committed) => {
                    counts.unprojectable += committed.unprojectable.len() as u64;
                    break;
                }
                Err(StoreError::Fenced { .. }) => return Err(Ended::Fenced),
                Err(StoreError::UnknownEdit(edit)) => return Err(Ended::Stopped(edit)),
                Err(error) if error.may_pass() => {
                    trouble(self.projection, self.status, &error);
                    sleep(pause).await;
                    pause = (pause * 2).min(BACKOFF.1);
                    if self.is_committed(&to).await? {
                        break;
                    }
                }
                Err(error) => return Err(Ended::Failed(error)),
            }
        }
        counts.batches = 1;
        counts.messages = gathered.messages as u64;
        counts.events = gathered.events.len() as u64;
        let drained = gathered.events.iter().any(|placed| matches!(placed.event.draft.body, Body::OutboxDrained(_)));
        Ok(Done { checkpoint: to, counts, drained, stop: gathered.stop })
    }

    /// After a try of which nobody knows whether it was taken: whether it was. Says no also when the store is still
    /// away; the next try finds out.
    async fn is_committed(&self, to: &Checkpoint) -> Result<bool, Ended> {
        match self.store.checkpoint(self.projection).await {
            Ok(Some(held)) if held.epoch != to.epoch => Err(Ended::Fenced),
            Ok(Some(held)) => Ok(held.position == to.position && to.position != self.from.position),
            Ok(None) => Err(Ended::Fenced),
            Err(error) if error.may_pass() => Ok(false),
            Err(error) => Err(Ended::Failed(error)),
        }
    }
}
