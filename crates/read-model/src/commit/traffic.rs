//! Traffic: loads the rows that events touch, folds, writes them back.

use std::collections::{BTreeMap, BTreeSet};

use chrono::NaiveDate;
use sqlx::postgres::PgConnection;
use uuid::Uuid;
use waybill_domain::history::{
    Applied, AttemptRow, Day, OutcomeRow, Placed, RequestRow, SelectionTableRow, Touched, TrafficRows, TransitionRow,
};
use waybill_event::RequestId;

use super::{put_aside, touched};
use crate::StoreError;
use crate::column::Column;
use crate::table::Table;
use crate::unprojectable::{Unprojectable, Why};

/// Folds events into their rows and returns those that belong in no table.
pub(super) async fn fold(connection: &mut PgConnection, events: &[Placed]) -> Result<Vec<Unprojectable>, StoreError> {
    let touched = touched(events);
    let mut rows = load(connection, &touched).await?;
    let mut odd = Vec::new();
    for placed in events {
        match rows.apply(placed) {
            Applied::Rows | Applied::Nothing => {}
            Applied::Unknown => {
                let body = &placed.event.draft.body;
                let detail = format!("{} v{} is not known to this program", body.kind(), body.version());
                odd.push(put_aside(placed, Why::Unknown, detail));
            }
            Applied::Incomplete(what) => odd.push(put_aside(placed, Why::Malformed, what.to_owned())),
        }
    }
    write(connection, &rows, &touched).await?;
    Ok(odd)
}

async fn write(connection: &mut PgConnection, rows: &TrafficRows, touched: &Touched) -> Result<(), sqlx::Error> {
    let requests: Vec<&_> = touched.requests.iter().filter_map(|key| rows.requests.get(key)).collect();
    RequestRow::upsert(connection, &requests).await?;
    let attempts: Vec<&_> = touched.attempts.iter().filter_map(|key| rows.attempts.get(key)).collect();
    AttemptRow::upsert(connection, &attempts).await?;
    let outcomes: Vec<&_> = touched.outcomes.iter().filter_map(|key| rows.outcomes.get(key)).collect();
    OutcomeRow::upsert(connection, &outcomes).await?;
    let transitions: Vec<&_> = touched.transitions.iter().filter_map(|key| rows.transitions.get(key)).collect();
    TransitionRow::upsert(connection, &transitions).await?;
    let tables: Vec<&_> = touched.selection_tables.iter().filter_map(|key| rows.selection_tables.get(key)).collect();
    SelectionTableRow::upsert(connection, &tables).await
}

async fn load(connection: &mut PgConnection, touched: &Touched) -> Result<TrafficRows, sqlx::Error> {
    let mut rows = TrafficRows::default();
    for row in of_requests::<RequestRow>(connection, touched.requests.iter().copied()).await? {
        rows.requests.insert(row.request_id, row);
    }
    for row in of_requests::<AttemptRow>(connection, touched.attempts.iter().map(|&(id, _)| id)).await? {
        rows.attempts.insert((row.request_id, row.attempt), row);
    }
    for row in of_requests::<OutcomeRow>(connection, touched.outcomes.iter().map(|(id, ..)| *id)).await? {
        rows.outcomes.insert((row.request_id, row.source, row.upstream_model.clone()), row);
    }
    if !touched.transitions.is_empty() {
        let ids: Vec<&String> = touched.transitions.iter().collect();
        let statement = TransitionRow::select("where id = any($1)");
        for row in sqlx::query(statement).bind(ids).fetch_all(&mut *connection).await? {
            let row = TransitionRow::read(&row)?;
            rows.transitions.insert(row.id.clone(), row);
        }
    }
    if !touched.selection_tables.is_empty() {
        let hashes: Vec<String> = touched.selection_tables.iter().map(Column::to_sql).collect();
        let statement = SelectionTableRow::select("where hash = any($1)");
        for row in sqlx::query(statement).bind(hashes).fetch_all(&mut *connection).await? {
            let row = SelectionTableRow::read(&row)?;
            rows.selection_tables.insert(row.hash, row);
        }
    }
    Ok(rows)
}

/// Rows of requests, day by day, so that each query looks into one partition only.
async fn of_requests<T: Table>(
    connection: &mut PgConnection,
    ids: impl Iterator<Item = RequestId>,
) -> Result<Vec<T>, sqlx::Error> {
    let mut by_day: BTreeMap<NaiveDate, BTreeSet<Uuid>> = BTreeMap::new();
    for id in ids {
        by_day.entry(Day::of_request(id).to_sql()).or_default().insert(id.as_uuid());
    }
    let mut rows = Vec::new();
    for (day, ids) in by_day {
        let ids: Vec<Uuid> = ids.into_iter().collect();
        let statement = T::select("where day = $1 and request_id = any($2)");
        let found = sqlx::query(statement).bind(day).bind(ids).fetch_all(&mut *connection).await?;
        for row in &found {
            rows.push(T::read(row)?);
        }
    }
    Ok(rows)
}
