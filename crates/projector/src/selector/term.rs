//! One term of leadership: folds what comes, writes values, announces transitions, writes checkpoints. One task does it
//! all; whatever waits for the store waits beside the fold.

mod reading;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use waybill_domain::selector::fleet::Urgency;
use waybill_domain::selector::{Checkpoint, FOLD_KEY, FleetState, Unannounced, value_key};
use waybill_event::{DecodeError, Event, LogTime, Position, Source};
use waybill_journal::log::Following;
use waybill_journal::{Bounds, Journal, Start, Stream};

use super::Config;
use super::announce::{Announcements, Sent};
use super::schedule::Schedule;
use super::status::Status;
use super::takeover::{Lost, TakenOver, encode, take_over};
use super::write::{Write, Written, write};
use crate::lag::Behind;

/// Values written at a time.
const WRITES_AT_A_TIME: usize = 8;
/// How often the log's end is asked for.
const END_EVERY: Duration = Duration::from_secs(1);
/// Before a write that failed is begun again.
const WRITE_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Values that must be complete before a checkpoint holds.
struct Cycle {
    checkpoint: Checkpoint,
    waiting: BTreeSet<Source>,
    /// How long it waits for the log to take the announcements.
    until: Instant,
}

/// A message whose events are being folded.
struct Opened {
    sequence: u64,
    stored_at: LogTime,
    events: Vec<Result<Event, DecodeError>>,
    next: usize,
}

pub(super) struct Term<'a> {
    journal: &'a Journal,
    config: &'a Config,
    status: &'a Mutex<Status>,
    epoch: u64,
    fleet: FleetState,
    schedule: Schedule,
    announcements: Announcements,
    revisions: BTreeMap<Source, u64>,
    /// Sources that are no more, since when. Their values stand until a checkpoint is past that: who folds again from an
    /// earlier one needs them.
    removals: BTreeMap<Source, Position>,
    writes: FuturesUnordered<BoxFuture<'static, Write>>,
    fold_revision: u64,
    /// The checkpoint that waits for its values, and the write of one that waited.
    cycle: Option<Cycle>,
    fold_write: Option<BoxFuture<'static, Written>>,
    checkpointed: Position,
    next_cycle: Instant,
    opened: Option<Opened>,
    edits: Following,
    edits_stopped: bool,
    messages: Following,
    expected: u64,
    end: BoxFuture<'static, Option<Bounds>>,
}

impl<'a> Term<'a> {
    /// Takes over.
    pub(super) async fn begin(
        journal: &'a Journal,
        config: &'a Config,
        status: &'a Mutex<Status>,
    ) -> Result<Self, Lost> {
        let TakenOver { epoch, checkpoint, fold_revision, values, revisions } = take_over(&journal.keyed).await?;
        let from = checkpoint.position.sequence.saturating_add(1);
        let mut announcements = Announcements::new(Arc::clone(&journal.log), config.producer.clone(), epoch);
        for Unannounced { transition, rev, config } in &checkpoint.unannounced {
            announcements.take_over(transition, *rev, *config);
        }
        for value in &values {
            let lost = value.unannounced.iter().filter(|t| t.position > Some(checkpoint.position));
            lost.for_each(|transition| announcements.take_over(transition, value.rev, value.config));
        }
        let checkpointed = checkpoint.position;
        tracing::info!(epoch, position = %checkpointed, values = values.len(), "folding the selector from here on");
        let mut term = Self {
            journal,
            config,
            status,
            epoch,
            fleet: FleetState::restore(checkpoint, values),
            schedule: Schedule::new(config.pace),
            announcements,
            revisions,
            removals: BTreeMap::new(),
            writes: FuturesUnordered::new(),
            fold_revision,
            cycle: None,
            fold_write: None,
            checkpointed,
            next_cycle: Instant::now() + config.pace.checkpoint_every,
            opened: None,
            edits: journal.log.follow(Stream::Config, Start::At(1)),
            edits_stopped: false,
            messages: journal.log.follow(Stream::Traffic, Start::At(from)),
            expected: from,
            end: end_of(journal, Duration::ZERO),
        };
        term.read_known_edits().await?;
        let effects = term.fleet.reconcile();
        term.take_effects(effects);
        term.tell(|status| {
            status.leading = true;
            status.position = checkpointed.sequence;
            status.behind = Behind::default();
            status.counts.terms += 1;
            status.trouble = None;
        });
        Ok(term)
    }

    /// Leads until `stop`, or until another one does.
    pub(super) async fn run(&mut self, stop: &CancellationToken) -> Result<(), Lost> {
        loop {
            self.begin_writes()?;
            self.begin_checkpoint()?;
            let wake = self.wake_at();
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                Some(write) = self.writes.next(), if !self.writes.is_empty() => self.wrote(&write)?,
                written = pending_or(&mut self.fold_write) => self.checkpoint_wrote(written)?,
                sent = self.announcements.sent() => self.sent(sent),
                edit = self.edits.next(), if !self.edits_stopped => self.edit(edit),
                bounds = &mut self.end => self.end_is(bounds),
                // What never ends stands last, so that it holds up nothing else.
                message = self.messages.next(), if self.opened.is_none() && self.announcements.has_room() => {
                    self.message(message);
                }
                () = sleep_until(wake) => {}
            }
            self.fold_opened();
        }
    }

    /// Writes what isn't written, as far as there is time for it: the next leader then has less to fold.
    pub(super) async fn flush(&mut self) -> Result<(), Lost> {
        let deadline = Instant::now() + self.config.pace.flush_within;
        self.next_cycle = Instant::now();
        loop {
            self.schedule.hurry();
            self.begin_writes()?;
            self.begin_checkpoint()?;
            let clean = self.schedule.unwritten_count() == 0 && self.announcements.is_idle();
            if clean && self.fold_write.is_none() && self.cycle.is_none() {
                return Ok(());
            }
            let wake = self.wake_at().min(deadline);
            tokio::select! {
                biased;
                Some(write) = self.writes.next(), if !self.writes.is_empty() => self.wrote(&write)?,
                written = pending_or(&mut self.fold_write) => self.checkpoint_wrote(written)?,
                sent = self.announcements.sent() => self.sent(sent),
                () = sleep_until(wake) => {
                    if Instant::now() >= deadline {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn begin_writes(&mut self) -> Result<(), Lost> {
        while self.writes.len() < WRITES_AT_A_TIME {
            let Some(source) = self.schedule.begin(Instant::now()) else { return Ok(()) };
            let mut position = self.fleet.position();
            let value = match self.fleet.value(source, self.epoch) {
                Some(mut value) => {
                    value.unannounced = self.announcements.of(source);
                    position = value.position;
                    Some(encode(&value)?)
                }
                None if self.removals.contains_key(&source) => {
                    self.schedule.removed(source);
                    self.complete(source, position);
                    continue;
                }
                None => None,
            };
            let revision = self.revisions.get(&source).copied();
            let writing = write(Arc::clone(&self.journal.keyed), value_key(source), value, revision, self.epoch);
            self.writes.push(writing.map(move |outcome| Write { source, position, outcome }).boxed());
        }
        Ok(())
    }

    fn wrote(&mut self, write: &Write) -> Result<(), Lost> {
        let (source, now) = (write.source, Instant::now());
        match write.outcome {
            Written::Done(revision) => {
                self.revisions.insert(source, revision);
                self.schedule.written(source, now);
                self.complete(source, write.position);
                self.tell(|status| status.counts.written += 1);
            }
            Written::Gone => {
                self.revisions.remove(&source);
                self.schedule.removed(source);
                self.complete(source, write.position);
            }
            Written::Moved(revision) => {
                match revision {
                    Some(revision) => self.revisions.insert(source, revision),
                    None => self.revisions.remove(&source),
                };
                self.schedule.failed(source, now, Duration::ZERO);
            }
            Written::Failed => self.schedule.failed(source, now, WRITE_AGAIN_AFTER),
            Written::Deposed(epoch) => return Err(Lost::Deposed { epoch }),
        }
        Ok(())
    }

    /// A value was written. It may have been on its way already when the checkpoint's position was taken: unless the
    /// source was touched since, it holds all there is up to there, whatever position it states of itself.
    fn complete(&mut self, source: Source, position: Position) {
        let lacks = self.schedule.lacks(source);
        if let Some(cycle) = self.cycle.as_mut().filter(|cycle| !lacks || position >= cycle.checkpoint.position) {
            cycle.waiting.remove(&source);
        }
    }

    /// A checkpoint is the present position, once every value is complete up to it and every announcement is in the log. A
    /// full log takes none, and no room is made in it before the checkpoint moves: then it lists what isn't announced.
    fn begin_checkpoint(&mut self) -> Result<(), Lost> {
        if self.fold_write.is_some() {
            return Ok(());
        }
        if self.may_begin_cycle() && Instant::now() >= self.next_cycle {
            self.next_cycle = Instant::now() + self.config.pace.checkpoint_every;
            let checkpoint = self.fleet.checkpoint(self.epoch);
            self.cycle = Some(Cycle { checkpoint, waiting: self.schedule.unwritten(), until: self.next_cycle });
        }
        let announced = |cycle: &Cycle| !self.announcements.lacks(cycle.checkpoint.position);
        let ready = |cycle: &Cycle| cycle.waiting.is_empty() && (announced(cycle) || Instant::now() >= cycle.until);
        if self.cycle.as_ref().is_some_and(ready)
            && let Some(mut cycle) = self.cycle.take()
        {
            cycle.checkpoint.unannounced = self.announcements.by(cycle.checkpoint.position);
            self.checkpointed = cycle.checkpoint.position;
            let (keyed, bytes) = (Arc::clone(&self.journal.keyed), encode(&cycle.checkpoint)?);
            let revision = Some(self.fold_revision);
            self.fold_write = Some(write(keyed, FOLD_KEY.to_owned(), Some(bytes), revision, self.epoch).boxed());
        }
        Ok(())
    }

    /// Checkpoints lie between messages, one at a time, and only where there is something new.
    fn may_begin_cycle(&self) -> bool {
        let between = self.opened.is_none() && self.fleet.needs().is_none();
        between && self.cycle.is_none() && self.fold_write.is_none() && self.fleet.position() > self.checkpointed
    }

    fn checkpoint_wrote(&mut self, written: Written) -> Result<(), Lost> {
        self.fold_write = None;
        match written {
            Written::Done(revision) => {
                self.fold_revision = revision;
                let (checkpointed, now) = (self.checkpointed, Instant::now());
                for (source, _) in self.removals.extract_if(.., |_, since| *since <= checkpointed) {
                    self.schedule.touch(source, Urgency::Now, now);
                }
                self.tell(|status| status.counts.checkpoints += 1);
            }
            Written::Moved(Some(revision)) => {
                self.fold_revision = revision;
                self.checkpointed = Position::default();
            }
            Written::Failed => self.checkpointed = Position::default(),
            Written::Moved(None) | Written::Gone => {
                tracing::error!("the checkpoint was removed by somebody else");
                return Err(Lost::Deposed { epoch: self.epoch });
            }
            Written::Deposed(epoch) => return Err(Lost::Deposed { epoch }),
        }
        Ok(())
    }

    /// A source is no more. A checkpoint from before can't have its value any more.
    fn remove(&mut self, source: Source) {
        let since = self.fleet.position();
        if since <= self.checkpointed {
            self.schedule.touch(source, Urgency::Now, Instant::now());
            return;
        }
        self.removals.insert(source, since);
        self.cycle.take_if(|cycle| cycle.waiting.contains(&source));
    }

    fn sent(&self, sent: Sent) {
        if let Sent::Transition(told) = sent {
            self.tell(|status| {
                status.counts.announced += 1;
                *status.transitions.entry(told).or_default() += 1;
            });
        }
    }

    fn end_is(&mut self, bounds: Option<Bounds>) {
        self.end = end_of(self.journal, END_EVERY);
        let Some(bounds) = bounds else { return };
        self.tell(|status| {
            status.end = bounds.last;
            status.behind.ends_at(bounds.last);
        });
    }

    fn wake_at(&self) -> Instant {
        let cycle = self.may_begin_cycle().then_some(self.next_cycle);
        let room = self.writes.len() < WRITES_AT_A_TIME;
        let due = self.schedule.wake_at().filter(|_| room);
        let at_most = Instant::now() + END_EVERY;
        let impatient = self.cycle.as_ref().filter(|cycle| cycle.waiting.is_empty()).map(|cycle| cycle.until);
        [cycle, due, impatient].into_iter().flatten().min().unwrap_or(at_most).min(at_most)
    }

    fn tell(&self, also: impl FnOnce(&mut Status)) {
        let mut status = self.status.lock();
        status.epoch = self.epoch;
        status.config_fed = self.fleet.fed();
        status.config_adopted = self.fleet.adopted();
        status.sources = self.fleet.len();
        status.unwritten = self.schedule.unwritten_count() + self.removals.len();
        status.unannounced = self.announcements.waiting();
        also(&mut status);
        let (position, end) = (status.position, status.end);
        status.behind.update(position, end);
    }
}

async fn pending_or(write: &mut Option<BoxFuture<'static, Written>>) -> Written {
    match write {
        Some(write) => write.await,
        None => std::future::pending().await,
    }
}

fn end_of(journal: &Journal, after: Duration) -> BoxFuture<'static, Option<Bounds>> {
    let log = Arc::clone(&journal.log);
    let asked_at = Instant::now() + after;
    async move {
        sleep_until(asked_at).await;
        log.bounds(Stream::Traffic).await.ok()
    }
    .boxed()
}
