//! Configuration: loads the rows that edits touch, folds, writes them back. A touched source's abilities are replaced.

use sqlx::postgres::PgConnection;
use waybill_domain::history::{
    AbilityRow, ConfigHistoryRow, ConfigRows, GroupRow, KeyRow, Placed, SourceRow, TouchedConfig,
};

use crate::StoreError;
use crate::column::Column;
use crate::table::Table;

/// Folds edits into their rows.
pub(super) async fn fold(connection: &mut PgConnection, edits: &[Placed]) -> Result<(), StoreError> {
    let mut touched = TouchedConfig::default();
    for placed in edits {
        touched.add(placed);
    }
    let mut rows = load(connection, &touched).await?;
    for placed in edits {
        rows.apply(placed)?;
    }
    let sources: Vec<&_> = rows.sources.values().collect();
    SourceRow::upsert(connection, &sources).await?;
    let groups: Vec<&_> = rows.groups.values().collect();
    GroupRow::upsert(connection, &groups).await?;
    let keys: Vec<&_> = rows.keys.values().collect();
    KeyRow::upsert(connection, &keys).await?;
    let history: Vec<&_> = rows.history.values().collect();
    ConfigHistoryRow::upsert(connection, &history).await?;
    let texts: Vec<String> = touched.sources.iter().map(Column::to_sql).collect();
    sqlx::query("delete from abilities where source = any($1)").bind(texts).execute(&mut *connection).await?;
    let abilities: Vec<&_> = rows.abilities.values().collect();
    AbilityRow::upsert(connection, &abilities).await?;
    Ok(())
}

async fn load(connection: &mut PgConnection, touched: &TouchedConfig) -> Result<ConfigRows, sqlx::Error> {
    let mut rows = ConfigRows::default();
    let sources: Vec<String> = touched.sources.iter().map(Column::to_sql).collect();
    let statement = SourceRow::select("where source = any($1)");
    for row in sqlx::query(statement).bind(&sources).fetch_all(&mut *connection).await? {
        let row = SourceRow::read(&row)?;
        rows.sources.insert(row.source, row);
    }
    let statement = AbilityRow::select("where source = any($1)");
    for row in sqlx::query(statement).bind(&sources).fetch_all(&mut *connection).await? {
        let row = AbilityRow::read(&row)?;
        rows.abilities.insert((row.group_id, row.model.clone(), row.source), row);
    }
    let groups: Vec<i64> = touched.groups.iter().map(Column::to_sql).collect();
    let statement = GroupRow::select("where group_id = any($1)");
    for row in sqlx::query(statement).bind(groups).fetch_all(&mut *connection).await? {
        let row = GroupRow::read(&row)?;
        rows.groups.insert(row.group_id, row);
    }
    let keys: Vec<i64> = touched.keys.iter().map(Column::to_sql).collect();
    let statement = KeyRow::select("where key_id = any($1)");
    for row in sqlx::query(statement).bind(keys).fetch_all(&mut *connection).await? {
        let row = KeyRow::read(&row)?;
        rows.keys.insert(row.key_id, row);
    }
    Ok(rows)
}
