//! The connection to Postgres.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _};
use waybill_domain::history::Day;

use crate::StoreError;

/// How long each kind of call may take.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// To get a connection.
    pub connect: Duration,
    /// A query.
    pub read: Duration,
    /// A batch of a fold.
    pub write: Duration,
    /// How long a transaction may lie idle before Postgres ends it, so that a writer that was stopped in the middle of a
    /// batch doesn't keep its successor from taking over.
    pub idle: Duration,
    /// Bringing the schema up to date, comparing all rows.
    pub whole: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            read: Duration::from_secs(5),
            write: Duration::from_secs(15),
            idle: Duration::from_secs(5),
            whole: Duration::from_secs(600),
        }
    }
}

/// The read models' store. Clones share its connections.
#[derive(Clone)]
pub struct ReadModel {
    pool: PgPool,
    deadlines: Deadlines,
    /// Days that are known to have partitions, so that each is made once.
    pub(crate) days: Arc<Mutex<BTreeSet<Day>>>,
}

impl fmt::Debug for ReadModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadModel").field("deadlines", &self.deadlines).finish_non_exhaustive()
    }
}

impl ReadModel {
    /// A store at `url` (`postgres://user:password@host:port/database`). It is reached when it is first asked, so that
    /// this works while Postgres is away. At most `connections` are held.
    ///
    /// # Errors
    /// [`StoreError::Address`].
    pub fn connect(url: &str, connections: u32, deadlines: Deadlines) -> Result<Self, StoreError> {
        // Postgres ends by itself what we have stopped waiting for.
        let statement = deadlines.write.max(deadlines.read).as_millis().to_string();
        let idle = deadlines.idle.as_millis().to_string();
        let options = PgConnectOptions::from_str(url)
            .map_err(StoreError::Address)?
            .application_name("waybill")
            .options([("statement_timeout", statement), ("idle_in_transaction_session_timeout", idle)])
            .disable_statement_logging();
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(deadlines.connect)
            .idle_timeout(Duration::from_secs(60))
            .connect_lazy_with(options);
        Ok(Self { pool, deadlines, days: Arc::default() })
    }

    /// Brings the schema up to date.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let mut migrations: Migrator = sqlx::migrate!("../../migrations");
        // A newer program may have gone further already; what this one knows of the schema stays true.
        migrations.set_ignore_missing(true);
        self.whole("bringing the schema up to date", async {
            let mut connection = self.patient_connection().await?;
            match migrations.run_direct(None, &mut connection, false).await {
                Ok(()) => Ok(()),
                Err(MigrateError::Execute(error)) => Err(error.into()),
                Err(error) => Err(StoreError::Migrate(error)),
            }
        })
        .await
    }

    /// Asks Postgres whether it is there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.reading("a sign of life", async |pool| sqlx::query("select 1").execute(pool).await.map(|_| ())).await
    }

    /// Closes all connections.
    pub async fn close(&self) {
        let _ = tokio::time::timeout(self.deadlines.connect, self.pool.close()).await;
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Runs a query within the deadline of queries.
    pub(crate) async fn reading<T, E: Into<StoreError>>(
        &self,
        what: &'static str,
        query: impl AsyncFnOnce(&PgPool) -> Result<T, E>,
    ) -> Result<T, StoreError> {
        within(self.deadlines.read, what, query(&self.pool)).await
    }

    /// Runs a batch within its deadline.
    pub(crate) async fn writing<T, E: Into<StoreError>>(
        &self,
        what: &'static str,
        batch: impl Future<Output = Result<T, E>>,
    ) -> Result<T, StoreError> {
        within(self.deadlines.write, what, batch).await
    }

    /// Runs something that looks at all rows within its deadline; see [`ReadModel::patient_connection`].
    pub(crate) async fn whole<T, E: Into<StoreError>>(
        &self,
        what: &'static str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, StoreError> {
        within(self.deadlines.whole, what, work).await
    }

    /// A connection taken out of the pool, on which statements may take as long as what looks at all rows.
    pub(crate) async fn patient_connection(&self) -> Result<PgConnection, sqlx::Error> {
        let mut connection = self.pool.acquire().await?.detach();
        let limit = format!("set statement_timeout = {}", self.deadlines.whole.as_millis());
        sqlx::query(AssertSqlSafe(limit)).execute(&mut connection).await?;
        Ok(connection)
    }
}

async fn within<T, E: Into<StoreError>>(
    deadline: Duration,
    what: &'static str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(deadline, work).await {
        Ok(done) => done.map_err(Into::into),
        Err(_) => Err(StoreError::Deadline { what, deadline }),
    }
}
