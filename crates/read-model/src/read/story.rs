//! Which attempts caused what happened to a source.

use std::collections::BTreeMap;

use sqlx::Row;
use uuid::Uuid;
use waybill_domain::history::{CauseAttempt, TransitionRow};
use waybill_event::{LogTime, RequestId, Source};

use super::request::{day, least_id};
use crate::column::Column;
use crate::{ReadModel, StoreError};

/// How long before a transition its cause's request may have been admitted.
const LOOK_BACK_MICROS: i64 = 15 * 60 * 1_000_000;
/// How long after it, by the request's id: an id has its replica's time, which is ahead of the log's by as long as a
/// message takes to get there. Far more than that, since the message is compared as well.
const LOOK_AHEAD_MICROS: i64 = 60 * 1_000_000;

impl ReadModel {
    /// The attempts that caused these transitions, by the transition's id, as far as they can be found: each is the
    /// source's last one before the causing outcome in the same message of the log.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn causes(
        &self,
        source: Source,
        transitions: &[TransitionRow],
    ) -> Result<BTreeMap<String, CauseAttempt>, StoreError> {
        let mut asked: Vec<(&str, Uuid, Uuid, String, i32)> = Vec::new();
        for row in transitions {
            let Some(at) = row.cause_position else { continue };
            let since = row.since.as_micros();
            let low = least_id(LogTime::from_micros(since.saturating_sub(LOOK_BACK_MICROS)));
            let high = least_id(LogTime::from_micros(since.saturating_add(LOOK_AHEAD_MICROS)));
            let message = format!("{}/{}/{}/", at.generation, at.shard, at.sequence);
            asked.push((&row.id, low, high, message, i32::from(at.index)));
        }
        if asked.is_empty() {
            return Ok(BTreeMap::new());
        }
        let column = |pick: fn(&(&str, Uuid, Uuid, String, i32)) -> Uuid| asked.iter().map(pick).collect::<Vec<_>>();
        let (lows, highs) = (column(|row| row.1), column(|row| row.2));
        let days = |ids: &[Uuid]| ids.iter().map(|id| day(*id).to_sql()).collect::<Vec<_>>();
        let query = "select t.id, a.request_id, a.rule, a.status, a.evidence->>'message'
             from unnest($1::text[], $2::uuid[], $3::uuid[], $4::date[], $5::date[], $6::text[], $7::int[])
                  as t(id, low, high, first_day, last_day, message, place)
             join lateral (
                 select request_id, rule, status, evidence from attempts
                 where source = $8 and day between t.first_day and t.last_day
                   and request_id >= t.low and request_id <= t.high
                   and starts_with(finished_position, t.message)
                   and split_part(finished_position, '/', 4)::int < t.place
                 order by split_part(finished_position, '/', 4)::int desc limit 1
             ) a on true";
        self.reading("causes", async |pool| {
            let rows = sqlx::query(query)
                .bind(asked.iter().map(|row| row.0.to_owned()).collect::<Vec<_>>())
                .bind(&lows)
                .bind(&highs)
                .bind(days(&lows))
                .bind(days(&highs))
                .bind(asked.iter().map(|row| row.3.clone()).collect::<Vec<_>>())
                .bind(asked.iter().map(|row| row.4).collect::<Vec<_>>())
                .bind(source.to_sql())
                .fetch_all(pool)
                .await?;
            let read = |row: &sqlx::postgres::PgRow| {
                let cause = CauseAttempt {
                    request: RequestId::from_uuid(row.try_get(1)?),
                    rule: row.try_get(2)?,
                    status: row.try_get::<Option<i32>, _>(3)?.and_then(|status| u16::try_from(status).ok()),
                    message: row.try_get(4)?,
                };
                Ok((row.try_get(0)?, cause))
            };
            rows.iter().map(read).collect::<Result<BTreeMap<_, _>, sqlx::Error>>()
        })
        .await
    }
}
