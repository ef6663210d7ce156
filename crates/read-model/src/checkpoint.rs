//! How far each projection is, and who may fold it on.

use std::fmt;

use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::types::Json;
use waybill_domain::dedup::Dedup;
use waybill_domain::history::{CONFIG_VERSION, TRAFFIC_VERSION};
use waybill_event::LogTime;

use crate::column::Column;
use crate::{ReadModel, StoreError};

/// The independent folds into rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Projection {
    /// `WB_CONFIG` into sources, groups, keys, abilities and the history of edits.
    Config,
    /// `WB_TRAFFIC_0` into requests, attempts, outcomes, transitions and selection tables.
    Traffic,
}

impl Projection {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Config, Self::Traffic];

    /// Its name in the store, in metrics and in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Traffic => "traffic",
        }
    }

    /// Version of its fold.
    #[must_use]
    pub const fn version(self) -> u32 {
        match self {
            Self::Config => CONFIG_VERSION,
            Self::Traffic => TRAFFIC_VERSION,
        }
    }
}

impl fmt::Display for Projection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How far a projection is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The epoch that may write; rises with each leader.
    pub epoch: u64,
    /// Sequence of the last message folded; 0 before the first.
    pub position: u64,
    /// Which events of each producer are folded.
    pub dedup: Dedup,
    /// When the log took the last message folded.
    pub stored_at: Option<LogTime>,
}

fn read(row: &PgRow, projection: Projection) -> Result<Checkpoint, StoreError> {
    let stored = u32::read(row, "version")?;
    if stored != projection.version() {
        return Err(StoreError::Version { projection, stored, ours: projection.version() });
    }
    Ok(Checkpoint {
        epoch: u64::read(row, "epoch")?,
        position: u64::read(row, "position")?,
        dedup: row.try_get::<Json<Dedup>, _>("dedup")?.0,
        stored_at: Option::<LogTime>::read(row, "stored_at")?,
    })
}

impl ReadModel {
    /// Becomes the one that folds a projection: raises its epoch, so that whoever folded it before is refused from now
    /// on, and returns where to go on.
    ///
    /// # Errors
    /// [`StoreError`], among them [`StoreError::Version`].
    pub async fn take_over(&self, projection: Projection) -> Result<Checkpoint, StoreError> {
        self.reading("taking over a projection", async |pool| {
            let row = sqlx::query(
                "insert into checkpoints (projection, version, epoch, position, dedup) values ($1, $2, 1, 0, '{}')
                 on conflict (projection) do update set epoch = checkpoints.epoch + 1 returning *",
            )
            .bind(projection.as_str())
            .bind(projection.version().to_sql())
            .fetch_one(pool)
            .await?;
            read(&row, projection)
        })
        .await
    }

    /// How far a projection is; `None` when nobody ever folded it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn checkpoint(&self, projection: Projection) -> Result<Option<Checkpoint>, StoreError> {
        self.reading("a checkpoint", async |pool| {
            let row = sqlx::query("select * from checkpoints where projection = $1")
                .bind(projection.as_str())
                .fetch_optional(pool)
                .await?;
            row.map(|row| read(&row, projection)).transpose()
        })
        .await
    }
}

/// Moves a checkpoint on, if epoch and position are what we think they are.
pub(crate) async fn advance(
    connection: &mut PgConnection,
    projection: Projection,
    from: u64,
    to: &Checkpoint,
) -> Result<(), StoreError> {
    let done = sqlx::query(
        "update checkpoints set position = $1, dedup = $2, stored_at = $3
         where projection = $4 and epoch = $5 and position = $6",
    )
    .bind(to.position.to_sql())
    .bind(Json(&to.dedup))
    .bind(to.stored_at.to_sql())
    .bind(projection.as_str())
    .bind(to.epoch.to_sql())
    .bind(from.to_sql())
    .execute(connection)
    .await?;
    if done.rows_affected() == 1 {
        Ok(())
    } else {
        Err(StoreError::Fenced { projection, epoch: to.epoch, position: from })
    }
}
