//! The fleet: all processes of a run, what happens to them and to the upstreams, and the way to rest.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{Instant, sleep, sleep_until};
use waybill_event::Source;
use waybill_journal::faulty::Faults;
use waybill_journal::{Bucket, Keyed as _, Log as _, Stream};
use waybill_proxy::Replica;

use crate::admin::{Admin, MODELS};
use crate::chance::Chance;
use crate::client::Asked;
use crate::ground::Ground;
use crate::projector::{Projector, Store};
use crate::proxy::{Death, Proxy};
use crate::secrets;
use crate::upkeep::Upkeeper;
use crate::upstream::{Calls, Upstreams, mood};

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
    StartProxy(usize),
    StartProjector(usize),
    StartUpkeep,
    MendProxy(usize),
    MendProjector(usize),
    MendUpkeep,
    Thaw(usize),
}

/// What happens by chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Request,
    Mood,
    ProxyDies,
    ProjectorDies,
    Freeze,
    Cut,
    Jump,
    Edit,
}

impl Fleet {
    /// A fleet that stands still, with its configuration made.
    #[must_use]
    pub fn new(ground: &Arc<Ground>) -> Self {
        let setting = &ground.setting;
        ground.memory.set_duplicate_window(Stream::Traffic, setting.duplicate_window);
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
        match due {
            Due::StartProxy(n) if self.proxies[n].up.is_none() => self.proxies[n].start(),
            Due::StartProjector(n) if self.projectors[n].up.is_none() => self.projectors[n].start(),
            Due::StartUpkeep if self.upkeep.up.is_none() => self.upkeep.start(),
            Due::StartProxy(_) | Due::StartProjector(_) | Due::StartUpkeep => {}
            Due::MendProxy(n) => {
                if let Some(up) = &self.proxies[n].up {
                    up.process.link.mend();
                }
            }
            Due::MendProjector(n) => {
                if let Some(up) = &self.projectors[n].up {
                    up.process.link.mend();
                }
            }
            Due::MendUpkeep => {
                if let Some(up) = &self.upkeep.up {
                    up.process.link.mend();
                }
            }
            Due::Thaw(n) => {
                if let Some(up) = &self.projectors[n].up {
                    up.process.link.untrap();
                    up.freeze.thaw();
                }
            }
        }
    }

    fn happen(&mut self, kind: Kind, chance: &mut Chance) {
        let ms = Duration::from_millis;
        let any = |chance: &mut Chance, count: usize| usize::try_from(chance.below(count as u64)).unwrap_or(0);
        match kind {
            Kind::Request => self.request(chance),
            Kind::Mood => {
                let channel = chance.one_of(&self.admin.channels());
                if chance.yes(0.15) {
                    self.admin.revoke(channel, chance.yes(0.7));
                } else {
                    let mood = mood(chance);
                    self.ground.trace.note(format_args!("upstream {channel} is {mood:?}"));
                    self.upstreams.set(channel, mood);
                }
            }
            Kind::ProxyDies => {
                let n = any(chance, self.proxies.len());
                let death = match chance.below(10) {
                    0..5 => Death::Killed,
                    5..9 => Death::Torn,
                    _ => Death::Power,
                };
                self.proxies[n].die(death);
                self.later(chance.between(ms(20), ms(4_000)), Due::StartProxy(n));
            }
            Kind::ProjectorDies => match any(chance, self.projectors.len() + 1) {
                n if n < self.projectors.len() => {
                    self.projectors[n].die();
                    self.later(chance.between(ms(20), ms(6_000)), Due::StartProjector(n));
                }
                _ => {
                    self.upkeep.die();
                    self.later(chance.between(ms(20), ms(2_000)), Due::StartUpkeep);
                }
            },
            Kind::Freeze => {
                let n = any(chance, self.projectors.len());
                let Some(up) = &self.projectors[n].up else { return };
                if chance.yes(0.5) {
                    up.process.link.trap(up.freeze.clone());
                } else {
                    self.ground.trace.note(format_args!("{} is frozen", self.projectors[n].name));
                    up.freeze.freeze();
                }
                self.later(chance.between(ms(300), ms(12_000)), Due::Thaw(n));
            }
            Kind::Cut => {
                let lasts = chance.between(ms(200), ms(7_000));
                let (link, mend) = match any(chance, self.proxies.len() * 2 + self.projectors.len() + 1) {
                    n if n < self.proxies.len() * 2 => {
                        let n = n % self.proxies.len();
                        (self.proxies[n].up.as_ref().map(|up| &up.process), Due::MendProxy(n))
                    }
                    n if n < self.proxies.len() * 2 + self.projectors.len() => {
                        let n = n - self.proxies.len() * 2;
                        (self.projectors[n].up.as_ref().map(|up| &up.process), Due::MendProjector(n))
                    }
                    _ => (self.upkeep.up.as_ref().map(|up| &up.process), Due::MendUpkeep),
                };
                if let Some(process) = link {
                    self.ground.trace.note(format_args!("{} is cut off", process.name));
                    process.link.cut();
                    self.later(lasts, mend);
                }
            }
            Kind::Jump => {
                let micros = i64::try_from(chance.below(8_000_000)).unwrap_or(0);
                self.ground.jump(if chance.yes(0.7) { micros } else { -micros / 4 });
            }
            Kind::Edit => self.admin.edit_something(),
        }
    }

    fn later(&mut self, after: Duration, due: Due) {
        self.due.push((Instant::now() + after, due));
    }

    fn request(&mut self, chance: &mut Chance) {
        let ms = Duration::from_millis;
        // Sometimes many come at once.
        let many = if chance.yes(0.1) { chance.among(3, 8) } else { 1 };
        for _ in 0..many {
            self.clients += 1;
            let n = usize::try_from(chance.below(self.proxies.len() as u64)).unwrap_or(0);
            let asked = Asked {
                client: self.clients,
                token: secrets::token(if chance.yes(0.02) { 2 } else { 1 }),
                model: chance.one_of(&MODELS).0.to_owned(),
                stream: chance.yes(0.6),
                deadline: chance.between(ms(1_500), ms(9_000)),
                leaves_after: chance.yes(0.1).then(|| chance.between(ms(1), ms(1_500))),
            };
            self.proxies[n].ask(asked);
        }
    }

    /// Nothing goes wrong any more, and nobody asks: everything comes to rest.
    pub async fn rest(&mut self) {
        self.ground.trace.note(format_args!("everything is well from now on"));
        self.upstreams.heal();
        self.admin.enable_all();
        let calm = Faults { longest_delay: Duration::from_millis(2), ..Faults::NONE };
        for n in 0..self.proxies.len() {
            self.do_one(Due::StartProxy(n));
            self.do_one(Due::MendProxy(n));
        }
        for n in 0..self.projectors.len() {
            self.do_one(Due::StartProjector(n));
            self.do_one(Due::MendProjector(n));
            self.do_one(Due::Thaw(n));
        }
        self.do_one(Due::StartUpkeep);
        self.do_one(Due::MendUpkeep);
        for process in self.processes() {
            process.link.set(calm);
        }
        for proxy in &mut self.proxies {
            proxy.idle().await;
        }
        self.until(REST_WITHIN, "the fleet comes to rest", |fleet| fleet.is_at_rest()).await;
    }

    /// Everybody stops in order; the projectors last, when everything is folded.
    pub async fn stop(&mut self) {
        for proxy in &mut self.proxies {
            proxy.stop().await;
        }
        self.upkeep.stop().await;
        self.until(REST_WITHIN, "what a stop leaves is folded", |fleet| fleet.is_folded()).await;
        for projector in &mut self.projectors {
            projector.stop().await;
        }
    }

    fn processes(&self) -> impl Iterator<Item = &crate::process::Process> {
        let proxies = self.proxies.iter().filter_map(|proxy| proxy.up.as_ref().map(|up| &up.process));
        let projectors = self.projectors.iter().filter_map(|projector| projector.up.as_ref().map(|up| &up.process));
        proxies.chain(projectors).chain(self.upkeep.up.as_ref().map(|up| &up.process))
    }

    async fn until(&self, within: Duration, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + within;
        while !holds(self) {
            if Instant::now() >= deadline {
                self.ground.violated("it never comes to an end", &format!("{what}: {}", self.standing()));
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn standing(&self) -> String {
        let outboxes = self.proxies.iter().filter_map(|proxy| proxy.up.as_ref()).map(|up| up.outbox.status());
        let pending: Vec<u64> = outboxes.map(|status| status.appended - status.acknowledged).collect();
        let folds: Vec<_> = self
            .projectors
            .iter()
            .filter_map(Projector::status)
            .map(|s| (s.leading, s.position, s.unwritten, s.unannounced, s.config_adopted, s.config_fed, s.trouble))
            .collect();
        let rows = self.store.with(|kept| kept.position);
        let mut own = Vec::new();
        for (name, up) in self.proxies.iter().filter_map(|proxy| Some((&proxy.name, proxy.up.as_ref()?))) {
            for (source, entry) in up.replica.views().all() {
                let view = entry.view.lock();
                own.extend(view.own_range().map(|own| (name, source.to_string(), own, view.position())));
            }
        }
        let (end, config) = (self.end(Stream::Traffic), self.end(Stream::Config));
        let checkpointed = self.checkpoint_is_at(end);
        format!(
            "end {end}, pending {pending:?}, rows {rows}, config {config}, folds {folds:?}, \
             checkpointed {checkpointed}, own {own:?}"
        )
    }

    fn end(&self, stream: Stream) -> u64 {
        let bounds = futures_util::FutureExt::now_or_never(self.ground.memory.bounds(stream));
        bounds.expect("the store answers").expect("the store answers").last
    }

    fn is_at_rest(&self) -> bool {
        let drained = |outbox: &waybill_journal::outbox::Outbox| {
            let status = outbox.status();
            status.appended == status.acknowledged && status.earlier_boots == 0
        };
        let config = self.end(Stream::Config);
        let proxy = |proxy: &Proxy| {
            proxy.up.as_ref().is_some_and(|up| {
                drained(&up.outbox) && up.replica.snapshot().position().0 == config && holds_nothing_own(&up.replica)
            })
        };
        let upkeep = self.upkeep.up.as_ref().is_some_and(|up| drained(&up.outbox));
        upkeep && self.proxies.iter().all(proxy) && self.is_folded()
    }

    fn is_folded(&self) -> bool {
        let end = self.end(Stream::Traffic);
        let leading = self.projectors.iter().filter_map(Projector::status).find(|status| status.leading);
        let selector = leading.is_some_and(|status| {
            let whole = status.position == end && status.unwritten == 0 && status.unannounced == 0;
            whole && status.config_adopted == status.config_fed && status.config_fed.0 == self.end(Stream::Config)
        });
        selector && self.store.with(|kept| kept.position) == end && self.checkpoint_is_at(end)
    }

    fn checkpoint_is_at(&self, end: u64) -> bool {
        let found = futures_util::FutureExt::now_or_never(self.ground.memory.get(Bucket::Selector, "_fold"));
        let Some(Ok(Some(entry))) = found else { return false };
        let checkpoint = serde_json::from_slice::<waybill_domain::selector::Checkpoint>(&entry.value);
        checkpoint.is_ok_and(|checkpoint| checkpoint.position.sequence == end)
    }
}

/// Whether the shared values hold all of a replica's own events about sources that exist.
fn holds_nothing_own(replica: &Replica) -> bool {
    let snapshot = replica.snapshot();
    let exists = |source: Source| snapshot.catalog().channel_of(source).is_some();
    replica.views().all().iter().all(|(source, entry)| !exists(*source) || entry.view.lock().own_range().is_none())
}

/// What happens by chance, and when.
struct Happenings {
    chance: Chance,
    next: Vec<(Instant, Kind, Duration)>,
}

impl Happenings {
    fn of(ground: &Ground) -> Self {
        let setting = &ground.setting;
        let mut chance = Chance::of(ground.seed, "happenings");
        let kinds = [
            (Kind::Request, Some(setting.request_every)),
            (Kind::Mood, setting.mood_every),
            (Kind::ProxyDies, setting.crash_every),
            (Kind::ProjectorDies, setting.projector_crash_every),
            (Kind::Freeze, setting.freeze_every),
            (Kind::Cut, setting.cut_every),
            (Kind::Jump, setting.jump_every),
            (Kind::Edit, setting.edit_every),
        ];
        let now = Instant::now();
        let next = kinds.into_iter().filter_map(|(kind, every)| Some((now + chance.about(every?), kind, every?)));
        let next = next.collect();
        Self { chance, next }
    }

    fn next(&self) -> (Instant, Kind) {
        let next = self.next.iter().min_by_key(|(at, _, _)| *at);
        next.map(|(at, kind, _)| (*at, *kind)).expect("requests always come")
    }

    fn happened(&mut self, kind: Kind) {
        for (at, one, every) in &mut self.next {
            if *one == kind {
                *at = Instant::now() + self.chance.about(*every);
            }
        }
    }
}
