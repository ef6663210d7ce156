//! The age of the rows of traffic: the leader of their fold drops the days that are older than what is kept. Age is
//! counted from the newest traffic that is folded, so that no clock that errs drops anything.

use std::time::Duration;

use tokio::time::Instant;
use waybill_domain::history::Day;
use waybill_read_model::{Checkpoint, ReadModel, StoreError};

/// How often old days are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(600);
/// Before it is tried again, where something was in the way or there is more to drop.
const AGAIN: Duration = Duration::from_secs(30);

/// What one leader does about old days.
pub(super) struct Aging {
    keep_days: u32,
    next: Instant,
}

impl Aging {
    /// Keeps so many days beside the newest one.
    pub(super) fn new(keep_days: u32) -> Self {
        Self { keep_days, next: Instant::now() }
    }

    /// Drops what is too old, when it is time to; returns how many days that were.
    pub(super) async fn look(&mut self, store: &ReadModel, leader: &Checkpoint) -> Result<u64, StoreError> {
        let Some(newest) = leader.stored_at.filter(|_| Instant::now() >= self.next) else { return Ok(0) };
        self.next = Instant::now() + AGAIN;
        let dropped = store.drop_days_before(Day::of(newest).before(self.keep_days), leader).await?;
        for day in &dropped.days {
            tracing::info!(%day, "a day of traffic was too old and is dropped");
        }
        for day in &dropped.open {
            tracing::warn!(%day, "a day of traffic is too old and stays, since requests of it are open");
        }
        if dropped.days.is_empty() {
            self.next = Instant::now() + LOOK_EVERY;
        }
        Ok(dropped.days.len() as u64)
    }
}
