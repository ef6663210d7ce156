//! Requests, newest first, with filters.

use sqlx::{Postgres, QueryBuilder};
use uuid::Uuid;
use waybill_domain::history::{Day, RequestRow, RequestState};
use waybill_event::{GroupId, KeyId, LogTime, RequestId, Source};

use super::limit;
use crate::column::Column;
use crate::table::Table;
use crate::{ReadModel, StoreError};

/// Which requests. Filters that are `None` let everything through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestQuery {
    /// Of this client key.
    pub key: Option<KeyId>,
    /// Of this group.
    pub group: Option<GroupId>,
    /// For this model, as the route resolved it.
    pub model: Option<String>,
    /// In this state.
    pub state: Option<RequestState>,
    /// With an attempt at this source.
    pub source: Option<Source>,
    /// With this id of the client's own.
    pub client_request_id: Option<String>,
    /// Admitted at this time or later, to the millisecond.
    pub from: Option<LogTime>,
    /// Admitted before this time, to the millisecond.
    pub to: Option<LogTime>,
    /// Whose id begins with these hexadecimal digits; dashes don't count. Nothing is found for anything else.
    pub id_prefix: Option<String>,
    /// After this request in the order of the list: the last one of the page before.
    pub after: Option<RequestId>,
    /// At most this many, see [`super::MAX_LIMIT`].
    pub limit: u32,
}

/// First and last id that begin with these digits.
fn prefix_range(prefix: &str) -> Option<(Uuid, Uuid)> {
    let digits: String = prefix.chars().filter(|&c| c != '-').collect();
    if digits.len() > 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let low = Uuid::parse_str(&format!("{digits:0<32}")).ok()?;
    let high = Uuid::parse_str(&format!("{digits:f<32}")).ok()?;
    Some((low, high))
}

/// The least id of a millisecond.
pub(super) fn least_id(at: LogTime) -> Uuid {
    let millis = u128::try_from(at.as_millis()).unwrap_or(0) & 0xffff_ffff_ffff;
    Uuid::from_u128(millis << 80)
}

pub(super) fn day(id: Uuid) -> Day {
    // The id's first 48 bits are milliseconds, whatever else it is.
    let millis = i64::try_from(id.as_u128() >> 80).unwrap_or(i64::MAX);
    Day::of(LogTime::from_micros(millis.saturating_mul(1_000)))
}

/// Bounds of ids, both included.
fn range(query: &RequestQuery) -> Option<(Uuid, Uuid)> {
    let (mut low, mut high) = (Uuid::nil(), Uuid::max());
    if let Some(prefix) = &query.id_prefix {
        (low, high) = prefix_range(prefix)?;
    }
    if let Some(from) = query.from {
        low = low.max(least_id(from));
    }
    if let Some(to) = query.to {
        high = high.min(Uuid::from_u128(least_id(to).as_u128().checked_sub(1)?));
    }
    if let Some(after) = query.after {
        high = high.min(Uuid::from_u128(after.as_uuid().as_u128().checked_sub(1)?));
    }
    (low <= high).then_some((low, high))
}

impl ReadModel {
    /// Requests that a query asks for, newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn requests(&self, query: &RequestQuery) -> Result<Vec<RequestRow>, StoreError> {
        let Some((low, high)) = range(query) else { return Ok(Vec::new()) };
        let select = RequestRow::statements().select.as_str();
        let mut sql: QueryBuilder<Postgres> = QueryBuilder::new(select);
        sql.push(" where request_id >= ").push_bind(low).push(" and request_id <= ").push_bind(high);
        sql.push(" and day >= ").push_bind(day(low).to_sql()).push(" and day <= ").push_bind(day(high).to_sql());
        if let Some(key) = query.key {
            sql.push(" and key_id = ").push_bind(key.to_sql());
        }
        if let Some(group) = query.group {
            sql.push(" and group_id = ").push_bind(group.to_sql());
        }
        if let Some(model) = &query.model {
            sql.push(" and model = ").push_bind(model.clone());
        }
        if let Some(state) = query.state {
            sql.push(" and state = ").push_bind(state.to_sql());
        }
        if let Some(id) = &query.client_request_id {
            sql.push(" and client_request_id = ").push_bind(id.clone());
        }
        if let Some(source) = query.source {
            sql.push(
                " and exists (select 1 from attempts where attempts.day = requests.day
                  and attempts.request_id = requests.request_id and attempts.source = ",
            );
            sql.push_bind(source.to_sql()).push(")");
        }
        sql.push(" order by day desc, request_id desc limit ").push_bind(limit(query.limit));
        self.reading("requests", async |pool| {
            let rows = sql.build().fetch_all(pool).await?;
            rows.iter().map(RequestRow::read).collect::<Result<Vec<_>, sqlx::Error>>()
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_bounds_the_ids() {
        let (low, high) = prefix_range("019fa5F2-c3").unwrap();
        assert_eq!(low.to_string(), "019fa5f2-c300-0000-0000-000000000000");
        assert_eq!(high.to_string(), "019fa5f2-c3ff-ffff-ffff-ffffffffffff");
        assert_eq!(prefix_range("xyz"), None);
        assert_eq!(prefix_range(&"0".repeat(33)), None);
        assert_eq!(prefix_range(""), Some((Uuid::nil(), Uuid::max())));
    }

    #[test]
    fn times_bound_the_ids_and_days() {
        let at: LogTime = "2026-11-29T12:00:00.123Z".parse().unwrap();
        let id = RequestId::from_parts(at, [0; 10]);
        let query = |from, to| RequestQuery { from, to, ..RequestQuery::default() };
        let holds = |query: &RequestQuery| range(query).is_some_and(|(a, b)| a <= id.as_uuid() && id.as_uuid() <= b);
        assert!(holds(&query(Some(at), None)));
        assert!(!holds(&query(None, Some(at))));
        assert_eq!(range(&query(Some(at), Some(at))), None);
        assert_eq!(day(id.as_uuid()).to_string(), "2026-11-29");
        assert!(!holds(&RequestQuery { after: Some(id), ..RequestQuery::default() }));
    }
}
