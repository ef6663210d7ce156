//! One request: all that is known of it.

use std::collections::BTreeMap;

use serde::Serialize;
use sqlx::{PgConnection, Row};
use waybill_domain::history::{AttemptRow, Day, Line, OutcomeRow, RequestRow, SelectionTableRow, lines};
use waybill_event::{RequestId, Source};

use crate::column::Column;
use crate::table::Table;
use crate::{ReadModel, StoreError};

/// All that the read models know of a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct History {
    /// The request.
    pub request: RequestRow,
    /// Its attempts, in order.
    pub attempts: Vec<AttemptRow>,
    /// What it says of each source, in the order of the log.
    pub outcomes: Vec<OutcomeRow>,
    /// The selection table its plan was made from.
    pub selection_table: Option<SelectionTableRow>,
    /// Names of the sources it speaks of, as they are now.
    pub names: BTreeMap<String, String>,
    /// Its events in words, each with where it stands in the log.
    pub lines: Vec<Line>,
}

impl ReadModel {
    /// The history of a request; `None` when nothing of it was folded.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn history(&self, id: RequestId) -> Result<Option<History>, StoreError> {
        self.reading("a request's history", async |pool| {
            // One look at all tables: a batch that is committed between two queries would tear the story apart.
            let mut transaction = pool.begin_with("begin isolation level repeatable read, read only").await?;
            let look = &mut *transaction;
            let attempts: Vec<AttemptRow> = of_request(look, id, "order by attempt").await?;
            let mut outcomes: Vec<OutcomeRow> = of_request(look, id, "").await?;
            outcomes.sort_by_key(|row| row.position);
            let request = match of_request::<RequestRow>(look, id, "").await?.pop() {
                Some(request) => request,
                None if attempts.is_empty() && outcomes.is_empty() => return Ok::<_, sqlx::Error>(None),
                None => RequestRow::new(id),
            };
            let selection_table = match request.table_hash {
                Some(hash) => {
                    let statement = SelectionTableRow::select("where hash = $1");
                    let row = sqlx::query(statement).bind(hash.to_sql()).fetch_optional(&mut *look).await?;
                    row.as_ref().map(SelectionTableRow::read).transpose()?
                }
                None => None,
            };
            let mut sources: Vec<Source> = request.candidates.clone();
            sources.extend(attempts.iter().map(|row| row.source));
            sources.extend(request.skips.iter().chain(&request.last_skips).map(|skip| skip.source));
            sources.extend(attempts.iter().flat_map(|row| &row.skips).map(|skip| skip.source));
            let sources: Vec<String> = sources.iter().map(Source::to_string).collect();
            let rows = sqlx::query("select source, name from sources where source = any($1)")
                .bind(sources)
                .fetch_all(&mut *look)
                .await?;
            let names = rows
                .iter()
                .map(|row| Ok((row.try_get("source")?, row.try_get("name")?)))
                .collect::<Result<BTreeMap<String, String>, sqlx::Error>>()?;
            let lines = lines(&request, &attempts, &outcomes);
            Ok(Some(History { request, attempts, outcomes, selection_table, names, lines }))
        })
        .await
    }
}

async fn of_request<T: Table>(look: &mut PgConnection, id: RequestId, order: &str) -> Result<Vec<T>, sqlx::Error> {
    let statement = T::select(&format!("where day = $1 and request_id = $2 {order}"));
    let rows = sqlx::query(statement).bind(Day::of_request(id).to_sql()).bind(id.as_uuid()).fetch_all(look).await?;
    rows.iter().map(T::read).collect()
}
