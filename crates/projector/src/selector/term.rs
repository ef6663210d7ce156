//! One term of leadership: folds what comes, writes values, announces transitions, writes checkpoints. One task does it
//! all; whatever waits for the store waits beside the fold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use waybill_domain::selector::fleet::{Anomaly, Effects, Urgency};
use waybill_domain::selector::{Checkpoint, FOLD_KEY, FleetState, value_key};
use waybill_event::{
    Body, ConfigPosition, DecodeError, Event, LogTime, Mark, Position, Source, decode_batch, decode_one,
};
use waybill_journal::log::Following;
use waybill_journal::{Bounds, Journal, Message, ReadError, Start, Stream};

use super::Config;
use super::announce::{Announcements, Sent};
use super::schedule::Schedule;
use super::status::Status;
use super::takeover::{Lost, READ_WITHIN, TakenOver, encode, take_over};
use super::write::{Write, Written, write};

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
                () = stop.cancelled() => return Ok(()),
                Some(write) = self.writes.next(), if !self.writes.is_empty() => self.wrote(&write)?,
                written = pending_or(&mut self.fold_write) => self.checkpoint_wrote(written)?,
                sent = self.announcements.sent() => self.sent(sent),
                edit = self.edits.next(), if !self.edits_stopped => self.edit(edit),
                message = self.messages.next(), if self.opened.is_none() && self.announcements.has_room() => {
                    self.message(message);
                }
                bounds = &mut self.end => self.end_is(bounds),
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

    /// Configuration that was there already is read before anything is folded, so that one marker covers it.
    async fn read_known_edits(&mut self) -> Result<(), Lost> {
        let bounds = self.journal.log.bounds(Stream::Config).await?;
        let deadline = Instant::now() + READ_WITHIN;
        while !self.edits_stopped && self.fleet.fed() < ConfigPosition(bounds.last) {
            match timeout_at(deadline, self.edits.next()).await {
                Ok(Some(Ok(message))) => self.feed(&message),
                Ok(Some(Err(error))) => self.trouble(&error),
                Ok(None) | Err(_) => return Err(Lost::Silent),
            }
        }
        if self.edits_stopped && self.fleet.needs().is_some() {
            tracing::error!("configuration that was adopted before can't be read here");
        }
        self.mark();
        Ok(())
    }

    fn edit(&mut self, edit: Option<Result<Message, ReadError>>) {
        match edit {
            Some(Ok(message)) => {
                self.feed(&message);
                self.mark();
            }
            Some(Err(error)) => self.trouble(&error),
            None => self.edits_stopped = true,
        }
    }

    fn feed(&mut self, message: &Message) {
        let fed = match decode_one(&message.payload) {
            Ok(event) => {
                self.fleet.feed_config(&event, ConfigPosition(message.sequence)).map_err(|unknown| unknown.to_string())
            }
            Err(error) => Err(format!("edit {} can't be read: {error}", message.sequence)),
        };
        if let Err(why) = fed {
            tracing::error!(why, "configuration stops here for the selector");
            self.edits_stopped = true;
            self.tell(|status| status.stopped_by = Some(why));
        }
    }

    fn mark(&mut self) {
        let now = (self.config.clock)();
        self.announcements.mark(self.fleet.fed(), self.fleet.adopted(), now);
    }

    fn message(&mut self, message: Option<Result<Message, ReadError>>) {
        let message = match message {
            Some(Ok(message)) => message,
            Some(Err(ReadError::Gap { .. })) => return,
            Some(Err(error)) => return self.trouble(&error),
            None => return,
        };
        if message.sequence > self.expected {
            let missing = message.sequence - self.expected;
            tracing::error!(expected = self.expected, met = message.sequence, "messages are gone from the log");
            self.fleet.begin_after_gap();
            self.tell(|status| status.counts.missing_messages += missing);
        }
        self.expected = message.sequence + 1;
        let events = decode_batch(&message.payload).unwrap_or_else(|error| vec![Err(error)]);
        self.opened = Some(Opened { sequence: message.sequence, stored_at: message.stored_at, events, next: 0 });
    }

    /// Folds the message at hand, until it is done or waits for configuration.
    fn fold_opened(&mut self) {
        let Some(mut opened) = self.opened.take() else { return };
        let begun = opened.next;
        if opened.events.is_empty() {
            self.fleet.pass_over(None, Position::new(opened.sequence, 0));
        }
        while let Some(event) = opened.events.get(opened.next) {
            let index = u16::try_from(opened.next).unwrap_or(u16::MAX);
            let position = Position::new(opened.sequence, index);
            if !self.fold(event, position, opened.stored_at) {
                break;
            }
            opened.next += 1;
        }
        let done = opened.next >= opened.events.len();
        let (sequence, stored_at) = (opened.sequence, opened.stored_at);
        let folded = u64::try_from(opened.next - begun).unwrap_or(0);
        if !done {
            self.opened = Some(opened);
        }
        self.tell(|status| {
            status.counts.events += folded;
            if done {
                status.position = sequence;
                status.stored_at = Some(stored_at);
                status.end = status.end.max(sequence);
                status.trouble = None;
            }
        });
    }

    /// Folds one event. `false`: configuration must come first.
    fn fold(&mut self, event: &Result<Event, DecodeError>, position: Position, stored_at: LogTime) -> bool {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                tracing::error!(%position, %error, "an event can't be read and is passed over");
                let mark = match error {
                    DecodeError::Payload { id, .. } => id.parse::<Mark>().ok(),
                    DecodeError::Envelope(_) => None,
                };
                self.fleet.pass_over(mark.as_ref(), position);
                self.tell(|status| status.counts.unreadable += 1);
                return true;
            }
        };
        let adopted = self.fleet.adopted();
        let Ok(effects) = self.fleet.apply(event, position, stored_at) else { return false };
        let unknown = matches!(event.draft.body, Body::Unknown(_));
        if unknown || effects.duplicate || effects.anomaly.is_some() {
            self.count(unknown, &effects);
        }
        self.take_effects(effects);
        if self.fleet.adopted() != adopted {
            tracing::info!(config = %self.fleet.adopted(), %position, "configuration adopted");
        }
        true
    }

    fn count(&self, unknown: bool, effects: &Effects) {
        if let Some(anomaly) = &effects.anomaly {
            tracing::error!(?anomaly, "the log doesn't hold what it should");
        }
        self.tell(|status| {
            status.counts.unknown += u64::from(unknown);
            status.counts.duplicates += u64::from(effects.duplicate);
            match &effects.anomaly {
                Some(Anomaly::TooFar(_)) => status.counts.too_far += 1,
                Some(Anomaly::Missing { last, low_water }) => {
                    status.counts.missing_events += last.n.saturating_sub(*low_water);
                }
                None => {}
            }
        });
    }

    fn take_effects(&mut self, effects: Effects) {
        let now = Instant::now();
        let config = self.fleet.adopted();
        for transition in &effects.transitions {
            let rev = self.fleet.source(transition.source()).map_or(0, |state| state.rev);
            self.announcements.announce(transition, rev, config);
        }
        for (source, urgency) in effects.touched {
            self.schedule.touch(source, urgency, now);
        }
        for source in effects.removed {
            self.schedule.touch(source, Urgency::Now, now);
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

    fn complete(&mut self, source: Source, position: Position) {
        if let Some(cycle) = self.cycle.as_mut().filter(|cycle| position >= cycle.checkpoint.position) {
            cycle.waiting.remove(&source);
        }
    }

    /// A checkpoint is the present position, once every value is complete up to it and every announcement is in the log.
    fn begin_checkpoint(&mut self) -> Result<(), Lost> {
        if self.fold_write.is_some() {
            return Ok(());
        }
        if self.may_begin_cycle() && Instant::now() >= self.next_cycle {
            self.next_cycle = Instant::now() + self.config.pace.checkpoint_every;
            let checkpoint = self.fleet.checkpoint(self.epoch);
            self.cycle = Some(Cycle { checkpoint, waiting: self.schedule.unwritten() });
        }
        let ready = |cycle: &Cycle| cycle.waiting.is_empty() && !self.announcements.lacks(cycle.checkpoint.position);
        if self.cycle.as_ref().is_some_and(ready)
            && let Some(cycle) = self.cycle.take()
        {
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

    fn sent(&self, sent: Sent) {
        if sent == Sent::Transition {
            self.tell(|status| status.counts.announced += 1);
        }
    }

    fn end_is(&mut self, bounds: Option<Bounds>) {
        self.end = end_of(self.journal, END_EVERY);
        let Some(bounds) = bounds else { return };
        self.tell(|status| {
            status.end = bounds.last;
            status.waiting_since = match (status.lag_messages(), status.waiting_since) {
                (0, _) => None,
                (_, since) => since.or_else(|| Some(Instant::now())),
            };
        });
    }

    /// Following goes on by itself.
    fn trouble(&self, error: &ReadError) {
        tracing::warn!(%error, "following the log goes on");
        self.tell(|status| status.trouble = Some(error.to_string()));
    }

    fn wake_at(&self) -> Instant {
        let cycle = self.may_begin_cycle().then_some(self.next_cycle);
        let room = self.writes.len() < WRITES_AT_A_TIME;
        let due = self.schedule.wake_at().filter(|_| room);
        let at_most = Instant::now() + END_EVERY;
        [cycle, due].into_iter().flatten().min().unwrap_or(at_most).min(at_most)
    }

    fn tell(&self, also: impl FnOnce(&mut Status)) {
        let mut status = self.status.lock();
        status.epoch = self.epoch;
        status.config_fed = self.fleet.fed();
        status.config_adopted = self.fleet.adopted();
        status.sources = self.fleet.len();
        status.unwritten = self.schedule.unwritten_count();
        status.unannounced = self.announcements.waiting();
        also(&mut status);
        if status.lag_messages() == 0 {
            status.waiting_since = None;
        }
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
