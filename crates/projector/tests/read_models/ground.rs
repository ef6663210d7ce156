//! What the tests stand on: a Postgres of their own, a log in memory, runners that are ended.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret as _;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_domain::loss::ABSENCE;
use waybill_event::{Boot, LogTime};
use waybill_journal::lease::{LeaseConfig, lead};
use waybill_journal::memory::Memory;
use waybill_journal::{Expect, Journal, Record, Stream};
use waybill_projector::read_models::{LossConfig, ReadModels, Status, stream, verify};
use waybill_read_model::{Deadlines, Projection, ReadModel};
use waybill_services::{Finder, Launcher, Postgres, PostgresConfig};

/// How long anything may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Ground {
    pub(crate) journal: Journal,
    pub(crate) memory: Memory,
    pub(crate) store: ReadModel,
    pub(crate) postgres: Postgres,
    /// How long a boot may be silent before its open requests are given up.
    pub(crate) absence: Duration,
    /// Days of traffic that are kept.
    pub(crate) keep_days: Option<u32>,
    _dir: TempDir,
}

pub(crate) fn start_of_time() -> LogTime {
    "2026-11-29T23:59:30Z".parse().unwrap()
}

impl Ground {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = PostgresConfig { durable: false, max_connections: 20, ..PostgresConfig::new(dir.path()) };
        let postgres = Postgres::start(&Launcher::UtilLinux, &Finder::new(dir.path()), config).await.unwrap();
        let deadlines = Deadlines { connect: Duration::from_secs(3), ..Deadlines::default() };
        let store = ReadModel::connect(postgres.url().expose_secret(), 5, deadlines).unwrap();
        let memory = Memory::started_at(start_of_time());
        Self { journal: memory.journal(), memory, store, postgres, absence: ABSENCE, keep_days: None, _dir: dir }
    }

    pub(crate) async fn append(&self, stream: Stream, subject: &str, payload: Vec<u8>) -> u64 {
        let record = Record { subject: subject.to_owned(), message_id: None, payload: payload.into() };
        self.journal.log.append(stream, record, Expect::Anything).await.unwrap().sequence
    }

    pub(crate) async fn traffic(&self, payload: Vec<u8>) -> u64 {
        self.append(Stream::Traffic, "wb.traffic.0.proxy", payload).await
    }

    pub(crate) async fn end(&self, projection: Projection) -> u64 {
        self.journal.log.bounds(stream(projection)).await.unwrap().last
    }

    fn models(&self) -> Arc<ReadModels> {
        let memory = self.memory.clone();
        let clock = Arc::new(move || memory.now());
        let losses = LossConfig {
            absence: self.absence,
            look_every: Duration::from_millis(50),
            ..LossConfig::new("projector-1".parse().unwrap(), clock)
        };
        let models = ReadModels::new(self.journal.clone(), self.store.clone(), losses);
        Arc::new(match self.keep_days {
            Some(days) => models.keeping(days),
            None => models,
        })
    }

    /// A runner that doesn't ask whether it may.
    pub(crate) fn runner(&self) -> Running {
        Running::start(self.models(), |models, projection, stop| async move {
            models.fold(projection, stop.cancelled()).await;
        })
    }

    /// Two processes as they run in production: one of them holds the lease.
    pub(crate) fn fleet(&self) -> Vec<Running> {
        let led = |holder: &'static str| {
            let keyed = Arc::clone(&self.journal.keyed);
            Running::start(self.models(), move |models, projection, stop| {
                let boot = Boot::new(start_of_time(), 1);
                let lease = LeaseConfig::new(projection.as_str(), holder.parse().unwrap(), boot);
                let stopping = stop.clone();
                lead(Arc::clone(&keyed), lease, stop, move |lost| {
                    let (models, stopping) = (Arc::clone(&models), stopping.clone());
                    async move {
                        tokio::select! {
                            () = models.fold(projection, lost.cancelled()) => {}
                            () = stopping.cancelled() => {}
                        }
                    }
                })
            })
        };
        vec![led("projector-1"), led("projector-2")]
    }

    /// Waits until `runner` has folded everything and nobody's requests are open; returns where the log ends then.
    pub(crate) async fn settled(&self, runner: &Running) -> u64 {
        loop {
            let end = self.end(Projection::Traffic).await;
            runner.caught_up(Projection::Traffic, end).await;
            let open = self.store.owners_of_open_requests(1).await.unwrap();
            if open.is_empty() && self.end(Projection::Traffic).await == end {
                return end;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The tables hold what a fold from scratch gives; returns how many rows that is.
    pub(crate) async fn assert_verified(&self, projection: Projection, upto: u64) -> u64 {
        let found = verify(&*self.journal.log, &self.store, projection, upto).await.unwrap();
        let first = found.first.map(|difference| difference.to_string());
        assert_eq!((found.different, first), (0, None));
        found.same
    }

    pub(crate) async fn finish(self) {
        self.store.close().await;
        self.postgres.destroy().await.unwrap();
    }
}

/// A runner of both projections that goes on until it is ended.
pub(crate) struct Running {
    pub(crate) models: Arc<ReadModels>,
    token: CancellationToken,
    tasks: TaskTracker,
}

impl Running {
    fn start<W: Future<Output = ()> + Send + 'static>(
        models: Arc<ReadModels>,
        work: impl Fn(Arc<ReadModels>, Projection, CancellationToken) -> W,
    ) -> Self {
        let (token, tasks) = (CancellationToken::new(), TaskTracker::new());
        for projection in Projection::ALL {
            tasks.spawn(work(Arc::clone(&models), projection, token.clone()));
        }
        tasks.close();
        Self { models, token, tasks }
    }

    pub(crate) fn status(&self, projection: Projection) -> Status {
        self.models.status(projection)
    }

    pub(crate) async fn wait_for(&self, projection: Projection, what: &str, holds: impl Fn(&Status) -> bool) {
        wait_until(what, || holds(&self.status(projection)), || format!("{:?}", self.status(projection))).await;
    }

    pub(crate) async fn caught_up(&self, projection: Projection, position: u64) {
        self.wait_for(projection, "being caught up", |status| status.position >= position).await;
    }

    /// Ends it at once, wherever it is, as a kill would.
    pub(crate) async fn end(self) {
        self.token.cancel();
        tokio::time::timeout(PATIENCE, self.tasks.wait()).await.unwrap();
    }
}

pub(crate) async fn wait_until(what: &str, holds: impl Fn() -> bool, tell: impl Fn() -> String) {
    let end = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(tokio::time::Instant::now() < end, "waited in vain for {what}: {}", tell());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
