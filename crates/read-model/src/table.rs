//! Tables whose rows are the rows of the folds: the same names, one column per field, written in bulk.

use std::fmt::Write as _;
use std::sync::OnceLock;

use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres};
use waybill_domain::history::{
    AbilityRow, AttemptRow, ConfigHistoryRow, GroupRow, KeyRow, OutcomeRow, RequestRow, SelectionTableRow, SourceRow,
    TransitionRow,
};

use crate::column::Column;

/// A statement with its values.
pub(crate) type Bound<'q> = Query<'q, Postgres, PgArguments>;

/// The statements of a table, made once from its columns.
pub(crate) struct Statements {
    /// Writes rows from one array per column; a row that is there is replaced.
    pub(crate) upsert: String,
    /// `select … from table`, to be gone on with.
    pub(crate) select: String,
}

/// A row that is a table's row.
pub(crate) trait Table: Sized + Send + Sync + Unpin + 'static {
    /// The table.
    const NAME: &'static str;
    /// Its statements.
    fn statements() -> &'static Statements;
    /// Binds one array per column.
    fn bind<'q>(rows: &[&Self], query: Bound<'q>) -> Bound<'q>;
    /// Reads a row of [`Table::select`].
    fn read(row: &PgRow) -> Result<Self, sqlx::Error>;

    /// Writes rows; rows that are there are replaced.
    async fn upsert(connection: &mut PgConnection, rows: &[&Self]) -> Result<(), sqlx::Error> {
        if rows.is_empty() {
            return Ok(());
        }
        let statement: &'static str = &Self::statements().upsert;
        Self::bind(rows, sqlx::query(statement)).execute(connection).await?;
        Ok(())
    }

    /// A `select` of all columns that goes on with `rest`.
    fn select(rest: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!("{} {rest}", Self::statements().select))
    }
}

fn statements(table: &str, columns: &[(&str, &str)], key: &[&str]) -> Statements {
    let names: Vec<&str> = columns.iter().map(|&(name, _)| name).collect();
    let names = names.join(", ");
    let mut arrays = String::new();
    let mut updates = String::new();
    for (n, (name, pg)) in (1..).zip(columns) {
        let comma = if n == 1 { "" } else { ", " };
        // In the list of what is selected they are unnested in step, value by value; as a table each would be kept whole.
        let written = write!(arrays, "{comma}unnest(${n}::{pg}[])");
        debug_assert!(written.is_ok(), "writing to a String doesn't fail");
        if !key.contains(name) {
            let comma = if updates.is_empty() { "" } else { ", " };
            let written = write!(updates, "{comma}{name} = excluded.{name}");
            debug_assert!(written.is_ok(), "writing to a String doesn't fail");
        }
    }
    let key = key.join(", ");
    Statements {
        upsert: format!("insert into {table} ({names}) select {arrays} on conflict ({key}) do update set {updates}"),
        select: format!("select {names} from {table}"),
    }
}

/// Type of the column that a field stands in.
fn pg<R, C: Column>(_field: fn(&R) -> &C) -> &'static str {
    C::PG
}

macro_rules! table {
    ($row:ident in $name:literal by ($($key:ident),+) { $($column:ident),+ $(,)? }) => {
        impl Table for $row {
            const NAME: &'static str = $name;

            fn statements() -> &'static Statements {
                static MADE: OnceLock<Statements> = OnceLock::new();
                MADE.get_or_init(|| {
                    let columns = [$((stringify!($column), pg(|row: &$row| &row.$column))),+];
                    statements($name, &columns, &[$(stringify!($key)),+])
                })
            }

            fn bind<'q>(rows: &[&Self], query: Bound<'q>) -> Bound<'q> {
                query$(.bind(rows.iter().map(|row| row.$column.to_sql()).collect::<Vec<_>>()))+
            }

            fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
                // The columns stand in the order in which they are selected.
                let mut places = 0..;
                Ok(Self { $($column: Column::at(row, places.next().unwrap_or_default())?),+ })
            }
        }
    };
}

table!(RequestRow in "requests" by (day, request_id) {
    day, request_id, state, key_id, group_id, protocol, client_model, model, stream, body_bytes, deadline_ms,
    table_hash, candidates, candidate_count, skips, client_retry, client_request_id, config, replica, boot,
    admitted_at, admitted_position, admitted_rn, status, error, served_source, served_rev, served_model, attempts,
    fallback, degraded, last_skips, usage_from, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens,
    first_content_ms, took_ms, maybe_billed, finished_at, finished_position, finished_rn, lost_why, lost_at,
    lost_position,
});

table!(AttemptRow in "attempts" by (day, request_id, attempt) {
    day, request_id, attempt, source, source_rev, model, upstream_model, why, priority, place, skips,
    credential_revision, timeout_ms, started_at, started_position, started_rn, kind, rule, status, first_content_ms,
    took_ms, sent, maybe_billed, next, evidence, upstream_request_id, shadow, finished_at, finished_position,
    finished_rn,
});

table!(OutcomeRow in "outcomes" by (day, request_id, source, upstream_model) {
    day, request_id, source, source_rev, upstream_model, kind, source_health, model_health, latency_ms, block,
    attempts, credential_revision, base_url_revision, probe, prompt_tokens, completion_tokens, cached_tokens,
    reasoning_tokens, at, position, rn,
});

table!(TransitionRow in "transitions" by (id) {
    id, kind, subject, source, model, cause, cause_position, since, until, detail, producer, at, position,
});

table!(SelectionTableRow in "selection_tables" by (hash) {
    hash, group_id, model, as_of, content, producer, position,
});

table!(SourceRow in "sources" by (source) {
    source, name, provider, base_url, base_url_revision, credential_revision, credential_fingerprint, models, groups,
    priority, weight, max_concurrent, requests_per_minute, multiplier_milli, allow_private, enabled, deleted, version,
    created_at, changed_at, position,
});

table!(GroupRow in "groups" by (group_id) {
    group_id, name, enabled, deleted, version, created_at, changed_at, position,
});

table!(KeyRow in "keys" by (key_id) {
    key_id, name, group_id, prefix, pepper, models, expires_at, enabled, deleted, version, created_at, changed_at,
    position,
});

table!(AbilityRow in "abilities" by (group_id, model, source) {
    group_id, model, source, upstream_model, priority, weight, enabled, has_credential, position,
});

table!(ConfigHistoryRow in "config_history" by (position) {
    position, event_id, entity, entity_id, version, change, changed, actor_kind, actor_id, actor_name, reason, at,
    state,
});
