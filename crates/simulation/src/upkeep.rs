//! The upkeep process: the product's own, with the upstreams in the place of the network.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use waybill_journal::outbox::Outbox;
use waybill_journal::presence::Report;
use waybill_upkeep::{Parts, Retention, RetentionConfig, Rhythm, Upkeep};
use waybill_upstream::Dispatcher;

use crate::ground::Ground;
use crate::process::Process;
use crate::proxy::{copy, outbox};
use crate::secrets;
use crate::upstream::{Calls, Shared, Upstreams, Wire};

/// Upkeep over its lives.
pub struct Upkeeper {
    ground: Arc<Ground>,
    upstreams: Arc<Upstreams>,
    calls: Arc<Calls>,
    root: PathBuf,
    lives: u32,
    /// What it is now, if it lives.
    pub up: Option<Up>,
}

/// Living upkeep.
pub struct Up {
    /// The process.
    pub process: Process,
    /// Its outbox.
    pub outbox: Outbox,
    publishing: CancellationToken,
}

impl Upkeeper {
    /// Upkeep that doesn't live yet.
    #[must_use]
    pub fn new(ground: &Arc<Ground>, upstreams: &Arc<Upstreams>, calls: &Arc<Calls>, root: &Path) -> Self {
        Self {
            ground: Arc::clone(ground),
            upstreams: Arc::clone(upstreams),
            calls: Arc::clone(calls),
            root: root.to_owned(),
            lives: 0,
            up: None,
        }
    }

    fn dir(&self) -> PathBuf {
        self.root.join(format!("upkeep-1.{}", self.lives))
    }

    /// It begins to live.
    pub fn start(&mut self) {
        let mut process = Process::start(&self.ground, "upkeep-1", "upkeep", self.lives, Report::default);
        let (outbox, publisher) = outbox(&mut process, &self.dir(), "wb.traffic.0.upkeep");
        let journal = process.journal();
        let publishing = CancellationToken::new();
        let publish = publisher.run(Arc::clone(&journal.log), publishing.clone());
        process.run(async move {
            publish.await;
        });
        let wire = Wire::new(&self.ground, &self.upstreams, &self.calls, "upkeep-1");
        let every = Duration::from_millis(500);
        let config = RetentionConfig { every, when_urgent: every / 5, ..RetentionConfig::default() };
        let retention = Retention::new(journal.clone(), config);
        let keeps = self.ground.setting.traffic_bytes > 0;
        let upkeep = Upkeep::new(Parts {
            journal,
            outbox: outbox.clone(),
            clock: process.clock_or_own(),
            vault: secrets::vault(),
            dispatcher: Dispatcher::within(Arc::new(Shared(wire))),
            rhythm: Rhythm { first: Duration::from_secs(2), longest: Duration::from_secs(8), ..Rhythm::default() },
        });
        let stop = process.stop.clone();
        process.run(async move { upkeep.run(stop).await });
        if keeps {
            let stop = process.stop.clone();
            process.run(async move { retention.run(stop).await });
        }
        self.up = Some(Up { process, outbox, publishing });
    }

    /// It dies.
    pub fn die(&mut self) {
        if let Some(mut up) = self.up.take() {
            up.process.kill();
            up.publishing.cancel();
            self.rest();
        }
    }

    /// It stops in order.
    pub async fn stop(&mut self) {
        if let Some(mut up) = self.up.take() {
            up.process.stop.cancel();
            let closed = up.outbox.close(Duration::from_secs(30)).await;
            if !closed.drained {
                self.ground.violated("an outbox isn't drained at a stop", &format!("upkeep-1: {closed:?}"));
            }
            up.publishing.cancel();
            up.process.ended().await;
            self.rest();
        }
    }

    fn rest(&mut self) {
        let left = self.dir();
        self.lives += 1;
        copy(&left, &self.dir());
    }
}
