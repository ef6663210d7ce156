//! Partitions of the traffic tables: one a day, made when the day's first row comes.

use std::collections::BTreeSet;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};
use waybill_domain::history::Day;
use waybill_event::LogTime;

use crate::ReadModel;

const TABLES: [&str; 3] = ["requests", "attempts", "outcomes"];

/// Days further than this from the log's own time get no partition of their own: a foreign request id may name any day,
/// and the default partition takes it.
const REACH_DAYS: i32 = 60;

impl ReadModel {
    /// Makes the partitions of days that have none yet, and returns the days that have one now. Within the caller's
    /// transaction: call [`ReadModel::days_are_there`] once it is committed.
    pub(crate) async fn make_days(
        &self,
        connection: &mut PgConnection,
        days: BTreeSet<Day>,
        stored_at: LogTime,
    ) -> Result<BTreeSet<Day>, sqlx::Error> {
        let today = Day::of(stored_at).0;
        let mut made = BTreeSet::new();
        for day in days {
            if day.0.abs_diff(today) > REACH_DAYS.unsigned_abs() || self.days.lock().contains(&day) {
                continue;
            }
            let mut savepoint = connection.begin().await?;
            match make(&mut savepoint, day).await {
                Ok(()) => {
                    savepoint.commit().await?;
                    made.insert(day);
                }
                Err(error) => {
                    savepoint.rollback().await?;
                    if error.as_database_error().is_none() {
                        return Err(error);
                    }
                    // The default partition holds rows of that day already, or the day can't be told: it takes these too.
                    tracing::warn!(%day, %error, "a day's partition could not be made");
                }
            }
        }
        Ok(made)
    }

    /// Remembers that these days have partitions.
    pub(crate) fn days_are_there(&self, days: BTreeSet<Day>) {
        let mut known = self.days.lock();
        known.extend(days);
        while known.len() > 1_000 {
            known.pop_first();
        }
    }
}

async fn make(connection: &mut PgConnection, day: Day) -> Result<(), sqlx::Error> {
    for table in TABLES {
        let name = day.to_string().replace('-', "_");
        let next = day.next();
        let there: bool = sqlx::query_scalar("select to_regclass($1) is not null")
            .bind(format!("{table}_{name}"))
            .fetch_one(&mut *connection)
            .await?;
        if there {
            continue;
        }
        // Days are numbers; nothing of a client's making is in this statement.
        let statement = format!(
            "create table if not exists {table}_{name} partition of {table} for values from ('{day}') to ('{next}')"
        );
        sqlx::query(AssertSqlSafe(statement)).persistent(false).execute(&mut *connection).await?;
    }
    Ok(())
}
