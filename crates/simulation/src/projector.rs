//! A projector process: the product's selector runner, and the traffic fold over rows in memory, each under its lease. It
//! can be frozen as a whole.

mod rows;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use waybill_journal::Journal;
use waybill_journal::lease::{LeaseConfig, lead};
use waybill_journal::presence::Report;
use waybill_projector::selector::{Config, Pace, Runner, Status};

use crate::bug::{Bug, Flawed};
use crate::chance::Chance;
use crate::ground::Ground;
use crate::process::Process;

pub use rows::{Folder, Store, refold};

/// A projector over its lives.
pub struct Projector {
    ground: Arc<Ground>,
    store: Arc<Store>,
    /// Its name.
    pub name: String,
    lives: u32,
    /// What it is now, if it lives.
    pub up: Option<Up>,
}

/// A living projector.
pub struct Up {
    /// The process.
    pub process: Process,
    runner: Arc<Runner>,
}

impl Projector {
    /// A projector that doesn't live yet.
    #[must_use]
    pub fn new(ground: &Arc<Ground>, store: &Arc<Store>, name: &str) -> Self {
        Self { ground: Arc::clone(ground), store: Arc::clone(store), name: name.to_owned(), lives: 0, up: None }
    }

    /// It begins to live.
    pub fn start(&mut self) {
        let folding = Arc::new(AtomicBool::new(false));
        let (leads, store) = (Arc::clone(&folding), Arc::clone(&self.store));
        // Whoever folds the rows tells how far they are.
        let report = move || Report {
            traffic_folded: leads.load(Ordering::Relaxed).then(|| store.with(|kept| kept.position)),
            ..Report::default()
        };
        let mut process = Process::start(&self.ground, &self.name, "projector", self.lives, report);
        let mut chance = Chance::of(self.ground.seed, &format!("pace {}.{}", self.name, self.lives));
        let journal = self.flawed(process.journal());
        let config = Config {
            producer: process.name.clone(),
            boot: process.boot,
            clock: process.clock_or_own(),
            pace: Pace {
                stale_after: Duration::from_secs(chance.among(1, 4)),
                checkpoint_every: Duration::from_millis(chance.among(200, 3_000)),
                ..Pace::default()
            },
        };
        let runner = Arc::new(Runner::new(journal.clone(), config));
        let folder = Arc::new(Folder {
            ground: Arc::clone(&self.ground),
            store: Arc::clone(&self.store),
            journal: journal.clone(),
            producer: process.name.clone(),
            clock: process.clock_or_own(),
            chance: parking_lot::Mutex::new(chance),
            folding,
        });
        let lease = LeaseConfig::new("traffic", process.name.clone(), process.boot);
        let (selecting, stop) = (Arc::clone(&runner), process.stop.clone());
        let running = async move {
            let stopping = stop.clone();
            let rows = lead(journal.keyed, lease, stop.clone(), move |lost: CancellationToken| {
                let (folder, stopping) = (Arc::clone(&folder), stopping.clone());
                async move { folder.fold(&lost, &stopping).await }
            });
            tokio::join!(Box::pin(selecting.run(&stop)), Box::pin(rows));
        };
        process.run(running);
        self.up = Some(Up { process, runner });
    }

    fn flawed(&self, journal: Journal) -> Journal {
        match self.ground.bug {
            Some(bug @ (Bug::OrdinalNotStored | Bug::EpochUnchecked | Bug::LateCounted | Bug::MarkerEarly)) => {
                let flawed = Flawed::over(journal, self.ground.memory.clone(), bug);
                Journal { log: Arc::new(flawed.clone()), keyed: Arc::new(flawed) }
            }
            Some(Bug::AckDropped | Bug::TornTailRead) | None => journal,
        }
    }

    /// It dies.
    pub fn die(&mut self) {
        if let Some(mut up) = self.up.take() {
            up.process.kill();
            self.lives += 1;
        }
    }

    /// It stops in order.
    pub async fn stop(&mut self) {
        if let Some(mut up) = self.up.take() {
            up.process.stop.cancel();
            up.process.ended().await;
            self.lives += 1;
        }
    }

    /// How its selector's fold is doing.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        self.up.as_ref().map(|up| up.runner.status())
    }
}
