//! The loop: follows catalogue and states, starts what is due, records what came of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;
use waybill_event::ConfigPosition;
use waybill_journal::outbox::{Clock, Outbox};
use waybill_journal::{Bucket, Journal, Start, Stream};
use waybill_secret::Vault;
use waybill_upstream::Dispatcher;

use crate::asking::{Asked, Done};
use crate::known::{About, Known};
use crate::permit::Permits;
use crate::probe::Prober;
use crate::schedule::{Rhythm, Schedules};
use crate::status::Status;

/// Probes under way at a time: they are cheap, and nobody waits for them.
const AT_A_TIME: usize = 8;
/// When something is asked again that the store or the vault couldn't answer.
pub(crate) const ASK_AGAIN: Duration = Duration::from_secs(5);
/// How long an interruption is told after its last sign: what follows the log goes on by itself and says nothing then.
const FAULT_SHOWN: Duration = Duration::from_secs(15);
/// Longest sleep: the clock of the log may be slewed meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(10);

/// What upkeep is built from.
pub struct Parts {
    /// The log and the keyed state.
    pub journal: Journal,
    /// Where results go; its subject is `wb.traffic.0.upkeep`.
    pub outbox: Outbox,
    /// The time of the log.
    pub clock: Clock,
    /// Opens credentials.
    pub vault: Arc<Vault>,
    /// Sends probes.
    pub dispatcher: Dispatcher,
    /// How soon one probe follows another.
    pub rhythm: Rhythm,
}

/// The upkeep role of one process.
pub struct Upkeep {
    journal: Journal,
    pub(crate) outbox: Outbox,
    pub(crate) clock: Clock,
    pub(crate) prober: Prober,
    pub(crate) permits: Permits,
    /// From a source's disabling to its first probe.
    first: Duration,
    pub(crate) status: RwLock<Status>,
}

type Probing<'a> = FuturesUnordered<BoxFuture<'a, Done>>;

impl Upkeep {
    /// Upkeep that knows nothing yet.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { journal, outbox, clock, vault, dispatcher, rhythm } = parts;
        let permits = Permits::new(Arc::clone(&journal.keyed), outbox.producer().clone(), rhythm);
        let prober = Prober { log: Arc::clone(&journal.log), vault, dispatcher, each: rhythm.each };
        Self { journal, outbox, clock, prober, permits, first: rhythm.first, status: RwLock::default() }
    }

    /// How it stands.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.read().clone()
    }

    /// Runs until `stop`. Probes under way then are dropped; their permits lapse. The outbox's publisher is the
    /// caller's to run and to close.
    pub async fn run(&self, stop: CancellationToken) {
        let mut known = Known::default();
        let mut schedule = Schedules::default();
        let mut probing = Probing::new();
        let mut edits = self.journal.log.follow(Stream::Config, Start::LastPerSubject);
        let mut states = self.journal.keyed.watch(Bucket::Selector);
        let mut end = Box::pin(self.end_of_catalog());
        let mut catalog_end = None;
        loop {
            self.begin_due(&known, &mut schedule, &mut probing);
            self.report(&known, &schedule, probing.len(), catalog_end);
            let wait = self.until_next(&schedule, probing.len());
            let about = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                last = &mut end, if catalog_end.is_none() => {
                    catalog_end = Some(last);
                    About::Nothing
                }
                Some(done) = probing.next(), if !probing.is_empty() => {
                    schedule.of(done.wanted.purpose).settle(&done.wanted, done.next);
                    About::Nothing
                }
                Some(edit) = edits.next() => match edit {
                    Ok(message) => known.edit(&message),
                    Err(error) => self.interrupted(&error.to_string()),
                },
                Some(told) = states.next() => match told {
                    Ok(watched) => known.watched(watched),
                    Err(error) => self.interrupted(&error.to_string()),
                },
                () = tokio::time::sleep(wait) => About::Nothing,
            };
            self.adopt(about, &known, &mut schedule);
        }
    }

    /// Brings the schedule in line with what is known now.
    fn adopt(&self, about: About, known: &Known, schedule: &mut Schedules) {
        let sources = match about {
            About::Nothing => return,
            About::Source(source) => BTreeSet::from([source]),
            About::All => known.sources(),
        };
        let now = (self.clock)();
        for source in sources {
            match known.wanted(source) {
                Some(wanted) => schedule.disabled.want(wanted, self.first, now),
                None => schedule.disabled.forget(source),
            }
            match known.checked(source, now) {
                Some(wanted) => schedule.check(wanted, now),
                None => schedule.checks.forget(source),
            }
        }
    }

    fn begin_due<'a>(&'a self, known: &Known, schedule: &mut Schedules, probing: &mut Probing<'a>) {
        // Until both are known a source may look disabled that an edit has healed.
        if !known.states_current() {
            return;
        }
        while probing.len() < AT_A_TIME {
            let Some(wanted) = schedule.due((self.clock)()) else { return };
            let Some(entity) = known.entity(wanted.source) else {
                schedule.of(wanted.purpose).forget(wanted.source);
                continue;
            };
            let (config, rules) = (known.snapshot().position(), known.snapshot().rulebook().clone());
            let asked = Asked { wanted, entity, config, rules };
            probing.push(self.ask(asked).boxed());
        }
    }

    fn interrupted(&self, fault: &str) -> About {
        tracing::warn!(fault, "upkeep can't follow the log for now");
        self.status.write().fault = Some((fault.to_owned(), (self.clock)()));
        About::Nothing
    }

    fn until_next(&self, schedule: &Schedules, under_way: usize) -> Duration {
        let now = (self.clock)();
        let next = schedule.next_at().filter(|_| under_way < AT_A_TIME);
        next.map_or(LONGEST_SLEEP, |next| next.since(now).min(LONGEST_SLEEP))
    }

    fn report(&self, known: &Known, schedule: &Schedules, under_way: usize, catalog_end: Option<ConfigPosition>) {
        let position = known.snapshot().position();
        let mut status = self.status.write();
        status.catalog_position = position;
        status.catalog_current |= catalog_end.is_some_and(|end| position >= end);
        status.catalog_blocked = known.snapshot().blocked_by().map(ToString::to_string);
        status.states_current = known.states_current();
        status.disabled = schedule.disabled.len();
        status.checked = schedule.checks.len();
        status.under_way = under_way;
        let now = (self.clock)();
        if status.fault.as_ref().is_some_and(|(_, at)| now.since(*at) > FAULT_SHOWN) {
            status.fault = None;
        }
    }

    /// Where the catalogue ended when upkeep began.
    async fn end_of_catalog(&self) -> ConfigPosition {
        loop {
            match self.journal.log.bounds(Stream::Config).await {
                Ok(bounds) => return ConfigPosition(bounds.last),
                Err(error) => {
                    self.interrupted(&error.to_string());
                    tokio::time::sleep(ASK_AGAIN).await;
                }
            }
        }
    }
}
