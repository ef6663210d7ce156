//! The loop: follows catalogue and states, starts what is due, records what came of it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;
use waybill_domain::verdict::Rulebook;
use waybill_event::config::Channel;
use waybill_event::control::{ProbeFinished, ProbeOf};
use waybill_event::{ConfigPosition, Draft, FailureKind, LogTime, Scope};
use waybill_journal::outbox::{Clock, Outbox};
use waybill_journal::{Bucket, Journal, Start, Stream};
use waybill_secret::Vault;
use waybill_upstream::Dispatcher;

use crate::known::{About, Known, revisions};
use crate::permit::{NotNow, Permits};
use crate::probe::{PROBE_LIFE, Prober, Unready, brings_back};
use crate::schedule::{Rhythm, Schedule, Wanted};
use crate::status::Status;

/// Probes under way at a time: they are cheap, and nobody waits for them.
const AT_A_TIME: usize = 8;
/// When something is asked again that the store or the vault couldn't answer.
const ASK_AGAIN: Duration = Duration::from_secs(5);
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
    outbox: Outbox,
    clock: Clock,
    prober: Prober,
    permits: Permits,
    /// From a source's disabling to its first probe.
    first: Duration,
    status: RwLock<Status>,
}

/// What became of something that was due.
struct Done {
    wanted: Wanted,
    next: LogTime,
}

type Probing<'a> = FuturesUnordered<BoxFuture<'a, Done>>;

impl Upkeep {
    /// Upkeep that knows nothing yet.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { journal, outbox, clock, vault, dispatcher, rhythm } = parts;
        let permits = Permits::new(Arc::clone(&journal.keyed), outbox.producer().clone(), rhythm);
        let prober = Prober { log: Arc::clone(&journal.log), vault, dispatcher };
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
        let mut schedule = Schedule::default();
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
                    schedule.settle(&done.wanted, done.next);
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
    fn adopt(&self, about: About, known: &Known, schedule: &mut Schedule) {
        let sources = match about {
            About::Nothing => return,
            About::Source(source) => vec![source],
            About::All => known.sources(),
        };
        let now = (self.clock)();
        for source in sources {
            match known.wanted(source) {
                Some(wanted) => schedule.want(wanted, self.first, now),
                None => schedule.forget(source),
            }
        }
    }

    fn begin_due<'a>(&'a self, known: &Known, schedule: &mut Schedule, probing: &mut Probing<'a>) {
        // Until both are known a source may look disabled that an edit has healed.
        if !known.states_current() {
            return;
        }
        while probing.len() < AT_A_TIME {
            let Some(wanted) = schedule.due((self.clock)()) else { return };
            let Some(channel) = known.channel(wanted.source).cloned() else {
                schedule.forget(wanted.source);
                continue;
            };
            let (config, rules) = (known.snapshot().position(), known.snapshot().rulebook().clone());
            probing.push(self.probe(wanted, channel, config, rules).boxed());
        }
    }

    /// One probe, from the permit to the record.
    async fn probe(&self, wanted: Wanted, channel: Arc<Channel>, config: ConfigPosition, rules: Rulebook) -> Done {
        let now = (self.clock)();
        let permit = match self.permits.claim(&wanted, now, PROBE_LIFE).await {
            Ok(permit) => permit,
            Err(NotNow::Until { until }) => return Done { wanted, next: until },
            Err(error @ NotNow::Store { .. }) => return self.unready(wanted, &error.to_string()),
        };
        match self.prober.probe(&rules, &channel, permit.tries(), now).await {
            Err(error @ (Unready::Credential | Unready::Vault { .. } | Unready::Target { .. })) => {
                self.permits.give_up(&wanted, &permit).await;
                self.unready(wanted, &error.to_string())
            }
            Ok(kind) => {
                let ok = brings_back(kind);
                tracing::info!(source = %wanted.source, %kind, ok, probe = permit.tries(), "a disabled source was probed");
                let recorded = self.record(&wanted, &channel, config, kind, ok);
                self.count(ok, recorded);
                // After a success it is kept too: a source that is soon disabled again isn't probed at once again.
                let next = self.permits.keep(&wanted, permit, (self.clock)()).await;
                Done { wanted, next }
            }
        }
    }

    fn count(&self, ok: bool, recorded: bool) {
        let mut status = self.status.write();
        status.probes += 1;
        status.brought_back += u64::from(ok && recorded);
        status.unrecorded += u64::from(!recorded);
    }

    fn unready(&self, wanted: Wanted, error: &str) -> Done {
        tracing::warn!(source = %wanted.source, error, "a disabled source can't be probed now");
        self.status.write().unready += 1;
        Done { wanted, next: (self.clock)() + ASK_AGAIN }
    }

    /// Writes the result down; says whether that worked.
    fn record(&self, wanted: &Wanted, channel: &Channel, config: ConfigPosition, kind: FailureKind, ok: bool) -> bool {
        let used = revisions(channel);
        let finished = ProbeFinished {
            probe: ProbeOf::Disabled { disabling: wanted.disabling.to_string() },
            scope: Scope { source: wanted.source, model: None },
            ok,
            kind,
            credential_revision: used.credential,
            base_url_revision: used.base_url,
        };
        let draft =
            Draft { source: Some(channel.source_ref()), config: Some(config), ..Draft::new((self.clock)(), finished) };
        let appended = draft.encode().map_err(|e| e.to_string());
        let appended = appended.and_then(|event| self.outbox.append(&[event]).map_err(|e| e.to_string()));
        if let Err(error) = &appended {
            tracing::error!(error, source = %wanted.source, "a probe's result can't be recorded");
        }
        appended.is_ok()
    }

    fn interrupted(&self, fault: &str) -> About {
        tracing::warn!(fault, "upkeep can't follow the log for now");
        self.status.write().fault = Some((fault.to_owned(), (self.clock)()));
        About::Nothing
    }

    fn until_next(&self, schedule: &Schedule, under_way: usize) -> Duration {
        let now = (self.clock)();
        let next = schedule.next_at().filter(|_| under_way < AT_A_TIME);
        next.map_or(LONGEST_SLEEP, |next| next.since(now).min(LONGEST_SLEEP))
    }

    fn report(&self, known: &Known, schedule: &Schedule, under_way: usize, catalog_end: Option<ConfigPosition>) {
        let position = known.snapshot().position();
        let mut status = self.status.write();
        status.catalog_position = position;
        status.catalog_current |= catalog_end.is_some_and(|end| position >= end);
        status.catalog_blocked = known.snapshot().blocked_by().map(ToString::to_string);
        status.states_current = known.states_current();
        status.disabled = schedule.len();
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
