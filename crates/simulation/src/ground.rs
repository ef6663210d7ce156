//! What a run stands on: the store, its clock, the trace, and what was found wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use waybill_event::LogTime;
use waybill_journal::Message;
use waybill_journal::clock::Steady;
use waybill_journal::memory::Memory;

use crate::bug::Bug;
use crate::setting::Setting;
use crate::tap::Epochs;
use crate::trace::Trace;

/// When every run begins.
const BEGIN: LogTime = LogTime::from_micros(1_790_000_000_000_000);

/// What a run stands on.
pub struct Ground {
    /// The seed.
    pub seed: u64,
    /// What the seed's run is like.
    pub setting: Setting,
    /// What is wrong on purpose.
    pub bug: Option<Bug>,
    /// The store.
    pub memory: Memory,
    /// What happened.
    pub trace: Trace,
    /// Epochs that the selector's values were written under.
    pub epochs: Epochs,
    origin: Instant,
    store_ahead: Arc<AtomicI64>,
    /// All of the traffic stream, what was purged included.
    traffic: Mutex<Vec<Message>>,
    purged: AtomicU64,
    jumps: Mutex<Vec<Instant>>,
    faults: Mutex<BTreeMap<String, Vec<Instant>>>,
    violations: Mutex<Vec<String>>,
}

impl Ground {
    /// A fresh one, in a runtime whose time stands still but for its timers.
    #[must_use]
    pub fn new(seed: u64, setting: Setting, bug: Option<Bug>, lines: bool) -> Arc<Self> {
        let origin = Instant::now();
        let store_ahead = Arc::new(AtomicI64::new(0));
        let ahead = Arc::clone(&store_ahead);
        let clock = Arc::new(move || shifted(BEGIN + origin.elapsed(), ahead.load(Ordering::Relaxed)));
        Arc::new(Self {
            seed,
            setting,
            bug,
            memory: Memory::new(clock),
            trace: Trace::new(lines),
            epochs: Epochs::default(),
            origin,
            store_ahead,
            traffic: Mutex::default(),
            purged: AtomicU64::new(0),
            jumps: Mutex::default(),
            faults: Mutex::default(),
            violations: Mutex::default(),
        })
    }

    /// The time that nobody in the fleet knows.
    #[must_use]
    pub fn now(&self) -> LogTime {
        BEGIN + self.origin.elapsed()
    }

    /// Whether this mistake is made.
    #[must_use]
    pub fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// The steady clock of a machine: when it was started is its own affair, and it is a little fast or slow.
    #[must_use]
    pub fn steady(&self, since_start: Duration, parts_per_million: i64) -> Steady {
        let origin = self.origin;
        let begun = micros(since_start);
        Arc::new(move || {
            let passed = micros(origin.elapsed());
            begun + passed + passed * parts_per_million / 1_000_000
        })
    }

    /// The store's clock jumps.
    pub fn jump(&self, micros: i64) {
        self.store_ahead.fetch_add(micros, Ordering::Relaxed);
        self.jumps.lock().push(Instant::now());
        self.memory.tick();
        self.trace.note(format_args!("the store's clock jumps by {micros} µs"));
    }

    /// The store took these into the traffic stream.
    pub fn took(&self, messages: Vec<Message>) {
        self.traffic.lock().extend(messages);
    }

    /// Everything that the traffic stream ever held.
    #[must_use]
    pub fn traffic(&self) -> Vec<Message> {
        self.traffic.lock().clone()
    }

    /// So many messages of the traffic stream were purged.
    pub fn purged(&self, messages: u64) {
        self.purged.fetch_add(messages, Ordering::Relaxed);
    }

    /// How many messages were purged so far.
    #[must_use]
    pub fn purged_so_far(&self) -> u64 {
        self.purged.load(Ordering::Relaxed)
    }

    /// Something went wrong between a process and the store.
    pub fn faulted(&self, who: &str) {
        self.faults.lock().entry(who.to_owned()).or_default().push(Instant::now());
    }

    /// Whether a process had the store within reach, and its clock stood well, from `from` to `to`.
    #[must_use]
    pub fn was_well(&self, who: &str, from: Instant, to: Instant) -> bool {
        let within = |at: &Instant| *at >= from && *at <= to;
        let jumped = self.jumps.lock().iter().any(within);
        let faulted = self.faults.lock().get(who).is_some_and(|faults| faults.iter().any(within));
        !jumped && !faulted
    }

    /// Something that must not be is.
    pub fn violated(&self, rule: &str, what: &str) {
        self.trace.note(format_args!("VIOLATED: {rule}: {what}"));
        let mut violations = self.violations.lock();
        if violations.len() < 20 {
            violations.push(format!("{rule}: {what}"));
        }
    }

    /// What was found wrong so far.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.violations.lock().clone()
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn shifted(time: LogTime, micros: i64) -> LogTime {
    LogTime::from_micros(time.as_micros().saturating_add(micros))
}
