//! The one that folds a projection: follows the log from the checkpoint on and commits batch after batch.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout_at};
use waybill_domain::catalog::UnknownEdit;
use waybill_domain::history::Placed;
use waybill_event::{Body, Position, decode_one};
use waybill_journal::log::Following;
use waybill_journal::{Journal, Message, Start};
use waybill_read_model::{Batch, Checkpoint, Projection, ReadModel, StoreError, Why};

use super::gather::{Gathered, stream, words};
use super::losses::{Beating, LossConfig, Losses, Standing};
use super::status::{Counts, Status};

/// Most messages in a batch.
const MAX_MESSAGES: usize = 1_000;
/// Events after which a batch takes no further message.
const MAX_EVENTS: usize = 5_000;
/// How often the log's end is asked for.
const END_EVERY: Duration = Duration::from_secs(1);
/// Between tries when the store or the log is away: doubled each time, from the first to the last.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Rows of unknown events looked at in one go.
const UNKNOWN_PAGE: u32 = 500;

/// How long a batch waits for more messages. Edits come seldom and are waited for by people.
const fn linger(projection: Projection) -> Duration {
    match projection {
        Projection::Config => Duration::from_millis(1),
        Projection::Traffic => Duration::from_millis(20),
    }
}

/// Why a leader ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// Another one leads.
    Fenced,
    /// There is an edit that this program can't read.
    Stopped(UnknownEdit),
    /// It can't go on without somebody's doing.
    Failed(StoreError),
}

pub(super) struct Leader<'a> {
    pub(super) projection: Projection,
    pub(super) journal: &'a Journal,
    pub(super) store: &'a ReadModel,
    pub(super) status: &'a Mutex<Status>,
    checkpoint: Checkpoint,
    /// Only of the fold whose rows are requests.
    losses: Option<Losses<'a>>,
    beating: &'a Beating,
    /// Older messages are gone from the log, so that a boot may be met in its middle.
    aged: bool,
    end_asked: Option<Instant>,
}

impl<'a> Leader<'a> {
    /// Takes over, so that whoever led before can't write any more.
    pub(super) async fn take_over(
        projection: Projection,
        journal: &'a Journal,
        store: &'a ReadModel,
        status: &'a Mutex<Status>,
        losses: &'a LossConfig,
        beating: &'a Beating,
    ) -> Result<Self, StoreError> {
        let checkpoint = store.take_over(projection).await?;
        let losses = match projection {
            Projection::Traffic => Some(Losses::new(losses, beating)),
            Projection::Config => None,
        };
        tracing::info!(%projection, epoch = checkpoint.epoch, position = checkpoint.position, "folding from here on");
        let leader =
            Self { projection, journal, store, status, checkpoint, losses, beating, aged: false, end_asked: None };
        leader.tell(|status| {
            status.leading = true;
            status.trouble = None;
            status.stopped_by = None;
        });
        Ok(leader)
    }

    fn tell(&self, also: impl FnOnce(&mut Status)) {
        let mut status = self.status.lock();
        status.epoch = self.checkpoint.epoch;
        status.position = self.checkpoint.position;
        status.stored_at = self.checkpoint.stored_at;
        also(&mut status);
        status.end = status.end.max(self.checkpoint.position);
        if status.end <= status.position {
            status.behind_since = None;
        } else {
            status.behind_since.get_or_insert_with(Instant::now);
        }
    }

    /// Folds until it can't go on.
    pub(super) async fn lead(mut self) -> Ended {
        if self.losses.is_none() {
            let Err(ended) = self.fold_on().await;
            return ended;
        }
        let (beating, journal) = (self.beating, self.journal);
        tokio::select! {
            Err(ended) = self.fold_on() => ended,
            never = beating.watch(journal) => match never {},
        }
    }

    async fn fold_on(&mut self) -> Result<Infallible, Ended> {
        self.fold_what_is_known_now().await?;
        self.follow().await
    }

    /// Events whose type wasn't known when they came, and is now.
    async fn fold_what_is_known_now(&mut self) -> Result<(), Ended> {
        let mut after: Option<Position> = None;
        loop {
            let page = match self.store.unprojectable(self.projection, after, UNKNOWN_PAGE).await {
                Ok(page) => page,
                Err(error) if error.may_pass() => {
                    self.trouble(&error);
                    sleep(BACKOFF.1).await;
                    continue;
                }
                Err(error) => return Err(Ended::Failed(error)),
            };
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.position);
            let mut gathered = Gathered { last: self.checkpoint.position, ..Gathered::default() };
            let mut solved = Vec::new();
            for left in page.iter().filter(|left| left.why == Why::Unknown) {
                if let Ok(event) = decode_one(left.event.as_bytes())
                    && !matches!(event.draft.body, Body::Unknown(_))
                {
                    let (position, stored_at) = (left.position, left.stored_at);
                    gathered.events.push(Placed { event, position, stored_at });
                    solved.push(position);
                }
            }
            if !solved.is_empty() {
                tracing::info!(projection = %self.projection, events = solved.len(), "folding events that are known by now");
                self.commit(gathered, &solved).await?;
            }
        }
    }

    async fn follow(&mut self) -> Result<Infallible, Ended> {
        loop {
            let start = Start::At(self.checkpoint.position + 1);
            let mut following = self.journal.log.follow(stream(self.projection), start);
            loop {
                let gathered = self.gather(&mut following).await?;
                let stop = gathered.stop.clone();
                let again = gathered.messages == 0;
                if !again {
                    self.commit(gathered, &[]).await?;
                }
                if let Some(edit) = stop {
                    return Err(Ended::Stopped(edit));
                }
                if again {
                    break;
                }
            }
        }
    }

    /// Waits for a message and takes what comes soon after it. A batch without messages asks to follow anew.
    async fn gather(&mut self, following: &mut Following) -> Result<Gathered, Ended> {
        let mut gathered = Gathered::default();
        let mut expected = self.checkpoint.position + 1;
        let mut until: Option<Instant> = None;
        while gathered.messages < MAX_MESSAGES && gathered.events.len() < MAX_EVENTS && gathered.stop.is_none() {
            let limit = until.unwrap_or_else(|| Instant::now() + END_EVERY);
            let message = match timeout_at(limit, following.next()).await {
                Ok(Some(Ok(message))) => message,
                Ok(Some(Err(error))) => {
                    self.trouble(&error);
                    sleep(BACKOFF.0).await;
                    continue;
                }
                Ok(None) => {
                    sleep(BACKOFF.0).await;
                    break;
                }
                Err(_) if until.is_some() => break,
                Err(_) => {
                    self.ask_end().await;
                    self.look_for_losses().await;
                    continue;
                }
            };
            if message.sequence < expected {
                continue;
            }
            if message.sequence > expected && !self.is_gone(expected, &message).await {
                break;
            }
            expected = message.sequence + 1;
            gathered.add(self.projection, &message);
            if until.is_none() {
                until = Some(Instant::now() + linger(self.projection));
                self.tell(|status| status.end = status.end.max(message.sequence));
            }
        }
        Ok(gathered)
    }

    /// Whether the messages between the expected one and the one met are gone from the log; otherwise they were only
    /// not delivered.
    async fn is_gone(&mut self, expected: u64, met: &Message) -> bool {
        let held = self.journal.log.read(stream(self.projection), expected, 1).await;
        let first = match held {
            Ok(messages) => messages.first().map(|message| message.sequence),
            Err(error) => {
                self.trouble(&error);
                sleep(BACKOFF.0).await;
                None
            }
        };
        if first != Some(met.sequence) {
            return false;
        }
        let missing = met.sequence - expected;
        tracing::error!(projection = %self.projection, expected, met = met.sequence, "messages are gone from the log that were never folded");
        self.aged = true;
        self.status.lock().counts.missing_messages += missing;
        true
    }

    /// Commits a batch, again and again while the store is away.
    async fn commit(&mut self, mut gathered: Gathered, solved: &[Position]) -> Result<(), Ended> {
        let mut counts = Counts::default();
        let mut to = self.checkpoint.clone();
        to.position = gathered.last;
        to.stored_at = gathered.stored_at.or(to.stored_at);
        if solved.is_empty() {
            gathered.drop_known(&mut to.dedup, self.aged, &mut counts);
        }
        let mut pause = BACKOFF.0;
        loop {
            let batch = Batch {
                projection: self.projection,
                from: self.checkpoint.position,
                to: &to,
                events: &gathered.events,
                unreadable: gathered.unreadable.clone(),
                solved,
            };
            match self.store.commit(batch).await {
                Ok(committed) => {
                    counts.unprojectable += committed.unprojectable.len() as u64;
                    break;
                }
                Err(StoreError::Fenced { .. }) => return Err(Ended::Fenced),
                Err(StoreError::UnknownEdit(edit)) => return Err(Ended::Stopped(edit)),
                Err(error) if error.may_pass() => {
                    self.trouble(&error);
                    sleep(pause).await;
                    pause = (pause * 2).min(BACKOFF.1);
                    self.ask_end().await;
                    if self.is_committed(&to).await? {
                        break;
                    }
                }
                Err(error) => return Err(Ended::Failed(error)),
            }
        }
        counts.batches = 1;
        counts.events = gathered.events.len() as u64;
        let drained = gathered.events.iter().any(|placed| matches!(placed.event.draft.body, Body::OutboxDrained(_)));
        if let Some(losses) = self.losses.as_mut().filter(|_| drained) {
            losses.drained();
        }
        self.checkpoint = to;
        self.tell(|status| {
            status.trouble = None;
            status.counts.add(counts);
        });
        self.ask_end().await;
        self.look_for_losses().await;
        Ok(())
    }

    /// Looks for requests whose owners are lost, when it is time to. What hinders that doesn't hinder the fold.
    async fn look_for_losses(&mut self) {
        let Some(losses) = self.losses.as_mut().filter(|losses| losses.is_due(&self.checkpoint)) else { return };
        let at_end = self.status.lock().end <= self.checkpoint.position;
        let standing = Standing { checkpoint: &self.checkpoint, at_end };
        match losses.look(self.journal, self.store, standing).await {
            Ok(declared) => self.status.lock().counts.declared_lost += declared,
            Err(error) => tracing::warn!(error = %words(&error), "lost requests wait to be declared"),
        }
    }

    /// After a try of which nobody knows whether it was taken: whether it was. Says no also when the store is still
    /// away; the next try finds out.
    async fn is_committed(&self, to: &Checkpoint) -> Result<bool, Ended> {
        match self.store.checkpoint(self.projection).await {
            Ok(Some(held)) if held.epoch != to.epoch => Err(Ended::Fenced),
            Ok(Some(held)) => Ok(held.position == to.position && to.position != self.checkpoint.position),
            Ok(None) => Err(Ended::Fenced),
            Err(error) if error.may_pass() => Ok(false),
            Err(error) => Err(Ended::Failed(error)),
        }
    }

    /// Asks for the log's end, at most once a second.
    async fn ask_end(&mut self) {
        if self.end_asked.is_some_and(|asked| asked.elapsed() < END_EVERY) {
            return;
        }
        self.end_asked = Some(Instant::now());
        match self.journal.log.bounds(stream(self.projection)).await {
            Ok(bounds) => self.tell(|status| status.end = bounds.last),
            Err(error) => self.trouble(&error),
        }
    }

    fn trouble(&self, error: &dyn std::error::Error) {
        let text = words(error);
        let mut status = self.status.lock();
        if status.trouble.as_ref() != Some(&text) {
            tracing::warn!(projection = %self.projection, error = %text, "the fold waits");
        }
        status.trouble = Some(text);
    }
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.batches += other.batches;
        self.events += other.events;
        self.duplicates += other.duplicates;
        self.too_far += other.too_far;
        self.unprojectable += other.unprojectable;
        self.missing_messages += other.missing_messages;
        self.missing_events += other.missing_events;
        self.declared_lost += other.declared_lost;
    }
}
