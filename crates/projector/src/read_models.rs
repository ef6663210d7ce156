//! The runner of the folds into Postgres.
//!
//! Each projection is folded by one process at a time. A lease gives liveness: somebody folds. The epoch in the store
//! gives safety: whoever took over last is the only one whose batches are taken, however long another one slept.

mod aging;
mod commit;
mod gather;
mod leader;
mod losses;
mod reader;
pub mod refold;
mod status;

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use parking_lot::Mutex;
use waybill_journal::Journal;
use waybill_read_model::{Projection, ReadModel, StoreError};

pub use gather::{Gathered, stream};
pub use losses::LossConfig;
pub use refold::{RefoldError, verify};
pub use status::{Counts, Status};

use gather::words;
use leader::{Ended, Leader};
use losses::Beating;

/// Between tries of what only somebody's doing can help.
const HELPLESS: Duration = Duration::from_secs(5);
/// Between tries of what may pass by itself.
const RETRY: Duration = Duration::from_millis(500);

/// Folds the log into the read models.
pub struct ReadModels {
    journal: Journal,
    store: ReadModel,
    losses: LossConfig,
    keep_days: Option<u32>,
    beating: Beating,
    config: Mutex<Status>,
    traffic: Mutex<Status>,
}

impl ReadModels {
    /// A runner that reads `journal` and writes `store`, and declares requests whose owners are lost as `losses` says.
    #[must_use]
    pub fn new(journal: Journal, store: ReadModel, losses: LossConfig) -> Self {
        let (config, traffic) = (Mutex::default(), Mutex::default());
        Self { journal, store, losses, keep_days: None, beating: Beating::default(), config, traffic }
    }

    /// The same, where rows of traffic are kept for so many days, and not for ever.
    #[must_use]
    pub fn keeping(self, days: u32) -> Self {
        Self { keep_days: Some(days), ..self }
    }

    /// How a projection is doing.
    #[must_use]
    pub fn status(&self, projection: Projection) -> Status {
        self.held(projection).lock().clone()
    }

    fn held(&self, projection: Projection) -> &Mutex<Status> {
        match projection {
            Projection::Config => &self.config,
            Projection::Traffic => &self.traffic,
        }
    }

    /// Folds a projection until `lost` completes, which the holder of its lease says, or until it can't go on: another
    /// process took over, an edit can't be read here, or the store refuses what this program asks of it. What hinders
    /// it stands in its status; where only somebody's doing helps, it ends after a pause, so that it can be called again
    /// and again.
    pub async fn fold(&self, projection: Projection, lost: impl Future<Output = ()>) {
        let mut lost = pin!(lost);
        let hopeless = tokio::select! {
            biased;
            () = &mut lost => false,
            hopeless = self.fold_on(projection) => hopeless,
        };
        self.held(projection).lock().leading = false;
        if hopeless {
            tokio::select! {
                biased;
                () = lost => {}
                () = tokio::time::sleep(HELPLESS) => {}
            }
        }
    }

    /// Folds until it can't go on; returns whether only somebody's doing helps.
    async fn fold_on(&self, projection: Projection) -> bool {
        let status = self.held(projection);
        let leader = loop {
            match self.begin(projection).await {
                Ok(leader) => break leader,
                Err(error) => {
                    let text = words(&error);
                    tracing::warn!(%projection, error = %text, "the fold can't begin");
                    status.lock().trouble = Some(text);
                    tokio::time::sleep(if error.may_pass() { RETRY } else { HELPLESS }).await;
                }
            }
        };
        match leader.lead().await {
            Ended::Fenced => {
                tracing::warn!(%projection, "another process folds now");
                false
            }
            Ended::Stopped(edit) => {
                tracing::error!(%projection, %edit, "the fold stands still");
                let mut status = status.lock();
                status.trouble = Some(edit.to_string());
                status.stopped_by = Some(edit);
                true
            }
            Ended::Failed(error) => {
                let text = words(&error);
                tracing::error!(%projection, error = %text, "the fold can't go on");
                status.lock().trouble = Some(text);
                true
            }
        }
    }

    async fn begin(&self, projection: Projection) -> Result<Leader<'_>, StoreError> {
        self.store.migrate().await?;
        let status = self.held(projection);
        let leader = Leader::take_over(projection, &self.journal, &self.store, status).await?;
        Ok(match projection {
            Projection::Traffic => leader.minding(&self.losses, &self.beating, self.keep_days),
            Projection::Config => leader,
        })
    }
}
