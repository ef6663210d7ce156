//! Partitions of the traffic tables: one a day, made when the day's first row comes, dropped when the day is old.

use std::collections::BTreeSet;

use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPool;
use waybill_domain::history::{Day, RequestState};
use waybill_event::LogTime;

use crate::column::Column;
use crate::error::passes;
use crate::{Checkpoint, Projection, ReadModel, StoreError};

const TABLES: [&str; 3] = ["requests", "attempts", "outcomes"];

/// Days further than this from the log's own time get no partition of their own: a foreign request id may name any day,
/// and the default partition takes it.
const REACH_DAYS: i32 = 60;

/// How long a drop waits for those who read: it holds everybody up meanwhile. Less than the second after which Postgres
/// looks for deadlocks, so that the drop gives way and not a reader.
const PATIENCE_MS: u32 = 500;
/// Days dropped in one go.
const AT_ONCE: usize = 16;

/// What became of old days.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dropped {
    /// Days whose rows are gone.
    pub days: Vec<Day>,
    /// Days that stay for now, since requests of theirs are open.
    pub open: Vec<Day>,
}

impl ReadModel {
    /// Drops the partitions of days before `first`, the oldest first, at most 16 in one go; never one in which a request
    /// is open. What days' partitions don't hold, the default partitions keep.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when another one folds traffic by now; otherwise as the store reports. What was dropped
    /// before stays dropped.
    pub async fn drop_days_before(&self, first: Day, leader: &Checkpoint) -> Result<Dropped, StoreError> {
        let old = self.reading("old days", async |pool| days_with_partitions(pool).await).await?;
        let mut dropped = Dropped::default();
        for day in old.range(..first).take(AT_ONCE) {
            let gone = self.writing("dropping a day", self.drop_day(*day, leader)).await?;
            if gone {
                self.days.lock().remove(day);
                dropped.days.push(*day);
            } else {
                dropped.open.push(*day);
            }
        }
        Ok(dropped)
    }

    /// Drops a day's partitions, unless a request of that day is open.
    async fn drop_day(&self, day: Day, leader: &Checkpoint) -> Result<bool, StoreError> {
        let mut transaction = self.pool().begin().await?;
        let patience = format!("set local lock_timeout = {PATIENCE_MS}");
        sqlx::query(AssertSqlSafe(patience)).persistent(false).execute(&mut *transaction).await?;
        // Held until the end: no batch of the fold comes between the look and the drop.
        let leads = sqlx::query("select from checkpoints where projection = $1 and epoch = $2 for update")
            .bind(Projection::Traffic.as_str())
            .bind(leader.epoch.to_sql())
            .fetch_optional(&mut *transaction)
            .await?;
        if leads.is_none() {
            let Checkpoint { epoch, position, .. } = *leader;
            return Err(StoreError::Fenced { projection: Projection::Traffic, epoch, position });
        }
        let open: bool = sqlx::query_scalar("select exists (select from requests where day = $1 and state = $2)")
            .bind(day.to_sql())
            .bind(RequestState::Open.to_sql())
            .fetch_one(&mut *transaction)
            .await?;
        if open {
            transaction.rollback().await?;
            return Ok(false);
        }
        for table in TABLES {
            // The name is made of a number.
            let statement = format!("drop table if exists {}", partition(table, day));
            sqlx::query(AssertSqlSafe(statement)).persistent(false).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Makes the partitions of days that have none yet. Outside of any transaction, one table after the other: making one
    /// waits for everybody who reads that table, and a reader waits for it, so that whoever held one table while waiting
    /// for another would lock both of them up.
    ///
    /// # Errors
    /// The store is out of reach, or a table was being read for too long: nothing says that the day can have no partition.
    pub(crate) async fn make_days(&self, days: BTreeSet<Day>, stored_at: LogTime) -> Result<(), sqlx::Error> {
        let today = Day::of(stored_at).0;
        for day in days {
            if day.0.abs_diff(today) > REACH_DAYS.unsigned_abs() || self.days.lock().contains(&day) {
                continue;
            }
            match make(self.pool(), day).await {
                Ok(()) => self.day_is_there(day),
                Err(error) if error.as_database_error().is_none() || passes(&error) => return Err(error),
                // The default partition holds rows of that day already, or the day can't be told: it takes these too.
                Err(error) => tracing::warn!(%day, %error, "a day's partition could not be made"),
            }
        }
        Ok(())
    }

    /// Remembers that a day has its partitions.
    fn day_is_there(&self, day: Day) {
        let mut known = self.days.lock();
        known.insert(day);
        while known.len() > 1_000 {
            known.pop_first();
        }
    }
}

async fn make(pool: &PgPool, day: Day) -> Result<(), sqlx::Error> {
    for table in TABLES {
        let name = partition(table, day);
        let next = day.next();
        let there: bool = sqlx::query_scalar("select to_regclass($1) is not null").bind(&name).fetch_one(pool).await?;
        if there {
            continue;
        }
        // Days are numbers; nothing of a client's making is in this statement.
        let statement =
            format!("create table if not exists {name} partition of {table} for values from ('{day}') to ('{next}')");
        sqlx::query(AssertSqlSafe(statement)).persistent(false).execute(pool).await?;
    }
    Ok(())
}

fn partition(table: &str, day: Day) -> String {
    format!("{table}_{}", day.to_string().replace('-', "_"))
}

/// Days of which any traffic table has a partition.
async fn days_with_partitions(pool: &PgPool) -> Result<BTreeSet<Day>, sqlx::Error> {
    let names: Vec<String> = sqlx::query_scalar(
        "select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
         where i.inhparent = any($1::regclass[])",
    )
    .bind(TABLES.map(str::to_owned).to_vec())
    .fetch_all(pool)
    .await?;
    Ok(names.iter().filter_map(|name| day_of(name)).collect())
}

/// The day that a partition is named by; none of the default ones.
fn day_of(name: &str) -> Option<Day> {
    let (_, day) = TABLES.iter().find_map(|table| name.strip_prefix(table)?.split_once('_'))?;
    let start: LogTime = format!("{}T00:00:00Z", day.replace('_', "-")).parse().ok()?;
    Some(Day::of(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_known_by_its_name() {
        for table in TABLES {
            for day in [Day(0), Day(20_000), Day(20_786)] {
                assert_eq!(day_of(&partition(table, day)), Some(day));
            }
            assert_eq!(day_of(&format!("{table}_default")), None);
        }
        assert_eq!(day_of("transitions_2026_11_30"), None);
    }
}
