//! What every process of the fleet has: a name, a life, a connection, a clock of the log, and tasks that end with it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_event::{Boot, LogTime, ProducerId};
use waybill_journal::clock::LogClock;
use waybill_journal::outbox::Clock;
use waybill_journal::presence::{Presence, Report};
use waybill_journal::{Journal, dice::Dice};

use crate::chance::Chance;
use crate::freeze::Freeze;
use crate::ground::Ground;
use crate::link::Link;

/// A process in one of its lives.
pub struct Process {
    /// What it stands on.
    pub ground: Arc<Ground>,
    /// Its name.
    pub name: ProducerId,
    /// This life of it.
    pub boot: Boot,
    /// Its connection to the store.
    pub link: Link,
    /// Its clock of the log.
    pub clock: LogClock,
    /// Its beats.
    pub presence: Arc<Presence>,
    /// What it runs; aborted with its death.
    pub tasks: JoinSet<()>,
    /// Stops and lets go what it runs.
    pub freeze: Freeze,
    /// What the product spawns by itself.
    pub tracker: TaskTracker,
    /// Cancelled when it is asked to stop.
    pub stop: CancellationToken,
    chance: Chance,
    /// How wrong its machine's own time is.
    skew: i64,
}

impl Process {
    /// Starts a process: it beats, with what `report` says, and gets to know the time.
    #[must_use]
    pub fn start(
        ground: &Arc<Ground>,
        name: &str,
        role: &str,
        life: u32,
        report: impl Fn() -> Report + Send + 'static,
    ) -> Self {
        // The machine is the same in every life.
        let mut machine = Chance::of(ground.seed, &format!("machine {name}"));
        let skew = i64::try_from(machine.among(0, 4_000_000)).unwrap_or(0) - 2_000_000;
        let since_start = machine.between(Duration::ZERO, Duration::from_secs(1_000_000));
        let steady = ground.steady(since_start, i64::try_from(machine.among(0, 400)).unwrap_or(0) - 200);
        let mut chance = Chance::of(ground.seed, &format!("{name}.{life}"));
        let boot = Boot::new(skewed(ground.now(), skew), u32::try_from(chance.below(1 << 32)).unwrap_or(0));
        let freeze = Freeze::default();
        let link = Link::new(ground, name, life, ground.setting.faults, freeze.clone());
        let name: ProducerId = name.parse().unwrap();
        let clock = LogClock::new(steady);
        let mut process = Self {
            ground: Arc::clone(ground),
            boot,
            clock: clock.clone(),
            tasks: JoinSet::new(),
            freeze,
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
            chance,
            skew,
            presence: Arc::new(Presence::new(link.journal().keyed, name.clone(), boot, role, clock)),
            link,
            name,
        };
        ground.trace.note(format_args!("{} begins its life {boot}", process.name));
        let stop = process.stop.clone();
        let presence = Arc::clone(&process.presence);
        process.run(async move { presence.run(report, stop).await });
        process
    }

    /// Runs something until it is over or the process dies.
    pub fn run(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(self.freeze.over(task.boxed()));
    }

    /// It is stopped as by SIGSTOP.
    pub fn freeze(&self) {
        self.ground.trace.note(format_args!("{} is frozen", self.name));
        self.ground.faulted(self.name.as_str());
        self.freeze.freeze();
    }

    /// It goes on.
    pub fn thaw(&self) {
        self.link.untrap();
        if self.freeze.thaw() {
            self.ground.faulted(self.name.as_str());
        }
    }

    /// The journal as it reaches it.
    #[must_use]
    pub fn journal(&self) -> Journal {
        self.link.journal()
    }

    /// The time of the log, and the machine's own until that is known.
    #[must_use]
    pub fn clock_or_own(&self) -> Clock {
        let (clock, ground, skew) = (self.clock.clone(), Arc::clone(&self.ground), self.skew);
        Arc::new(move || clock.now().unwrap_or_else(|| skewed(ground.now(), skew)))
    }

    /// Random numbers that this life alone draws.
    pub fn dice(&mut self) -> Dice {
        let chance = parking_lot::Mutex::new(Chance::of(self.chance.number(), "dice"));
        Arc::new(move || chance.lock().number())
    }

    /// It is killed: nothing that it has begun goes on.
    pub fn kill(&mut self) {
        self.ground.trace.note(format_args!("{} is killed", self.name));
        self.link.end();
        self.tasks.abort_all();
    }

    /// Waits for all tasks to end, and sees that none of them died of its own fault.
    pub async fn ended(&mut self) {
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended
                && error.is_panic()
            {
                self.ground.violated("a task died", &format!("{}: {error}", self.name));
            }
        }
    }
}

fn skewed(time: LogTime, micros: i64) -> LogTime {
    LogTime::from_micros(time.as_micros() + micros)
}
