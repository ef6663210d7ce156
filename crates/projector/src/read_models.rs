//! The runner of the folds into Postgres.
//!
//! Each projection is folded by one process at a time. A lease gives liveness: somebody folds. The epoch in the store
//! gives safety: whoever took over last is the only one whose batches are taken, however long another one slept.

mod gather;
mod leader;
pub mod refold;
mod status;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use waybill_event::{Boot, ProducerId};
use waybill_journal::Journal;
use waybill_journal::lease::{LeaseConfig, lead};
use waybill_read_model::{Projection, ReadModel, StoreError};

pub use gather::stream;
pub use refold::{RefoldError, verify};
pub use status::{Counts, Status};

use gather::words;
use leader::{Ended, Leader};

/// Between tries of what only somebody's doing can help.
const HELPLESS: Duration = Duration::from_secs(5);
/// Between tries of what may pass by itself.
const RETRY: Duration = Duration::from_millis(500);

/// How a turn of folding ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Folding {
    /// It was told to end.
    Lost,
    /// Another process folds now.
    Fenced,
    /// It can't go on without somebody's doing: an edit can't be read here, or the store refuses what this program asks.
    Helpless,
}

/// Folds the log into the read models.
pub struct ReadModels {
    journal: Journal,
    store: ReadModel,
    config: Mutex<Status>,
    traffic: Mutex<Status>,
}

impl ReadModels {
    /// A runner that reads `journal` and writes `store`.
    #[must_use]
    pub fn new(journal: Journal, store: ReadModel) -> Self {
        Self { journal, store, config: Mutex::default(), traffic: Mutex::default() }
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

    /// Folds a projection whenever the lease says that it is this process that does, until `stop` is cancelled. The
    /// lease is held in the name of `holder` in its start `boot`.
    pub async fn run(&self, projection: Projection, holder: ProducerId, boot: Boot, stop: CancellationToken) {
        let lease = LeaseConfig::new(format!("read_models_{projection}"), holder, boot);
        while !stop.is_cancelled() {
            // Ends the turn at the lease too, where going on needs somebody's doing.
            let turn = stop.child_token();
            let work = |lost: CancellationToken| {
                let turn = turn.clone();
                async move {
                    let ended = async {
                        tokio::select! {
                            () = lost.cancelled() => {}
                            () = turn.cancelled() => {}
                        }
                    };
                    if self.fold(projection, ended).await == Folding::Helpless {
                        turn.cancel();
                    }
                }
            };
            lead(Arc::clone(&self.journal.keyed), lease.clone(), turn.clone(), work).await;
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(HELPLESS) => {}
            }
        }
    }

    /// Folds a projection, without asking for a lease, until `lost` completes or it can't go on. What hinders it stands
    /// in its status.
    pub async fn fold(&self, projection: Projection, lost: impl Future<Output = ()>) -> Folding {
        let folding = tokio::select! {
            () = lost => Folding::Lost,
            folding = self.fold_on(projection) => folding,
        };
        self.held(projection).lock().leading = false;
        folding
    }

    async fn fold_on(&self, projection: Projection) -> Folding {
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
                Folding::Fenced
            }
            Ended::Stopped(edit) => {
                tracing::error!(%projection, %edit, "the fold stands still");
                let mut status = status.lock();
                status.trouble = Some(edit.to_string());
                status.stopped_by = Some(edit);
                Folding::Helpless
            }
            Ended::Failed(error) => {
                let text = words(&error);
                tracing::error!(%projection, error = %text, "the fold can't go on");
                status.lock().trouble = Some(text);
                Folding::Helpless
            }
        }
    }

    async fn begin(&self, projection: Projection) -> Result<Leader<'_>, StoreError> {
        self.store.migrate().await?;
        Leader::take_over(projection, &self.journal, &self.store, self.held(projection)).await
    }
}
