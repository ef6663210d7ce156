//! The runner of the selector's fold: one leader of the fleet folds the traffic stream with `domain`'s fold, writes each
//! source's value to the keyed state, and announces transitions.
//!
//! A lease makes that somebody leads; the epoch in the checkpoint and in every value makes that nobody else can write. Who
//! is refused by a higher epoch goes back to the lease.

mod announce;
mod schedule;
mod status;
mod takeover;
mod term;
mod write;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use waybill_event::{Boot, ProducerId};
use waybill_journal::Journal;
use waybill_journal::lease::{LeaseConfig, lead};
use waybill_journal::outbox::Clock;

pub use schedule::Pace;
pub use status::{Counts, Status};

use takeover::Lost;
use term::Term;

/// Between tries of what may pass by itself.
const RETRY: Duration = Duration::from_millis(500);

/// What is led, as the lease names it.
pub const LEASE: &str = "selector";

/// What a runner is built with.
#[derive(Clone)]
pub struct Config {
    /// Who announces, and asks for the lease.
    pub producer: ProducerId,
    /// In which of its starts.
    pub boot: Boot,
    /// The time of the log, for the markers that a leader writes.
    pub clock: Clock,
    /// How often values are written.
    pub pace: Pace,
}

/// The selector's runner.
pub struct Runner {
    journal: Journal,
    config: Config,
    status: Arc<Mutex<Status>>,
}

impl Runner {
    /// A runner that doesn't run yet.
    #[must_use]
    pub fn new(journal: Journal, config: Config) -> Self {
        Self { journal, config, status: Arc::default() }
    }

    /// How the fold is doing, as seen from here.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.lock().clone()
    }

    /// Leads whenever the lease is to be had, until `stop`.
    pub async fn run(&self, stop: &CancellationToken) {
        let lease = LeaseConfig::new(LEASE, self.config.producer.clone(), self.config.boot);
        let keyed = Arc::clone(&self.journal.keyed);
        let work = |lost: CancellationToken| async move { self.fold(lost.cancelled(), stop).await };
        Box::pin(lead(keyed, lease, stop.clone(), work)).await;
    }

    /// Folds until `lost` completes (the lease is another's: nothing more is written), until `stop` (what isn't written
    /// yet is written first, as far as there is time), or until another one has taken over. What hinders it stands in
    /// its status.
    pub async fn fold(&self, lost: impl Future<Output = ()>, stop: &CancellationToken) {
        tokio::select! {
            biased;
            () = lost => {}
            () = self.fold_on(stop) => {}
        }
        self.status.lock().leading = false;
    }

    async fn fold_on(&self, stop: &CancellationToken) {
        loop {
            match Box::pin(self.lead(stop)).await {
                Ok(()) => return,
                Err(Lost::Deposed { epoch }) => {
                    tracing::info!(epoch, "another one folds the selector");
                    return;
                }
                Err(error) => {
                    let text = chain(&error);
                    tracing::warn!(error = text, "the selector's fold begins again");
                    self.status.lock().trouble = Some(text);
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    async fn lead(&self, stop: &CancellationToken) -> Result<(), Lost> {
        let mut term = Box::pin(Term::begin(&self.journal, &self.config, &self.status)).await?;
        Box::pin(term.run(stop)).await?;
        Box::pin(term.flush()).await
    }
}

/// An error with what caused it.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
