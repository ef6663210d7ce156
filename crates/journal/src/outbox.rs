//! The outbox: the only path of a replica's events into the log.
//!
//! Events are appended, in order, to a local file before what they announce is done; a publisher sends them as
//! messages of up to 128 events, one message at a time, again and again until the log has taken them. What is appended
//! has an ordinal, what was refused has none. There is no fsync: the death of the process loses nothing, the death of
//! the machine at most what was not yet acknowledged.

mod batch;
mod directory;
mod progress;
mod publisher;
mod queue;
mod reader;
mod record;
mod segment;
mod state;

use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use waybill_event::envelope::Encoded;
use waybill_event::{Boot, LogTime, ProducerId};

use crate::dice::{self, Dice};
use directory::Directory;
use progress::Watched;
use segment::Segments;
use state::{Room, State};

pub use batch::BatchLimits;
pub use publisher::{Publisher, Stopped};

/// Tells the time of the log.
pub type Clock = Arc<dyn Fn() -> LogTime + Send + Sync>;

/// How long the publisher waits before it sends a batch again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// After the first failure; doubled with each further one.
    pub first: Duration,
    /// At most, when the log doesn't answer or is full.
    pub longest: Duration,
    /// When the log refuses the message, which no retry is likely to cure.
    pub refused: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { first: Duration::from_millis(50), longest: Duration::from_secs(2), refused: Duration::from_secs(5) }
    }
}

/// What an outbox is opened with.
#[derive(Clone)]
pub struct OutboxConfig {
    /// Its directory, which it holds alone.
    pub dir: PathBuf,
    /// Whose events these are.
    pub producer: ProducerId,
    /// The subject they are appended to, e.g. `wb.traffic.0.proxy`.
    pub subject: String,
    /// Bytes of unacknowledged events above which appends are refused. The files may take three segments more.
    pub max_bytes: u64,
    /// Size of one file.
    pub segment_bytes: u64,
    /// What a reservation promises to one request.
    pub finish_reserve_bytes: u64,
    /// Bytes kept in memory for the publisher; what goes beyond is read back from the file.
    pub memory_bytes: usize,
    /// How large a message becomes.
    pub batch: BatchLimits,
    /// When a message is sent again.
    pub retry: Retry,
    /// Dates the outbox's own events.
    pub clock: Clock,
    /// Spreads the waits of resends.
    pub dice: Dice,
}

impl OutboxConfig {
    /// A configuration with the usual limits: 1 GiB in files of 2 MiB, 16 KB promised to a request, 16 MiB in memory.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, producer: ProducerId, subject: impl Into<String>, clock: Clock) -> Self {
        Self {
            dir: dir.into(),
            producer,
            subject: subject.into(),
            max_bytes: 1 << 30,
            segment_bytes: 2 << 20,
            finish_reserve_bytes: 16 << 10,
            memory_bytes: 16 << 20,
            batch: BatchLimits::default(),
            retry: Retry::default(),
            clock,
            dice: dice::system(),
        }
    }
}

/// Why an outbox could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds the directory.
    #[error("another process holds the outbox {}", dir.display())]
    Held {
        /// The directory.
        dir: PathBuf,
    },
    /// The boot is not newer than one that the directory has seen: the clock has gone back.
    #[error("boot {boot} is not newer than boot {found}, which has written here before")]
    NotNewer {
        /// The boot that was to begin.
        boot: Boot,
        /// The newest one found.
        found: Boot,
    },
    /// The file system failed.
    #[error("the outbox's directory can't be used")]
    Io(#[from] io::Error),
}

/// Why an append was refused; nothing of it was written.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// There is no room, in the outbox or on its disk.
    #[error("the outbox is full")]
    Full,
    /// One of the events is larger than a message may be.
    #[error("an event of {bytes} bytes is too large")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The outbox is being closed.
    #[error("the outbox is closed")]
    Closed,
    /// The file system failed.
    #[error("the outbox's file can't be written")]
    Io(#[source] io::Error),
}

/// Where an outbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxStatus {
    /// Bytes of unacknowledged events, those of earlier boots included.
    pub bytes: u64,
    /// Bytes it may hold.
    pub max_bytes: u64,
    /// Bytes promised to open requests.
    pub reserved_bytes: u64,
    /// The last ordinal given in this boot; 0 if none was.
    pub appended: u64,
    /// The ordinal up to which the log has taken this boot's events.
    pub acknowledged: u64,
    /// When the oldest unacknowledged event of this boot was appended, to a second.
    pub oldest_unacknowledged_at: Option<LogTime>,
    /// Earlier boots whose events are not all in the log.
    pub earlier_boots: u64,
    /// Appends and reservations that were refused for want of room.
    pub refusals: u64,
    /// Writes that took longer than 1 ms.
    pub write_stalls: u64,
    /// Messages that were sent again.
    pub resends: u64,
    /// Answers with which the log refused a message; it is sent again nevertheless.
    pub refused_by_log: u64,
    /// Places in files of earlier boots where records could not be read back.
    pub damages: u64,
}

#[derive(Debug, Default)]
struct Counters {
    earlier_boots: AtomicU64,
    resends: AtomicU64,
    refused_by_log: AtomicU64,
    damages: AtomicU64,
}

struct Shared {
    config: OutboxConfig,
    boot: Boot,
    state: Mutex<State>,
    /// Wakes the publisher.
    work: Notify,
    progress: Watched,
    counters: Counters,
}

/// The outbox of one process; clones are handles of the same one.
#[derive(Clone)]
pub struct Outbox {
    shared: Arc<Shared>,
}

/// Room promised to one request for its finishing events; given back when dropped.
pub struct Reservation {
    shared: Arc<Shared>,
    /// Bytes it still holds; changed under the outbox's lock.
    held: AtomicU64,
}

/// How closing went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// Whether everything is in the log, the closing notice included.
    pub drained: bool,
    /// Events of this boot that are not; the next boot sends them.
    pub unacknowledged: u64,
}

impl Outbox {
    /// Opens the directory for a new boot and finds what earlier ones left. The publisher must be run.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(config: OutboxConfig, boot: Boot) -> Result<(Self, Publisher), OpenError> {
        let (directory, leftovers) = Directory::open(&config.dir, boot)?;
        let bookmark = directory::Bookmark::open(&directory.bookmark(boot))?;
        let used = leftovers.iter().map(directory::Leftover::bytes).sum();
        let segments = Segments::new(directory, boot, config.segment_bytes);
        let counters = Counters::default();
        counters.earlier_boots.store(u64::try_from(leftovers.len()).unwrap_or(u64::MAX), Ordering::Relaxed);
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(&config, boot, segments, used)),
            boot,
            config,
            work: Notify::new(),
            progress: Watched::default(),
            counters,
        });
        let publisher = Publisher::new(Arc::clone(&shared), bookmark, leftovers);
        Ok((Self { shared }, publisher))
    }

    /// Whose events these are.
    #[must_use]
    pub fn producer(&self) -> &ProducerId {
        &self.shared.config.producer
    }

    /// The running boot.
    #[must_use]
    pub fn boot(&self) -> Boot {
        self.shared.boot
    }

    /// Appends the events, all or none, and returns their ordinals. Takes a few microseconds; when this returns, the
    /// events survive the death of the process.
    ///
    /// # Errors
    /// [`OutboxError`].
    pub fn append(&self, events: &[Encoded]) -> Result<RangeInclusive<u64>, OutboxError> {
        self.shared.append(events, Room::Free).map(|taken| taken.ordinals)
    }

    /// Promises room for one request's finishing events.
    ///
    /// # Errors
    /// [`OutboxError::Full`]: the request must not be admitted.
    pub fn reserve(&self) -> Result<Reservation, OutboxError> {
        let held = self.shared.state.lock().reserve()?;
        Ok(Reservation { shared: Arc::clone(&self.shared), held: AtomicU64::new(held) })
    }

    /// Appends the events of a request that holds a reservation: first into the room it was promised, then into what is
    /// free.
    ///
    /// # Errors
    /// [`OutboxError`].
    pub fn append_reserved(
        &self,
        reservation: &Reservation,
        events: &[Encoded],
    ) -> Result<RangeInclusive<u64>, OutboxError> {
        self.shared.append(events, Room::Reserved(&reservation.held)).map(|taken| taken.ordinals)
    }

    /// Appends events of a request that holds a reservation and isn't finished with them: half of what it was promised
    /// stays for those that finish it.
    ///
    /// # Errors
    /// [`OutboxError`].
    pub fn append_further(
        &self,
        reservation: &Reservation,
        events: &[Encoded],
    ) -> Result<RangeInclusive<u64>, OutboxError> {
        self.shared.append(events, Room::Further(&reservation.held)).map(|taken| taken.ordinals)
    }

    /// Where it stands.
    #[must_use]
    pub fn status(&self) -> OutboxStatus {
        let counters = &self.shared.counters;
        let state = self.shared.state.lock();
        OutboxStatus {
            bytes: state.used,
            max_bytes: self.shared.config.max_bytes,
            reserved_bytes: state.reserved,
            appended: state.appended,
            acknowledged: state.acknowledged,
            oldest_unacknowledged_at: state.oldest_at(),
            earlier_boots: counters.earlier_boots.load(Ordering::Relaxed),
            refusals: state.refusals,
            write_stalls: state.stalls,
            resends: counters.resends.load(Ordering::Relaxed),
            refused_by_log: counters.refused_by_log.load(Ordering::Relaxed),
            damages: counters.damages.load(Ordering::Relaxed),
        }
    }

    /// Waits until the log has taken the events of this boot up to `ordinal`, which are sent without waiting for company
    /// then. Bound it with a deadline. Returns false if the publisher ended before.
    pub async fn wait_acknowledged(&self, ordinal: u64) -> bool {
        let sooner = {
            let mut state = self.shared.state.lock();
            state.acknowledged < ordinal && state.queue.hurry(ordinal, Instant::now())
        };
        if sooner {
            self.shared.work.notify_one();
        }
        let reached = self.shared.progress.wait_for(|progress| progress.acknowledged >= ordinal || progress.ended);
        reached.await.acknowledged >= ordinal
    }

    /// Takes nothing more, and waits until everything is in the log, with `outbox_drained` as the last event.
    pub async fn close(&self, deadline: Duration) -> Closed {
        self.shared.state.lock().closing = true;
        self.shared.work.notify_one();
        let done = self.shared.progress.wait_for(|progress| progress.drained || progress.ended);
        let drained = tokio::time::timeout(deadline, done).await.is_ok_and(|progress| progress.drained);
        let state = self.shared.state.lock();
        Closed { drained, unacknowledged: state.appended - state.acknowledged }
    }
}

impl Shared {
    fn append(&self, events: &[Encoded], room: Room<'_>) -> Result<state::Taken, OutboxError> {
        let taken = self.state.lock().append(events, room)?;
        if taken.wake {
            self.work.notify_one();
        }
        Ok(taken)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.reserved = state.reserved.saturating_sub(self.held.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests;
