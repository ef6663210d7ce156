//! Events that are in no table, kept whole with the reason.

use sqlx::postgres::{PgConnection, PgRow};
use waybill_domain::history::without_nul;
use waybill_event::{LogTime, Position};

use crate::column::{Column, word};
use crate::{Projection, ReadModel, StoreError};

/// Why an event is in no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Its type or version isn't known yet.
    Unknown,
    /// It can't be read, or lacks what its row needs.
    Malformed,
    /// Postgres refused its row for its content.
    Refused,
}

/// An event that is in no table.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Unprojectable {
    /// Where it stands; index 0 for a message that can't be read at all.
    pub position: Position,
    /// Why it is in no table.
    pub why: Why,
    /// The reason in words.
    pub detail: String,
    /// The event as it was stored.
    pub event: String,
    /// When the log took it.
    pub stored_at: LogTime,
}

pub(crate) async fn record(
    connection: &mut PgConnection,
    projection: Projection,
    events: &[Unprojectable],
) -> Result<(), sqlx::Error> {
    if events.is_empty() {
        return Ok(());
    }
    let whys: Vec<String> = events.iter().map(|event| word(&event.why)).collect();
    sqlx::query(
        "insert into unprojectable (projection, sequence, index, why, detail, event, stored_at)
         select $1, * from unnest($2::int8[], $3::int4[], $4::text[], $5::text[], $6::text[], $7::timestamptz[])
         on conflict (projection, sequence, index) do nothing",
    )
    .bind(projection.as_str())
    .bind(events.iter().map(|event| event.position.sequence.to_sql()).collect::<Vec<_>>())
    .bind(events.iter().map(|event| event.position.index.to_sql()).collect::<Vec<_>>())
    .bind(whys)
    .bind(events.iter().map(|event| without_nul(&event.detail)).collect::<Vec<_>>())
    .bind(events.iter().map(|event| without_nul(&event.event)).collect::<Vec<_>>())
    .bind(events.iter().map(|event| event.stored_at.to_sql()).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

pub(crate) async fn forget(
    connection: &mut PgConnection,
    projection: Projection,
    positions: &[Position],
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "delete from unprojectable where projection = $1
         and (sequence, index) in (select * from unnest($2::int8[], $3::int4[]))",
    )
    .bind(projection.as_str())
    .bind(positions.iter().map(|position| position.sequence.to_sql()).collect::<Vec<_>>())
    .bind(positions.iter().map(|position| position.index.to_sql()).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

fn read(row: &PgRow) -> Result<Unprojectable, sqlx::Error> {
    Ok(Unprojectable {
        position: Position::new(u64::read(row, "sequence")?, u16::read(row, "index")?),
        why: Why::read(row, "why")?,
        detail: String::read(row, "detail")?,
        event: String::read(row, "event")?,
        stored_at: LogTime::read(row, "stored_at")?,
    })
}

impl ReadModel {
    /// Events of a projection that are in no table, in the order of the log, after a position; at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn unprojectable(
        &self,
        projection: Projection,
        after: Option<Position>,
        limit: u32,
    ) -> Result<Vec<Unprojectable>, StoreError> {
        let after = after.unwrap_or_default();
        self.reading("events in no table", async |pool| {
            let rows = sqlx::query(
                "select * from unprojectable where projection = $1 and (sequence, index) > ($2, $3)
                 order by sequence, index limit $4",
            )
            .bind(projection.as_str())
            .bind(after.sequence.to_sql())
            .bind(after.index.to_sql())
            .bind(i64::from(limit))
            .fetch_all(pool)
            .await?;
            rows.iter().map(read).collect::<Result<Vec<_>, sqlx::Error>>()
        })
        .await
    }
}
