//! How sources serve lately: their last attempts, and which requests went elsewhere because of what.

use std::collections::BTreeMap;

use serde::Serialize;
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;
use waybill_event::{GroupId, LogTime, RequestId, Source};

use super::limit;
use super::request::{day, least_id};
use crate::column::Column;
use crate::{ReadModel, StoreError};

/// Requests that are looked at, the newest ones.
const REQUESTS: i64 = 5_000;

/// How often requests of a group were not served by a source for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Move {
    /// The source that didn't serve them.
    pub source: Source,
    /// The group that the requests were of.
    pub group: Option<GroupId>,
    /// Why: the reason for which it was passed over, or what its attempt came to: the status where it is `401`, `403`,
    /// `423`, `429` or `529`, `5xx`, `same_account` where the same one was asked again, and else the failure's kind.
    pub why: String,
    /// Requests.
    pub requests: u64,
    /// The newest of them, newest first.
    pub last: Vec<RequestId>,
}

/// An attempt that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ended {
    /// Its request.
    pub request: RequestId,
    /// What it came to.
    pub kind: String,
    /// The upstream's status.
    pub status: Option<u16>,
    /// How long it took, in milliseconds.
    pub took_ms: Option<u32>,
    /// When it ended.
    pub at: Option<LogTime>,
}

const MOVES: &str = "with recent as materialized (
     select day, request_id, group_id, skips, last_skips from requests
     where day >= $1 and request_id >= $2 order by day desc, request_id desc limit $3
 ), told as (
     select r.group_id, r.request_id, s.value as skip
     from recent r cross join lateral jsonb_array_elements(r.skips || r.last_skips) s
     union all
     select r.group_id, r.request_id, s.value
     from recent r join attempts a using (day, request_id) cross join lateral jsonb_array_elements(a.skips) s
 ), moved as (
     select group_id, request_id, (skip->'source'->>'kind') || ':' || (skip->'source'->>'id') as source,
            skip->>'why' as why
     from told where skip->>'why' <> 'excluded'
     union all
     select r.group_id, r.request_id, a.source,
            case when a.next = 'same' then 'same_account'
                 when a.status in (401, 403, 423, 429, 529) then a.status::text
                 when a.status >= 500 then '5xx'
                 else a.kind end
     from recent r join attempts a using (day, request_id)
     where a.kind is not null and a.kind <> 'success' and a.next in ('elsewhere', 'same')
 )
 select source, group_id, why, count(distinct request_id) as requests,
        (array_agg(distinct request_id::text order by request_id::text desc))[1:10] as last
 from moved where source = any($4) group by 1, 2, 3 order by 4 desc, 1, 3 limit $5";

const ENDED: &str = "select s.source, a.request_id, a.kind, a.status, a.took_ms, a.finished_at
 from unnest($1::text[]) as s(source) cross join lateral (
     select request_id, attempt, kind, status, took_ms, finished_at from attempts
     where attempts.source = s.source and day >= $2 and request_id >= $3 and kind is not null
     order by day desc, request_id desc, attempt desc limit $4
 ) a order by s.source, a.request_id desc, a.attempt desc";

impl ReadModel {
    /// Requests that came at `since` or later and that these sources didn't serve although they might have, most frequent
    /// first: of the newest 5,000 requests.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn moves(&self, sources: &[Source], since: LogTime, wanted: u32) -> Result<Vec<Move>, StoreError> {
        let low = least_id(since);
        self.reading("moves", async |pool| {
            let rows = sqlx::query(MOVES)
                .bind(day(low).to_sql())
                .bind(low)
                .bind(REQUESTS)
                .bind(names(sources))
                .bind(limit(wanted))
                .fetch_all(pool)
                .await?;
            rows.iter().map(moved).collect::<Result<Vec<_>, sqlx::Error>>()
        })
        .await
    }

    /// The last attempts at each of these sources of requests that came at `since` or later, newest first, at most `each`
    /// of one source.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn ended(
        &self,
        sources: &[Source],
        since: LogTime,
        each: u32,
    ) -> Result<BTreeMap<Source, Vec<Ended>>, StoreError> {
        let low = least_id(since);
        self.reading("last attempts", async |pool| {
            let rows = sqlx::query(ENDED)
                .bind(names(sources))
                .bind(day(low).to_sql())
                .bind(low)
                .bind(limit(each))
                .fetch_all(pool)
                .await?;
            let mut ended: BTreeMap<Source, Vec<Ended>> = BTreeMap::new();
            for row in &rows {
                ended.entry(Source::read(row, "source")?).or_default().push(one(row)?);
            }
            Ok::<_, sqlx::Error>(ended)
        })
        .await
    }
}

fn names(sources: &[Source]) -> Vec<String> {
    sources.iter().map(Source::to_string).collect()
}

fn moved(row: &PgRow) -> Result<Move, sqlx::Error> {
    let id = |text: &String| {
        let id = Uuid::parse_str(text).map_err(|error| sqlx::Error::Decode(error.into()))?;
        Ok(RequestId::from_uuid(id))
    };
    let last: Vec<String> = row.try_get("last")?;
    Ok(Move {
        source: Source::read(row, "source")?,
        group: Option::read(row, "group_id")?,
        why: row.try_get::<Option<String>, _>("why")?.unwrap_or_default(),
        requests: u64::try_from(row.try_get::<i64, _>("requests")?).unwrap_or(0),
        last: last.iter().map(id).collect::<Result<_, sqlx::Error>>()?,
    })
}

fn one(row: &PgRow) -> Result<Ended, sqlx::Error> {
    Ok(Ended {
        request: RequestId::from_uuid(row.try_get("request_id")?),
        kind: row.try_get("kind")?,
        status: Option::read(row, "status")?,
        took_ms: Option::read(row, "took_ms")?,
        at: Option::read(row, "finished_at")?,
    })
}
