//! The one that folds a projection: follows the log from the checkpoint on and commits batch after batch. While one batch
//! is on its way into the tables, the next one is read.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};
use waybill_domain::catalog::UnknownEdit;
use waybill_domain::history::Placed;
use waybill_event::{Body, Position, decode_one};
use waybill_journal::Journal;
use waybill_read_model::{Checkpoint, Projection, ReadModel, StoreError, Why};

use super::aging::Aging;
use super::commit::{Commit, Done};
use super::gather::{Gathered, stream, words};
use super::losses::{Beating, LossConfig, Losses, Standing};
use super::reader::Reader;
use super::status::{Counts, Status};
use crate::lag::Behind;

/// How often the log's end is asked for.
const END_EVERY: Duration = Duration::from_secs(1);
/// Between tries when the store or the log is away: doubled each time, from the first to the last.
pub(super) const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Rows of unknown events looked at in one go.
const UNKNOWN_PAGE: u32 = 500;

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
    losses: Option<(Losses<'a>, &'a Beating)>,
    aging: Option<Aging>,
    end_asked: Option<Instant>,
}

impl<'a> Leader<'a> {
    /// Takes over, so that whoever led before can't write any more.
    pub(super) async fn take_over(
        projection: Projection,
        journal: &'a Journal,
        store: &'a ReadModel,
        status: &'a Mutex<Status>,
    ) -> Result<Self, StoreError> {
        let checkpoint = store.take_over(projection).await?;
        tracing::info!(%projection, epoch = checkpoint.epoch, position = checkpoint.position, "folding from here on");
        let leader =
            Self { projection, journal, store, status, checkpoint, losses: None, aging: None, end_asked: None };
        leader.tell(|status| {
            status.leading = true;
            status.behind = Behind::default();
            status.trouble = None;
            status.stopped_by = None;
        });
        Ok(leader)
    }

    /// The same, which also minds requests whose owners are lost, and days that are too old.
    pub(super) fn minding(self, losses: &'a LossConfig, beating: &'a Beating, keep_days: Option<u32>) -> Self {
        let losses = Some((Losses::new(losses, beating), beating));
        Self { losses, aging: keep_days.map(Aging::new), ..self }
    }

    fn tell(&self, also: impl FnOnce(&mut Status)) {
        let mut status = self.status.lock();
        status.epoch = self.checkpoint.epoch;
        status.position = self.checkpoint.position;
        status.stored_at = self.checkpoint.stored_at;
        also(&mut status);
        status.end = status.end.max(self.checkpoint.position);
        let (position, end) = (status.position, status.end);
        status.behind.update(position, end);
    }

    /// Folds until it can't go on.
    pub(super) async fn lead(mut self) -> Ended {
        let Some((_, beating)) = self.losses else {
            let Err(ended) = self.fold_on().await;
            return ended;
        };
        let journal = self.journal;
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
                let done = self.begin(gathered, solved, false).await?;
                self.committed(done).await;
            }
        }
    }

    async fn follow(&mut self) -> Result<Infallible, Ended> {
        let mut reader = Reader::new(self.projection, self.journal, self.checkpoint.position + 1);
        let mut under_way: Option<BoxFuture<'a, Result<Done, Ended>>> = None;
        loop {
            if under_way.is_none() && reader.is_due() {
                let gathered = reader.take();
                if let (0, Some(edit)) = (gathered.messages, gathered.stop.clone()) {
                    return Err(Ended::Stopped(edit));
                }
                under_way = Some(self.begin(gathered, Vec::new(), reader.aged()).boxed());
            }
            let idle = under_way.is_none();
            let wake = reader.due_at().filter(|_| idle).unwrap_or_else(|| Instant::now() + END_EVERY);
            tokio::select! {
                biased;
                done = pending_or(&mut under_way) => {
                    under_way = None;
                    let done = done?;
                    let stop = done.stop.clone();
                    self.committed(done).await;
                    if let Some(edit) = stop {
                        return Err(Ended::Stopped(edit));
                    }
                }
                told = reader.next(), if reader.has_room() => reader.hear(told, self).await,
                () = sleep_until(wake) => {
                    self.ask_end().await;
                    if idle {
                        self.mind().await;
                    }
                }
            }
        }
    }

    /// The commit of a batch, which needs nothing of this but what stands now.
    fn begin(
        &self,
        gathered: Gathered,
        solved: Vec<Position>,
        aged: bool,
    ) -> impl Future<Output = Result<Done, Ended>> + Send + use<'a> {
        let commit = Commit {
            projection: self.projection,
            store: self.store,
            status: self.status,
            from: self.checkpoint.clone(),
            solved,
            aged,
        };
        commit.run(gathered)
    }

    /// A batch is in the tables.
    async fn committed(&mut self, done: Done) {
        if let Some((losses, _)) = self.losses.as_mut().filter(|_| done.drained) {
            losses.drained();
        }
        self.checkpoint = done.checkpoint;
        self.tell(|status| {
            status.trouble = None;
            status.counts.add(done.counts);
        });
        self.ask_end().await;
        self.mind().await;
    }

    /// Messages were missed, or one was met: what the status says of it.
    pub(super) fn missed(&self, missing: u64) {
        self.status.lock().counts.missing_messages += missing;
    }

    /// The log holds this message at least.
    pub(super) fn met(&self, sequence: u64) {
        self.tell(|status| status.end = status.end.max(sequence));
    }

    /// Looks for days that are too old and for requests whose owners are lost, when it is time to. What hinders that
    /// doesn't hinder the fold.
    async fn mind(&mut self) {
        if let Some(aging) = &mut self.aging {
            match aging.look(self.store, &self.checkpoint).await {
                Ok(dropped) => self.status.lock().counts.dropped_days += dropped,
                Err(error) => tracing::warn!(error = %words(&error), "days that are too old stay for now"),
            }
        }
        let Some((losses, _)) = self.losses.as_mut().filter(|(losses, _)| losses.is_due(&self.checkpoint)) else {
            return;
        };
        let at_end = self.status.lock().end <= self.checkpoint.position;
        let standing = Standing { checkpoint: &self.checkpoint, at_end };
        match losses.look(self.journal, self.store, standing).await {
            Ok(declared) => self.status.lock().counts.declared_lost += declared,
            Err(error) => tracing::warn!(error = %words(&error), "lost requests wait to be declared"),
        }
    }

    /// Asks for the log's end, at most once a second.
    async fn ask_end(&mut self) {
        if self.end_asked.is_some_and(|asked| asked.elapsed() < END_EVERY) {
            return;
        }
        self.end_asked = Some(Instant::now());
        match self.journal.log.bounds(stream(self.projection)).await {
            Ok(bounds) => self.tell(|status| {
                status.end = bounds.last;
                status.behind.ends_at(bounds.last);
            }),
            Err(error) => self.trouble(&error),
        }
    }

    pub(super) fn trouble(&self, error: &dyn std::error::Error) {
        trouble(self.projection, self.status, error);
    }
}

/// Says what hinders the fold; in the log once for each thing.
pub(super) fn trouble(projection: Projection, status: &Mutex<Status>, error: &dyn std::error::Error) {
    let text = words(error);
    let mut status = status.lock();
    if status.trouble.as_ref() != Some(&text) {
        tracing::warn!(%projection, error = %text, "the fold waits");
    }
    status.trouble = Some(text);
}

async fn pending_or<T>(under_way: &mut Option<BoxFuture<'_, T>>) -> T {
    match under_way {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.batches += other.batches;
        self.messages += other.messages;
        self.events += other.events;
        self.duplicates += other.duplicates;
        self.too_far += other.too_far;
        self.unprojectable += other.unprojectable;
        self.missing_messages += other.missing_messages;
        self.missing_events += other.missing_events;
        self.declared_lost += other.declared_lost;
        self.dropped_days += other.dropped_days;
    }
}
