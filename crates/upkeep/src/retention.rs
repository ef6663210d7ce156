//! The size of the traffic stream: when it is nearly full, the oldest whole hours that all folds have passed are purged,
//! and an alarm says so. What isn't folded everywhere is never purged: then the stream fills up, takes nothing more, and
//! the replicas' outboxes grow instead.

mod oldest;
mod passed;

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use waybill_journal::{AppendError, Bounds, Journal, ReadError, Stream};

use oldest::Oldest;
use passed::{Passed, Unknown};

/// Percent below the alarm to which an urgent purge makes room, so that it isn't needed again at once.
const RELIEF: u64 = 5;

/// How the size is kept.
#[derive(Debug, Clone, Copy)]
pub struct RetentionConfig {
    /// Share of the stream's size, in percent, from which on whole hours are purged.
    pub high_percent: u64,
    /// Share from which on a part of the newest hour goes too, if it has to: without that the stream would be full
    /// before the hour is over.
    pub urgent_percent: u64,
    /// How often the size is looked at.
    pub every: Duration,
    /// How often while it is urgent.
    pub when_urgent: Duration,
    /// How often a lasting alarm is told again.
    pub remind: Duration,
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            high_percent: 80,
            urgent_percent: 90,
            every: Duration::from_secs(2),
            when_urgent: Duration::from_millis(200),
            remind: Duration::from_secs(60),
        }
    }
}

/// How full the stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// There is room.
    #[default]
    Fine,
    /// Whole hours are purged.
    High,
    /// Whatever all folds have passed is purged.
    Urgent,
}

/// How the traffic stream's size stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RetentionStatus {
    /// Bytes it holds.
    pub bytes: u64,
    /// Bytes it may hold; 0 is unlimited.
    pub max_bytes: u64,
    /// How full it is.
    pub level: Level,
    /// Sequence up to which all folds have it, as far as is known.
    pub passed: Option<u64>,
    /// Messages purged since the start.
    pub purged: u64,
    /// Why nothing is purged although it should be, in words.
    pub held_up: Option<String>,
}

/// Keeps the traffic stream within its size.
pub struct Retention {
    journal: Journal,
    config: RetentionConfig,
    status: Mutex<RetentionStatus>,
}

/// Why nothing can be purged now.
#[derive(Debug, thiserror::Error)]
enum HeldUp {
    #[error(transparent)]
    Unknown(#[from] Unknown),
    #[error("what the stream holds can't be looked at: {0}")]
    Read(#[from] ReadError),
    #[error("the stream can't be purged: {0}")]
    Purge(#[from] AppendError),
    #[error("nothing that is left is folded everywhere: the folds are at {passed} only")]
    Behind { passed: u64 },
}

impl Retention {
    /// A keeper that doesn't run yet.
    #[must_use]
    pub fn new(journal: Journal, config: RetentionConfig) -> Self {
        Self { journal, config, status: Mutex::default() }
    }

    /// How it stands.
    #[must_use]
    pub fn status(&self) -> RetentionStatus {
        self.status.lock().clone()
    }

    /// Keeps the size until `stop`. Several processes may do so at once.
    pub async fn run(&self, stop: CancellationToken) {
        let passed = Passed::default();
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.keep(&passed) => {}
            never = passed.watch(&self.journal) => match never {},
        }
    }

    async fn keep(&self, passed: &Passed) {
        let mut told: Option<(Level, Instant)> = None;
        let mut pause = Duration::ZERO;
        loop {
            sleep(pause).await;
            pause = self.config.every;
            let bounds = match self.journal.log.bounds(Stream::Traffic).await {
                Ok(bounds) => bounds,
                // Whoever can't be asked can't be full either; readiness tells of the log.
                Err(error) => {
                    tracing::debug!(%error, "the traffic stream's size can't be looked at");
                    continue;
                }
            };
            let level = self.level(&bounds);
            if level == Level::Urgent {
                pause = self.config.when_urgent;
            }
            self.tell(&bounds, level, passed.position().ok());
            if level == Level::Fine {
                if told.take().is_some() {
                    tracing::info!(bytes = bounds.bytes, "the traffic stream has room again");
                }
                continue;
            }
            let due = told.is_none_or(|(before, at)| level > before || at.elapsed() >= self.config.remind);
            if due {
                tracing::error!(
                    bytes = bounds.bytes,
                    max_bytes = bounds.max_bytes,
                    ?level,
                    "the traffic stream is nearly full"
                );
                told = Some((level, Instant::now()));
            }
            let held_up = self.make_room(passed, bounds).await.err();
            if let Some(why) = held_up.as_ref().filter(|_| due) {
                tracing::error!(%why, "the traffic stream can't be purged now");
            }
            self.status.lock().held_up = held_up.map(|why| why.to_string());
        }
    }

    fn level(&self, bounds: &Bounds) -> Level {
        let reached = |percent: u64| bounds.max_bytes > 0 && bounds.bytes >= share(bounds.max_bytes, percent);
        match (reached(self.config.urgent_percent), reached(self.config.high_percent)) {
            (true, _) => Level::Urgent,
            (false, true) => Level::High,
            (false, false) => Level::Fine,
        }
    }

    fn tell(&self, bounds: &Bounds, level: Level, passed: Option<u64>) {
        let mut status = self.status.lock();
        status.bytes = bounds.bytes;
        status.max_bytes = bounds.max_bytes;
        status.level = level;
        status.passed = passed;
        if level == Level::Fine {
            status.held_up = None;
        }
    }

    /// Purges hour after hour until there is room, or until nothing whole is left that all folds have passed.
    async fn make_room(&self, passed: &Passed, mut bounds: Bounds) -> Result<(), HeldUp> {
        loop {
            let level = self.level(&bounds);
            if level == Level::Fine {
                return Ok(());
            }
            // Asked anew each time: a fold that begins again from the start must not find a hole.
            let passed = passed.position()?;
            let oldest = Oldest { log: self.journal.log.as_ref(), bounds, passed };
            let cut = match oldest.whole_hour().await? {
                Some(cut) => Some(cut),
                None if level == Level::Urgent => {
                    oldest.down_to(share(bounds.max_bytes, self.config.high_percent.saturating_sub(RELIEF)))
                }
                // The hour isn't over yet, and there is still time.
                None => return Ok(()),
            };
            let Some(first) = cut else { return Err(HeldUp::Behind { passed }) };
            let purged = self.journal.log.purge_before(Stream::Traffic, first).await?;
            tracing::warn!(first, purged, ?level, "the oldest traffic was purged to make room");
            self.status.lock().purged += purged;
            let before = bounds.first;
            bounds = self.journal.log.bounds(Stream::Traffic).await?;
            self.tell(&bounds, self.level(&bounds), Some(passed));
            if bounds.first == before {
                return Ok(());
            }
        }
    }
}

/// A share of a size.
const fn share(whole: u64, percent: u64) -> u64 {
    whole / 100 * percent + whole % 100 * percent / 100
}
