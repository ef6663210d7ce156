//! One batch of a fold: checkpoint and rows in one transaction.

mod config;
mod traffic;

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use waybill_domain::history::{Placed, Touched};
use waybill_event::{LogTime, Position};

use crate::error::is_about_content;
use crate::unprojectable::{self, Unprojectable, Why};
use crate::{Checkpoint, Projection, ReadModel, StoreError, checkpoint};

/// What is folded at once.
#[derive(Debug)]
pub struct Batch<'a> {
    /// Into which rows.
    pub projection: Projection,
    /// Where the checkpoint must stand.
    pub from: u64,
    /// Where it stands afterwards, under which epoch.
    pub to: &'a Checkpoint,
    /// The events, in the order of the log, without those that were folded before.
    pub events: &'a [Placed],
    /// What of the same messages can't be read.
    pub unreadable: Vec<Unprojectable>,
    /// Positions of events that were in no table and are among `events` now.
    pub solved: &'a [Position],
}

/// A batch that is in the tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Committed {
    /// Events folded into rows, or that say nothing that rows hold.
    pub folded: usize,
    /// Events that are in no table: what came with the batch, what isn't known, what was refused.
    pub unprojectable: Vec<Unprojectable>,
}

impl ReadModel {
    /// Folds a batch: moves the checkpoint on, loads the rows that the events touch, folds, writes, all or nothing.
    /// Events whose rows Postgres refuses for their content are put aside, and the others are folded.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when the checkpoint isn't where it was thought to be; [`StoreError::UnknownEdit`] at an
    /// edit that can't be read; otherwise as the store reports. Nothing was written then, but after
    /// [`StoreError::Deadline`] and [`StoreError::Unavailable`] nobody knows: read the checkpoint.
    pub async fn commit(&self, batch: Batch<'_>) -> Result<Committed, StoreError> {
        self.writing("folding a batch", async {
            if let (Projection::Traffic, Some(stored_at)) =
                (batch.projection, batch.events.iter().map(|placed| placed.stored_at).max())
            {
                self.make_days(touched(batch.events).days(), stored_at).await?;
            }
            let mut transaction = self.pool().begin().await?;
            checkpoint::advance(&mut transaction, batch.projection, batch.from, batch.to).await?;
            let mut committed = Committed { folded: 0, unprojectable: batch.unreadable };
            fold(&mut transaction, batch.projection, batch.events, &mut committed).await?;
            unprojectable::forget(&mut transaction, batch.projection, batch.solved).await?;
            unprojectable::record(&mut transaction, batch.projection, &committed.unprojectable).await?;
            transaction.commit().await?;
            Ok::<_, StoreError>(committed)
        })
        .await
    }
}

fn touched(events: &[Placed]) -> Touched {
    let mut touched = Touched::default();
    for placed in events {
        touched.add(placed);
    }
    touched
}

/// Folds events; where rows are refused for their content, halves them until the one at fault is found.
async fn fold(
    connection: &mut PgConnection,
    projection: Projection,
    events: &[Placed],
    committed: &mut Committed,
) -> Result<(), StoreError> {
    let mut parts = vec![events];
    while let Some(part) = parts.pop() {
        if part.is_empty() {
            continue;
        }
        let mut savepoint = connection.begin().await?;
        let written = match projection {
            Projection::Traffic => traffic::fold(&mut savepoint, part).await,
            Projection::Config => config::fold(&mut savepoint, part).await.map(|()| Vec::new()),
        };
        match written {
            Ok(odd) => {
                savepoint.commit().await?;
                committed.folded += part.len() - odd.len();
                committed.unprojectable.extend(odd);
            }
            Err(StoreError::Refused(error)) if is_about_content(&error) => {
                savepoint.rollback().await?;
                if let [placed] = part {
                    committed.unprojectable.push(put_aside(placed, Why::Refused, error.to_string()));
                } else {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn put_aside(placed: &Placed, why: Why, detail: String) -> Unprojectable {
    let event = placed.event.encode().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let stored_at: LogTime = placed.stored_at;
    Unprojectable { position: placed.position, why, detail, event, stored_at }
}
