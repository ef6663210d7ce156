//! What candidates of rules would have said otherwise, summed up.

use serde::Serialize;
use sqlx::Row;
use uuid::Uuid;
use waybill_event::{LogTime, RequestId};

use super::limit;
use super::request::{day, least_id};
use crate::column::Column;
use crate::{ReadModel, StoreError};

/// One way in which a candidate differs from what is in force, with how often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShadowDifference {
    /// The rule in force.
    pub rule: String,
    /// Its kind.
    pub kind: String,
    /// The candidate's rule.
    pub candidate_rule: String,
    /// Its kind.
    pub candidate_kind: String,
    /// What else differs.
    pub differs: Vec<String>,
    /// Attempts that it concerns.
    pub attempts: u64,
    /// The newest request with such an attempt.
    pub request: RequestId,
}

/// How a candidate compares with what is in force.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ShadowReport {
    /// Failed attempts since then, whether a candidate looked on or not.
    pub failures: u64,
    /// The differences, the most frequent first.
    pub differences: Vec<ShadowDifference>,
}

impl ReadModel {
    /// What candidates would have said otherwise of requests that came at `since` or later.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn shadows(&self, since: LogTime, wanted: u32) -> Result<ShadowReport, StoreError> {
        let low = least_id(since);
        let count = "select count(*) from attempts
             where day >= $1 and request_id >= $2 and kind is not null and kind <> 'success'";
        let differences = "select coalesce(rule, ''), coalesce(kind, ''), shadow->>'rule', shadow->>'kind',
                 array(select jsonb_array_elements_text(coalesce(shadow->'differs', '[]'))) as differs,
                 count(*), max(request_id::text)
             from attempts where shadow is not null and day >= $1 and request_id >= $2
             group by 1, 2, 3, 4, 5 order by count(*) desc, 1, 3 limit $3";
        self.reading("shadow verdicts", async |pool| {
            let failures: i64 = sqlx::query_scalar(count).bind(day(low).to_sql()).bind(low).fetch_one(pool).await?;
            let rows = sqlx::query(differences).bind(day(low).to_sql()).bind(low).bind(limit(wanted));
            let rows = rows.fetch_all(pool).await?;
            let read = |row: &sqlx::postgres::PgRow| {
                let request: String = row.try_get(6)?;
                let request = Uuid::parse_str(&request).map_err(|error| sqlx::Error::Decode(error.into()))?;
                Ok(ShadowDifference {
                    rule: row.try_get(0)?,
                    kind: row.try_get(1)?,
                    candidate_rule: row.try_get::<Option<String>, _>(2)?.unwrap_or_default(),
                    candidate_kind: row.try_get::<Option<String>, _>(3)?.unwrap_or_default(),
                    differs: row.try_get(4)?,
                    attempts: u64::try_from(row.try_get::<i64, _>(5)?).unwrap_or(0),
                    request: RequestId::from_uuid(request),
                })
            };
            let differences = rows.iter().map(read).collect::<Result<Vec<_>, sqlx::Error>>()?;
            Ok::<_, sqlx::Error>(ShadowReport { failures: u64::try_from(failures).unwrap_or(0), differences })
        })
        .await
    }
}
