//! How far the projections are.

use serde::Serialize;
use sqlx::Row;
use waybill_event::LogTime;

use crate::column::Column;
use crate::{ReadModel, StoreError};

/// How far a projection is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProjectionPosition {
    /// The projection, `config` or `traffic`.
    pub projection: String,
    /// Version of the fold that made its rows.
    pub version: u32,
    /// Epoch of its leader.
    pub epoch: u64,
    /// Sequence of the last message folded.
    pub position: u64,
    /// When the log took that message: rows are as old as this, or nothing came since.
    pub stored_at: Option<LogTime>,
    /// Events that are in no table.
    pub unprojectable: u64,
}

impl ReadModel {
    /// How far each projection is; those that nobody ever folded are absent. The lag behind the log is for the caller
    /// to tell, who knows the log's end.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn projections(&self) -> Result<Vec<ProjectionPosition>, StoreError> {
        self.reading("positions of projections", async |pool| {
            let rows = sqlx::query(
                "select projection, version, epoch, position, stored_at,
                 (select count(*) from unprojectable u where u.projection = c.projection) as unprojectable
                 from checkpoints c order by projection",
            )
            .fetch_all(pool)
            .await?;
            rows.iter()
                .map(|row| {
                    Ok(ProjectionPosition {
                        projection: row.try_get("projection")?,
                        version: u32::read(row, "version")?,
                        epoch: u64::read(row, "epoch")?,
                        position: u64::read(row, "position")?,
                        stored_at: Option::<LogTime>::read(row, "stored_at")?,
                        unprojectable: u64::read(row, "unprojectable")?,
                    })
                })
                .collect::<Result<Vec<_>, sqlx::Error>>()
        })
        .await
    }
}
