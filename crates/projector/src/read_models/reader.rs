//! What a leader reads of the log: messages in their order, gathered until they are committed together.

use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::{Instant, sleep};
use waybill_journal::log::Following;
use waybill_journal::{Journal, Message, ReadError, Start};
use waybill_read_model::Projection;

use super::gather::{Gathered, stream};
use super::leader::{BACKOFF, Leader};

/// Most messages in a batch.
const MAX_MESSAGES: usize = 1_000;
/// Events after which a batch takes no further message. A batch waits for Postgres nine times, whatever its size; but what
/// is done in between must not come near the time that a transaction may lie idle.
const MAX_EVENTS: usize = 10_000;

/// How long a batch waits for more messages. Edits come seldom and are waited for by people.
const fn linger(projection: Projection) -> Duration {
    match projection {
        Projection::Config => Duration::from_millis(1),
        Projection::Traffic => Duration::from_millis(20),
    }
}

/// What the log tells; nothing when it has ended and must be followed anew.
pub(super) type Told = Option<Result<Message, ReadError>>;

pub(super) struct Reader<'a> {
    projection: Projection,
    journal: &'a Journal,
    following: Following,
    /// The message that comes next.
    expected: u64,
    gathered: Gathered,
    /// When the batch has waited long enough.
    until: Option<Instant>,
    /// Older messages are gone from the log, so that a boot may be met in its middle.
    aged: bool,
}

impl<'a> Reader<'a> {
    /// Reads from the message `expected` on.
    pub(super) fn new(projection: Projection, journal: &'a Journal, expected: u64) -> Self {
        let following = journal.log.follow(stream(projection), Start::At(expected));
        Self { projection, journal, following, expected, gathered: Gathered::default(), until: None, aged: false }
    }

    /// Whether the batch takes a further message.
    pub(super) fn has_room(&self) -> bool {
        let Gathered { messages, events, stop, .. } = &self.gathered;
        *messages < MAX_MESSAGES && events.len() < MAX_EVENTS && stop.is_none()
    }

    /// When the batch that is gathered may be committed; `None` when there is nothing to commit.
    pub(super) fn due_at(&self) -> Option<Instant> {
        if self.has_room() { self.until } else { Some(Instant::now()) }
    }

    /// Whether the batch that is gathered may be committed.
    pub(super) fn is_due(&self) -> bool {
        self.due_at().is_some_and(|at| at <= Instant::now())
    }

    /// Whether messages are gone from the log that were never folded.
    pub(super) const fn aged(&self) -> bool {
        self.aged
    }

    /// The batch; the next one begins.
    pub(super) fn take(&mut self) -> Gathered {
        self.until = None;
        std::mem::take(&mut self.gathered)
    }

    /// Waits for what the log tells next. It may be dropped and called again.
    pub(super) async fn next(&mut self) -> Told {
        self.following.next().await
    }

    /// Takes what was told.
    pub(super) async fn hear(&mut self, told: Told, leader: &Leader<'_>) {
        let message = match told {
            Some(Ok(message)) => message,
            Some(Err(error)) => {
                leader.trouble(&error);
                sleep(BACKOFF.0).await;
                return;
            }
            None => {
                sleep(BACKOFF.0).await;
                self.follow_anew();
                return;
            }
        };
        if message.sequence < self.expected {
            return;
        }
        if message.sequence > self.expected && !self.is_gone(&message, leader).await {
            self.follow_anew();
            return;
        }
        self.expected = message.sequence + 1;
        self.gathered.add(self.projection, &message);
        self.until.get_or_insert_with(|| Instant::now() + linger(self.projection));
        leader.met(message.sequence);
    }

    fn follow_anew(&mut self) {
        self.following = self.journal.log.follow(stream(self.projection), Start::At(self.expected));
    }

    /// Whether the messages between the expected one and the one met are gone from the log; otherwise they were only
    /// not delivered.
    async fn is_gone(&mut self, met: &Message, leader: &Leader<'_>) -> bool {
        let (projection, expected) = (self.projection, self.expected);
        let held = self.journal.log.read(stream(projection), expected, 1).await;
        let first = match held {
            Ok(messages) => messages.first().map(|message| message.sequence),
            Err(error) => {
                leader.trouble(&error);
                sleep(BACKOFF.0).await;
                None
            }
        };
        if first != Some(met.sequence) {
            return false;
        }
        tracing::error!(%projection, expected, met = met.sequence, "messages are gone from the log that were never folded");
        self.aged = true;
        leader.missed(met.sequence - expected);
        true
    }
}
