//! What happened to sources.

use waybill_domain::history::TransitionRow;
use waybill_event::{LogTime, Source};

use super::limit;
use crate::column::Column;
use crate::table::Table;
use crate::{ReadModel, StoreError};

impl ReadModel {
    /// Transitions of a source, or of all sources, newest first: those before a time, at most `wanted`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn transitions(
        &self,
        source: Option<Source>,
        before: Option<LogTime>,
        wanted: u32,
    ) -> Result<Vec<TransitionRow>, StoreError> {
        self.reading("transitions", async |pool| {
            let rest = "where ($1::text is null or source = $1) and ($2::timestamptz is null or since < $2)
                        order by since desc, id desc limit $3";
            let rows = sqlx::query(TransitionRow::select(rest))
                .bind(source.to_sql())
                .bind(before.to_sql())
                .bind(limit(wanted))
                .fetch_all(pool)
                .await?;
            rows.iter().map(TransitionRow::read).collect::<Result<Vec<_>, sqlx::Error>>()
        })
        .await
    }
}
