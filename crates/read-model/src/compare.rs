//! Compares the tables with what a fold from scratch gives, row by row.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;
use sqlx::postgres::PgConnection;
use waybill_domain::history::{
    AbilityRow, AttemptRow, ConfigHistoryRow, ConfigRows, GroupRow, KeyRow, OutcomeRow, RequestRow, SelectionTableRow,
    SourceRow, TrafficRows, TransitionRow,
};

use crate::table::Table;
use crate::{ReadModel, StoreError};

/// What comparing found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Comparison {
    /// Rows that are the same.
    pub same: u64,
    /// Rows that differ, or stand on one side only.
    pub different: u64,
    /// The first of them.
    pub first: Option<Difference>,
}

/// A row that is not what the fold says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The table.
    pub table: &'static str,
    /// The row's key.
    pub key: String,
    /// What the fold says; of two rows only the fields that differ.
    pub folded: Option<String>,
    /// What the table holds; of two rows only the fields that differ.
    pub stored: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let none = "no such row";
        let folded = self.folded.as_deref().unwrap_or(none);
        let stored = self.stored.as_deref().unwrap_or(none);
        write!(f, "{} {}: the log says {folded}, the table holds {stored}", self.table, self.key)
    }
}

impl ReadModel {
    /// Compares the tables of traffic with the rows of a fold from scratch.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn compare_traffic(&self, rows: &TrafficRows) -> Result<Comparison, StoreError> {
        self.whole("comparing traffic", async {
            let held = &mut self.patient_connection().await?;
            let mut found = Comparison::default();
            found.add(&rows.requests, all(held, |row: &RequestRow| row.request_id).await?);
            found.add(&rows.attempts, all(held, |row: &AttemptRow| (row.request_id, row.attempt)).await?);
            found.add(
                &rows.outcomes,
                all(held, |row: &OutcomeRow| (row.request_id, row.source, row.upstream_model.clone())).await?,
            );
            found.add(&rows.transitions, all(held, |row: &TransitionRow| row.id.clone()).await?);
            found.add(&rows.selection_tables, all(held, |row: &SelectionTableRow| row.hash).await?);
            Ok::<_, sqlx::Error>(found)
        })
        .await
    }

    /// Compares the tables of configuration with the rows of a fold from scratch.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn compare_config(&self, rows: &ConfigRows) -> Result<Comparison, StoreError> {
        self.whole("comparing configuration", async {
            let held = &mut self.patient_connection().await?;
            let mut found = Comparison::default();
            found.add(&rows.sources, all(held, |row: &SourceRow| row.source).await?);
            found.add(&rows.groups, all(held, |row: &GroupRow| row.group_id).await?);
            found.add(&rows.keys, all(held, |row: &KeyRow| row.key_id).await?);
            let key = |row: &AbilityRow| (row.group_id, row.model.clone(), row.source);
            found.add(&rows.abilities, all(held, key).await?);
            found.add(&rows.history, all(held, |row: &ConfigHistoryRow| row.position).await?);
            Ok::<_, sqlx::Error>(found)
        })
        .await
    }
}

async fn all<K: Ord, T: Table>(
    connection: &mut PgConnection,
    key: impl Fn(&T) -> K,
) -> Result<BTreeMap<K, T>, sqlx::Error> {
    let found = sqlx::query(T::select("")).fetch_all(connection).await?;
    found.iter().map(|row| T::read(row).map(|row| (key(&row), row))).collect()
}

impl Comparison {
    fn add<K: Ord + fmt::Debug, T: Table + PartialEq + Serialize>(
        &mut self,
        folded: &BTreeMap<K, T>,
        mut stored: BTreeMap<K, T>,
    ) {
        for (key, row) in folded {
            match stored.remove(key) {
                Some(other) if other == *row => self.same += 1,
                Some(other) => {
                    let (folded, stored) = fields(row, &other);
                    self.differ::<T>(key, Some(folded), Some(stored));
                }
                None => self.differ::<T>(key, Some(text(row)), None),
            }
        }
        for (key, row) in stored {
            self.differ::<T>(&key, None, Some(text(&row)));
        }
    }

    fn differ<T: Table>(&mut self, key: &impl fmt::Debug, folded: Option<String>, stored: Option<String>) {
        self.different += 1;
        self.first.get_or_insert_with(|| Difference { table: T::NAME, key: format!("{key:?}"), folded, stored });
    }
}

fn text(row: &impl Serialize) -> String {
    serde_json::to_string(row).unwrap_or_default()
}

/// The fields of two rows that differ.
fn fields(folded: &impl Serialize, stored: &impl Serialize) -> (String, String) {
    let mut folded = serde_json::to_value(folded).unwrap_or_default();
    let mut stored = serde_json::to_value(stored).unwrap_or_default();
    if let (Value::Object(a), Value::Object(b)) = (&mut folded, &mut stored) {
        let same: Vec<String> = a.iter().filter(|(k, v)| b.get(*k) == Some(v)).map(|(k, _)| k.clone()).collect();
        for name in same {
            a.shift_remove(&name);
            b.shift_remove(&name);
        }
    }
    (folded.to_string(), stored.to_string())
}
