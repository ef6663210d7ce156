//! The fleet: all processes of a run, its life, its rest and its end.

mod happenings;
mod rest;

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{Instant, sleep_until};
use waybill_journal::Stream;
use waybill_journal::faulty::Faults;

use crate::admin::Admin;
use crate::ground::Ground;
use crate::process::Process;
use crate::projector::{Projector, Store};
use crate::proxy::Proxy;
use crate::upkeep::Upkeeper;
use crate::upstream::{Calls, Upstreams};

use happenings::Happenings;

/// How long the fleet may take to come to rest once nothing goes wrong any more.
const REST_WITHIN: Duration = Duration::from_secs(120);
/// How long a first look at everything may take.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// A fleet.
pub struct Fleet {
    /// What it stands on.
    pub ground: Arc<Ground>,
    /// The replicas.
    pub proxies: Vec<Proxy>,
    /// The rows.
    pub store: Arc<Store>,
    /// All calls of upstreams.
    pub calls: Arc<Calls>,
    projectors: Vec<Projector>,
    upkeep: Upkeeper,
    upstreams: Arc<Upstreams>,
    admin: Admin,
    clients: u64,
    due: Vec<(Instant, Due)>,
    _files: TempDir,
}

/// What is to happen later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Start(Who),
    Mend(Who),
    Thaw(Who),
}

/// One of the processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Proxy(usize),
    Projector(usize),
    Upkeep,
}

impl Fleet {
    /// A fleet that stands still, with its configuration made.
    #[must_use]
    pub fn new(ground: &Arc<Ground>) -> Self {
        let setting = &ground.setting;
        ground.memory.set_duplicate_window(Stream::Traffic, setting.duplicate_window);
        ground.memory.set_max_bytes(Stream::Traffic, setting.traffic_bytes);
        let files = tempfile::Builder::new().prefix("waybill-simulation").tempdir().unwrap();
        let (upstreams, calls) = (Arc::new(Upstreams::new(ground.seed)), Arc::new(Calls::default()));
        let store = Arc::new(Store::default());
        let mut admin = Admin::new(ground, &upstreams);
        admin.found();
        let proxy = |n| Proxy::new(ground, &upstreams, &calls, &format!("proxy-{n}"), files.path());
        Self {
            ground: Arc::clone(ground),
            proxies: (1..=setting.proxies).map(proxy).collect(),
            projectors: (1..=2).map(|n| Projector::new(ground, &store, &format!("projector-{n}"))).collect(),
            upkeep: Upkeeper::new(ground, &upstreams, &calls, files.path()),
            store,
            calls,
            upstreams,
            admin,
            clients: 0,
            due: Vec::new(),
            _files: files,
        }
    }

    /// Lives for as long as the setting says, with everything that happens meanwhile.
    pub async fn live(&mut self) {
        self.proxies.iter_mut().for_each(Proxy::start);
        self.projectors.iter_mut().for_each(Projector::start);
        self.upkeep.start();
        self.until(READY_WITHIN, "the fleet gets ready", |fleet| fleet.is_ready()).await;
        let end = Instant::now() + self.ground.setting.lasts;
        let mut happenings = Happenings::of(&self.ground);
        loop {
            let (at, kind) = happenings.next();
            let due = self.due.iter().map(|(at, _)| *at).min();
            let next = due.map_or(at, |due| due.min(at));
            if next >= end {
                return;
            }
            sleep_until(next).await;
            self.do_due();
            if next == at {
                happenings.happened(kind);
                self.happen(kind, &mut happenings.chance);
            }
        }
    }

    fn is_ready(&self) -> bool {
        self.proxies.iter().all(|proxy| proxy.up.as_ref().is_some_and(|up| up.replica.serving_since_now().is_some()))
    }

    fn do_due(&mut self) {
        let now = Instant::now();
        let due: Vec<Due> = self.due.iter().filter(|(at, _)| *at <= now).map(|(_, due)| *due).collect();
        self.due.retain(|(at, _)| *at > now);
        due.into_iter().for_each(|due| self.do_one(due));
    }

    fn do_one(&mut self, due: Due) {
        self.ground.trace.note(format_args!("due: {due:?}"));
        match (due, self.process(due.who())) {
            (Due::Start(Who::Proxy(n)), None) => self.proxies[n].start(),
            (Due::Start(Who::Projector(n)), None) => self.projectors[n].start(),
            (Due::Start(Who::Upkeep), None) => self.upkeep.start(),
            (Due::Mend(_), Some(process)) => process.link.mend(),
            (Due::Thaw(_), Some(process)) => process.thaw(),
            (Due::Start(_), Some(_)) | (Due::Mend(_) | Due::Thaw(_), None) => {}
        }
    }

    /// Nothing goes wrong any more, and nobody asks: everything comes to rest.
    pub async fn rest(&mut self) {
        self.ground.trace.note(format_args!("everything is well from now on"));
        self.upstreams.heal();
        self.admin.enable_all();
        let calm = Faults { longest_delay: Duration::from_millis(2), ..Faults::NONE };
        for who in self.everybody() {
            self.do_one(Due::Start(who));
            self.do_one(Due::Mend(who));
            self.do_one(Due::Thaw(who));
            if let Some(process) = self.process(who) {
                process.link.set(calm);
            }
        }
        for proxy in &mut self.proxies {
            proxy.idle().await;
        }
        self.until(REST_WITHIN, "the fleet comes to rest", |fleet| fleet.is_at_rest()).await;
    }

    /// Everybody stops in order; the projectors last, when everything is folded.
    pub async fn stop(&mut self) {
        // Upkeep stops too, and nobody makes room any more.
        self.ground.memory.set_max_bytes(Stream::Traffic, 0);
        for proxy in &mut self.proxies {
            proxy.stop().await;
        }
        self.upkeep.stop().await;
        self.until(REST_WITHIN, "what a stop leaves is folded", |fleet| fleet.is_folded()).await;
        for projector in &mut self.projectors {
            projector.stop().await;
        }
    }

    fn everybody(&self) -> Vec<Who> {
        let proxies = (0..self.proxies.len()).map(Who::Proxy);
        proxies.chain((0..self.projectors.len()).map(Who::Projector)).chain([Who::Upkeep]).collect()
    }

    /// The process, if it lives.
    fn process(&self, who: Who) -> Option<&Process> {
        match who {
            Who::Proxy(n) => self.proxies[n].up.as_ref().map(|up| &up.process),
            Who::Projector(n) => self.projectors[n].up.as_ref().map(|up| &up.process),
            Who::Upkeep => self.upkeep.up.as_ref().map(|up| &up.process),
        }
    }
}

impl Due {
    const fn who(self) -> Who {
        match self {
            Self::Start(who) | Self::Mend(who) | Self::Thaw(who) => who,
        }
    }
}
