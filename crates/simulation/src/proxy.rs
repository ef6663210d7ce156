//! A replica of the data plane: the product's own, from the router to the outbox's file, with the upstreams in the place
//! of the network.

mod damage;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use waybill_event::Boot;
use waybill_journal::log::Log;
use waybill_journal::outbox::{BatchLimits, Outbox, OutboxConfig, Publisher};
use waybill_journal::permits::{self, Permits};
use waybill_journal::presence::Report;
use waybill_journal::spending::Spending;
use waybill_journal::sticky::Bindings;
use waybill_proxy::gates::Gates;
use waybill_proxy::probes::Probes;
use waybill_proxy::tokens::Tokens;
use waybill_proxy::{Limits, Parts, Replica, follow, router};
use waybill_upstream::Dispatcher;

use crate::bug::{Bug, Hasty};
use crate::chance::Chance;
use crate::client::{self, Asked, End, Seen, Watched};
use crate::ground::Ground;
use crate::process::Process;
use crate::secrets;
use crate::upstream::{Calls, Shared, Upstreams, Wire};

pub use damage::copy;

/// Time the log gets at a clean stop.
const FLUSH: Duration = Duration::from_secs(30);

/// What a replica dies of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// kill -9.
    Killed,
    /// kill -9 within a write: the beginning of a record stays behind.
    Torn,
    /// The machine lost its power: some of what wasn't acknowledged is gone.
    Power,
}

/// A replica over its lives.
pub struct Proxy {
    ground: Arc<Ground>,
    upstreams: Arc<Upstreams>,
    calls: Arc<Calls>,
    /// Its name.
    pub name: String,
    root: PathBuf,
    lives: u32,
    chance: Chance,
    /// What it is now, if it lives.
    pub up: Option<Up>,
    /// Its lives that lost their end.
    pub lossy: Vec<Boot>,
    /// Everything that its clients saw.
    pub seen: Vec<Watched>,
}

/// A living replica.
pub struct Up {
    /// The process.
    pub process: Process,
    /// The replica.
    pub replica: Arc<Replica>,
    /// Its outbox.
    pub outbox: Outbox,
    router: Router,
    publishing: CancellationToken,
    /// Requests under way.
    clients: JoinSet<()>,
}

/// The outbox of a process.
pub fn outbox(process: &mut Process, dir: &Path, subject: &str) -> (Outbox, Publisher) {
    let usual = BatchLimits::default();
    // A message is small beside the stream, as it is where streams are large.
    let bytes = if process.ground.setting.traffic_bytes > 0 { 8 << 10 } else { usual.bytes };
    let config = OutboxConfig {
        max_bytes: process.ground.setting.outbox_bytes,
        finish_reserve_bytes: process.ground.setting.finish_reserve_bytes,
        batch: BatchLimits { bytes, ..usual },
        segment_bytes: 32 << 10,
        memory_bytes: 8 << 10,
        dice: process.dice(),
        ..OutboxConfig::new(dir, process.name.clone(), subject, process.clock_or_own())
    };
    Outbox::open(config, process.boot).unwrap()
}

impl Proxy {
    /// A replica that doesn't live yet.
    #[must_use]
    pub fn new(ground: &Arc<Ground>, upstreams: &Arc<Upstreams>, calls: &Arc<Calls>, name: &str, root: &Path) -> Self {
        Self {
            ground: Arc::clone(ground),
            upstreams: Arc::clone(upstreams),
            calls: Arc::clone(calls),
            name: name.to_owned(),
            root: root.to_owned(),
            lives: 0,
            chance: Chance::of(ground.seed, &format!("{name} dies")),
            up: None,
            lossy: Vec::new(),
            seen: Vec::new(),
        }
    }

    fn dir(&self) -> PathBuf {
        self.root.join(format!("{}.{}", self.name, self.lives))
    }

    /// It begins to live.
    pub fn start(&mut self) {
        let serving = Arc::new(OnceLock::<Arc<Replica>>::new());
        let reporting = Arc::clone(&serving);
        let report = move || {
            let busy = reporting.get().map(|replica| replica.views().busy()).unwrap_or_default();
            Report { busy, ..Report::default() }
        };
        let mut process = Process::start(&self.ground, &self.name, "proxy", self.lives, report);
        let (outbox, publisher) = outbox(&mut process, &self.dir(), "wb.traffic.0.proxy");
        let journal = process.journal();
        let publishing = CancellationToken::new();
        let log: Arc<dyn Log> = if self.ground.has(Bug::AckDropped) {
            Arc::new(Hasty::over(Arc::clone(&journal.log), process.tracker.clone()))
        } else {
            Arc::clone(&journal.log)
        };
        let publish = publisher.run(log, publishing.clone());
        process.run(async move {
            publish.await;
        });
        let wire = Wire::new(&self.ground, &self.upstreams, &self.calls, &self.name);
        let permits = Permits::start(
            journal.keyed.clone(),
            &process.name,
            process.boot,
            Arc::new(|| 1),
            &process.tracker,
            &process.stop,
            permits::Settings::default(),
        );
        let probes = Probes::start(&journal, &process.name, process.boot, &process.tracker, &process.stop);
        let tokens = Tokens::new(&journal, process.name.clone(), process.tracker.clone());
        let clock = process.clock.clone();
        let spending = Spending::start(journal.keyed.clone(), process.boot, &process.tracker, &process.stop);
        let bindings = Bindings::start(journal.keyed.clone(), &process.tracker, &process.stop);
        let replica = Replica::new(Parts {
            outbox: outbox.clone(),
            clock: Arc::new(move || clock.now()),
            vault: secrets::vault(),
            peppers: secrets::peppers(),
            dispatcher: Dispatcher::within(Arc::new(Shared(Arc::clone(&wire)))),
            probes,
            tokens,
            gates: Gates::new(permits, spending, process.tracker.clone()),
            bindings,
            limits: Limits::default(),
            recording: self.ground.setting.recording,
            dice: process.dice(),
        });
        wire.belongs_to(&replica);
        let stop = || process.stop.clone();
        let catalog = follow::catalog(Arc::clone(&replica), journal.clone(), stop());
        let credentials = follow::credentials(Arc::clone(&replica), journal.clone(), stop());
        let selector = follow::selector(Arc::clone(&replica), journal, stop());
        process.run(catalog);
        process.run(credentials);
        process.run(selector);
        process.run(follow::others(Arc::clone(&replica), Arc::clone(&process.presence), process.stop.clone()));
        let _set_once = serving.set(Arc::clone(&replica));
        let router = router(Arc::clone(&replica));
        self.up = Some(Up { process, replica, outbox, router, publishing, clients: JoinSet::new() });
    }

    /// A client asks it. Says no when nobody lives there.
    pub fn ask(&mut self, asked: Asked) -> bool {
        let Some(up) = &mut self.up else { return false };
        let boot = up.process.boot;
        let seen = Seen {
            asked,
            proxy: self.name.clone(),
            boot,
            status: None,
            id: None,
            code: None,
            end: End::Waiting,
            unnoticed: false,
        };
        let watched = Arc::new(parking_lot::Mutex::new(seen));
        self.seen.push(Arc::clone(&watched));
        up.clients.spawn(client::ask(Arc::clone(&self.ground), up.router.clone(), up.process.freeze.clone(), watched));
        true
    }

    /// It dies. What it leaves on its disk is there for its next life.
    pub fn die(&mut self, death: Death) {
        let Some(mut up) = self.up.take() else { return };
        self.ground.trace.note(format_args!("{} dies: {death:?}", self.name));
        self.see_deaths(&mut up);
        up.process.kill();
        // What the dropped requests still write goes to files that nobody reads any more.
        let left = self.dir();
        self.lives += 1;
        let (boot, acknowledged) = (up.process.boot, up.outbox.status().acknowledged);
        copy(&left, &self.dir());
        match death {
            Death::Killed => {}
            Death::Torn => damage::tear(&self.dir(), boot, &mut self.chance, self.ground.has(Bug::TornTailRead)),
            Death::Power => {
                if damage::lose(&self.dir(), boot, acknowledged, &mut self.chance) {
                    self.lossy.push(boot);
                }
            }
        }
        for watched in self.seen.iter().filter(|watched| watched.lock().boot == boot) {
            let mut seen = watched.lock();
            if seen.end == End::Waiting {
                seen.end = End::Reset;
            }
        }
        up.clients.abort_all();
        up.publishing.cancel();
    }

    /// None of the tasks that have ended died of its own fault.
    fn see_deaths(&self, up: &mut Up) {
        while let Some(ended) = up.clients.try_join_next().or_else(|| up.process.tasks.try_join_next()) {
            self.see_death(ended);
        }
    }

    fn see_death(&self, ended: Result<(), JoinError>) {
        if let Err(error) = ended
            && error.is_panic()
        {
            self.ground.violated("a task died", &format!("{}: {error}", self.name));
        }
    }

    /// Waits until none of its requests is under way.
    pub async fn idle(&mut self) {
        let Some(mut up) = self.up.take() else { return };
        while let Some(ended) = up.clients.join_next().await {
            self.see_death(ended);
        }
        self.up = Some(up);
    }

    /// It stops in order: nothing is left in its outbox.
    pub async fn stop(&mut self) {
        self.idle().await;
        let Some(mut up) = self.up.take() else { return };
        up.replica.drain();
        let closed = up.outbox.close(FLUSH).await;
        if !closed.drained {
            self.ground.violated("an outbox isn't drained at a stop", &format!("{}: {closed:?}", self.name));
        }
        up.publishing.cancel();
        up.process.stop.cancel();
        up.process.ended().await;
        let left = self.dir();
        self.lives += 1;
        copy(&left, &self.dir());
    }
}
