//! Refreshes the tokens of accounts: ahead of their end, and when a replica asks for it; one process at a time over the
//! whole fleet. Nobody else does.

pub mod lease;
pub mod pace;
pub mod spool;

mod desk;
mod one;
mod storing;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;
use waybill_journal::dice::Dice;
use waybill_journal::log::ReadError;
use waybill_journal::outbox::{Clock, Outbox};
use waybill_journal::{Bucket, Journal, Message, Start, Stream};
use waybill_secret::Vault;
use waybill_upstream::Dispatcher;

use desk::Desk;
use lease::Leases;
use one::Done;
use pace::Pace;
use spool::Spool;

/// Refreshes under way at a time.
const AT_A_TIME: usize = 16;
/// When the log is asked again that didn't answer.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Longest sleep: the clock of the log may be slewed meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(10);
/// How long a stop waits for what OAuth servers still have to say, beyond their own time.
const STOP_LONGER: Duration = Duration::from_secs(2);

/// What a refresher is built from.
pub struct RefreshParts {
    /// The log and the keyed state.
    pub journal: Journal,
    /// Where it tells what it did; its subject is `wb.traffic.0.upkeep`.
    pub outbox: Outbox,
    /// The time of the log.
    pub clock: Clock,
    /// Opens and seals tokens; it is kept filled with those of accounts.
    pub vault: Arc<Vault>,
    /// Asks OAuth servers.
    pub dispatcher: Dispatcher,
    /// How soon what is refreshed.
    pub pace: Pace,
    /// Random numbers, for the spread of pauses.
    pub dice: Dice,
    /// Folder for tokens that were got and aren't in the log yet. It outlives the process.
    pub dir: PathBuf,
}

/// How the refreshing stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RefreshStatus {
    /// Whether catalogue, tokens and states were read to what was their end at the start.
    pub current: bool,
    /// Accounts whose tokens can be refreshed.
    pub accounts: usize,
    /// Of these, those whose access token has expired.
    pub expired: usize,
    /// Refreshes under way, those included that wait for the log to take what was got.
    pub under_way: usize,
    /// Tokens refreshed since the start.
    pub refreshed: u64,
    /// Tries that failed and may succeed later.
    pub failed: u64,
    /// Tries that failed for good.
    pub refused: u64,
    /// What couldn't be told to the log.
    pub unrecorded: u64,
}

/// Refreshes the tokens of accounts.
pub struct Refresher {
    journal: Journal,
    outbox: Outbox,
    clock: Clock,
    vault: Arc<Vault>,
    dispatcher: Dispatcher,
    pace: Pace,
    dice: Dice,
    leases: Leases,
    spool: Spool,
    status: RwLock<RefreshStatus>,
}

type Refreshing<'a> = FuturesUnordered<BoxFuture<'a, Done>>;

/// Where the streams ended when it began.
#[derive(Debug, Clone, Copy)]
struct Ends {
    config: u64,
    secret: u64,
}

impl Refresher {
    /// A refresher that knows nothing yet.
    ///
    /// # Errors
    /// Its folder can't be made.
    pub fn new(parts: RefreshParts) -> io::Result<Self> {
        let RefreshParts { journal, outbox, clock, vault, dispatcher, pace, dice, dir } = parts;
        let holds = pace.answer + pace.return_of_others;
        let leases = Leases::new(Arc::clone(&journal.keyed), outbox.producer().clone(), holds);
        let (spool, status) = (Spool::open(dir)?, RwLock::default());
        Ok(Self { journal, outbox, clock, vault, dispatcher, pace, dice, leases, spool, status })
    }

    /// How it stands.
    #[must_use]
    pub fn status(&self) -> RefreshStatus {
        self.status.read().clone()
    }

    /// Runs until `stop`. What an OAuth server is being asked for then is waited for: an answer nobody hears would cost the
    /// login.
    pub async fn run(&self, stop: CancellationToken) {
        let mut desk = Desk::new(self.found());
        let mut under_way = Refreshing::new();
        let mut edits = self.journal.log.follow(Stream::Config, Start::LastPerSubject);
        // Two messages of an account may count: an import that isn't named yet, and what its former login was refreshed to.
        let mut tokens = self.journal.log.follow(Stream::Secret, Start::At(1));
        let mut marks = self.journal.keyed.watch(Bucket::Permits);
        let mut states = self.journal.keyed.watch(Bucket::Selector);
        let mut ends = Box::pin(self.ends());
        let mut known_ends = None;
        loop {
            let wait = self.begin_due(&mut desk, &mut under_way, known_ends, &stop);
            let slept = tokio::time::sleep(wait);
            tokio::pin!(slept);
            // Most of what is watched is about something else, and changes nothing here.
            while !tokio::select! {
                biased;
                () = stop.cancelled() => return self.finish(under_way).await,
                found = &mut ends, if known_ends.is_none() => {
                    known_ends = Some(found);
                    true
                }
                Some(done) = under_way.next(), if !under_way.is_empty() => {
                    desk.done(&done, &self.pace, (self.dice)(), (self.clock)());
                    true
                }
                () = &mut slept => true,
                Some(edit) = edits.next() => self.heard(edit, |edit| desk.edit(edit)),
                Some(message) = tokens.next() => self.heard(message, |message| self.take(&mut desk, message)),
                Some(state) = states.next() => self.heard(state, |state| desk.state(state)),
                Some(mark) = marks.next() => self.heard(mark, |mark| desk.marked(mark, &self.vault)),
            } {}
        }
    }

    /// Begins what is due; gives the time until the next is.
    fn begin_due<'a>(
        &'a self,
        desk: &mut Desk,
        under_way: &mut Refreshing<'a>,
        ends: Option<Ends>,
        stop: &CancellationToken,
    ) -> Duration {
        // Before everything is known, tokens may look newest that aren't, and accounts enabled that an edit disables.
        let current = ends.is_some_and(|ends| desk.is_current(ends.config, ends.secret));
        let mut wait = LONGEST_SLEEP;
        if current {
            while let Some(kept) = desk.next_found() {
                let entity = desk.entity(kept.account);
                under_way.push(self.store_found(kept, entity, desk.position(), stop.clone()).boxed());
            }
            while under_way.len() < AT_A_TIME {
                let now = (self.clock)();
                let (job, next) = desk.due(&self.vault, &self.pace, now);
                let Some(job) = job else {
                    wait = next.map_or(wait, |next| next.since(now).min(wait));
                    break;
                };
                under_way.push(self.refresh(job, stop.clone()).boxed());
            }
        }
        let (accounts, expired) = desk.count(&self.vault, (self.clock)());
        let mut status = self.status.write();
        status.current = current;
        (status.accounts, status.expired) = (accounts, expired);
        status.under_way = under_way.len();
        wait
    }

    fn take(&self, desk: &mut Desk, message: &Message) -> bool {
        desk.heard_secret(message.sequence);
        if let Err(error) = self.vault.take(&message.subject, message.sequence, &message.payload) {
            tracing::error!(%error, "a sealed credential can't be used");
        }
        true
    }

    fn heard<T>(&self, item: Result<T, ReadError>, take: impl FnOnce(&T) -> bool) -> bool {
        match item {
            Ok(item) => take(&item),
            Err(error) => {
                tracing::warn!(%error, "what accounts' tokens depend on can't be followed for now");
                false
            }
        }
    }

    fn found(&self) -> Vec<spool::Kept> {
        let found = self.spool.kept().unwrap_or_else(|error| {
            tracing::error!(%error, "the folder of refreshed tokens can't be read");
            Vec::new()
        });
        if !found.is_empty() {
            tracing::warn!(accounts = found.len(), "tokens were got by an earlier start and aren't known to be stored");
        }
        found
    }

    async fn finish(&self, mut under_way: Refreshing<'_>) {
        let all = async { while under_way.next().await.is_some() {} };
        if tokio::time::timeout(self.pace.answer + STOP_LONGER, all).await.is_err() {
            tracing::error!("an OAuth server was asked for tokens and hasn't answered at the stop");
        }
    }

    async fn ends(&self) -> Ends {
        let log = &self.journal.log;
        loop {
            match tokio::try_join!(log.bounds(Stream::Config), log.bounds(Stream::Secret)) {
                Ok((config, secret)) => return Ends { config: config.last, secret: secret.last },
                Err(error) => {
                    tracing::warn!(%error, "the log doesn't say where it ends yet");
                    tokio::time::sleep(ASK_AGAIN).await;
                }
            }
        }
    }
}
