//! Configuration as the read models hold it, and its history.

use sqlx::{Postgres, QueryBuilder};
use waybill_domain::history::{AbilityRow, ConfigHistoryRow, GroupRow, KeyRow, SourceRow};
use waybill_event::{ConfigPosition, GroupId, KeyId, Source};

use super::limit;
use crate::column::Column;
use crate::table::Table;
use crate::{ReadModel, StoreError};

/// Which edits. Filters that are `None` let everything through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigHistoryQuery {
    /// Of entities of this kind, e.g. `channel`.
    pub entity: Option<String>,
    /// Of the entity with this id.
    pub entity_id: Option<String>,
    /// Before this position in the order of the log: the last one of the page before.
    pub before: Option<ConfigPosition>,
    /// At most this many, see [`super::MAX_LIMIT`].
    pub limit: u32,
}

impl ReadModel {
    /// All sources, by kind and id; deleted ones only if asked for.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn sources(&self, with_deleted: bool) -> Result<Vec<SourceRow>, StoreError> {
        let mut rows: Vec<SourceRow> = self.rows("sources", "where $1 or not deleted", with_deleted).await?;
        rows.sort_by_key(|row| row.source);
        Ok(rows)
    }

    /// One source, also when it is deleted.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn source(&self, source: Source) -> Result<Option<SourceRow>, StoreError> {
        Ok(self.rows("a source", "where source = $1", source.to_sql()).await?.pop())
    }

    /// All groups, by id; deleted ones only if asked for.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn groups(&self, with_deleted: bool) -> Result<Vec<GroupRow>, StoreError> {
        self.rows("groups", "where $1 or not deleted order by group_id", with_deleted).await
    }

    /// All client keys, by id; deleted ones only if asked for.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn keys(&self, with_deleted: bool) -> Result<Vec<KeyRow>, StoreError> {
        self.rows("client keys", "where $1 or not deleted order by key_id", with_deleted).await
    }

    /// One client key, also when it is deleted.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn key(&self, id: KeyId) -> Result<Option<KeyRow>, StoreError> {
        Ok(self.rows("a client key", "where key_id = $1", id.to_sql()).await?.pop())
    }

    /// What can serve a group, or everything: by group, model, tier and source.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn abilities(&self, group: Option<GroupId>) -> Result<Vec<AbilityRow>, StoreError> {
        let rest = "where $1::bigint is null or group_id = $1 order by group_id, model, priority desc, source";
        self.rows("abilities", rest, group.to_sql()).await
    }

    /// Edits, newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn config_history(&self, query: &ConfigHistoryQuery) -> Result<Vec<ConfigHistoryRow>, StoreError> {
        let mut sql: QueryBuilder<Postgres> = QueryBuilder::new(ConfigHistoryRow::statements().select.as_str());
        let before = query.before.map_or(i64::MAX, |position| position.to_sql());
        sql.push(" where position < ").push_bind(before);
        if let Some(entity) = &query.entity {
            sql.push(" and entity = ").push_bind(entity.clone());
        }
        if let Some(id) = &query.entity_id {
            sql.push(" and entity_id = ").push_bind(id.clone());
        }
        sql.push(" order by position desc limit ").push_bind(limit(query.limit));
        self.reading("the history of edits", async |pool| {
            let rows = sql.build().fetch_all(pool).await?;
            rows.iter().map(ConfigHistoryRow::read).collect::<Result<Vec<_>, sqlx::Error>>()
        })
        .await
    }

    async fn rows<T: Table, V>(&self, what: &'static str, rest: &str, value: V) -> Result<Vec<T>, StoreError>
    where
        V: for<'q> sqlx::Encode<'q, Postgres> + sqlx::Type<Postgres> + Send + 'static,
    {
        self.reading(what, async |pool| {
            let rows = sqlx::query(T::select(rest)).bind(value).fetch_all(pool).await?;
            rows.iter().map(T::read).collect::<Result<Vec<_>, sqlx::Error>>()
        })
        .await
    }
}
