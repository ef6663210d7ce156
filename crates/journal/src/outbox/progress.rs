//! How far the publisher is, told to whoever waits for it. Those who wait are woken in the order in which they came, so
//! that a simulated run goes the same way each time.

use std::pin::pin;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// How far the publisher is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Progress {
    /// The ordinal up to which the log has taken this boot's events.
    pub(super) acknowledged: u64,
    /// Closed, with everything in the log.
    pub(super) drained: bool,
    /// The publisher has ended.
    pub(super) ended: bool,
}

/// The publisher's progress, and those who wait for it.
#[derive(Debug, Default)]
pub(super) struct Watched {
    held: Mutex<Progress>,
    changed: Notify,
}

impl Watched {
    /// Notes progress and wakes all who wait.
    pub(super) fn change(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.held.lock());
        self.changed.notify_waiters();
    }

    /// Waits until the progress is such. It may be dropped and called again.
    pub(super) async fn wait_for(&self, holds: impl Fn(&Progress) -> bool) -> Progress {
        loop {
            // Waiting begins before the look, so that no change is missed.
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let now = *self.held.lock();
            if holds(&now) {
                return now;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_came_first_is_woken_first() {
        let watched = Arc::new(Watched::default());
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = JoinSet::new();
        for n in 0..40 {
            let (watched, order) = (Arc::clone(&watched), Arc::clone(&order));
            waiting.spawn(async move {
                let seen = watched.wait_for(|progress| progress.acknowledged >= 1).await;
                order.lock().push((n, seen.acknowledged));
            });
        }
        tokio::task::yield_now().await;
        watched.change(|progress| progress.drained = true);
        tokio::task::yield_now().await;
        assert!(order.lock().is_empty(), "what was waited for isn't there");
        watched.change(|progress| progress.acknowledged = 2);
        waiting.join_all().await;
        assert_eq!(*order.lock(), (0..40).map(|n| (n, 2)).collect::<Vec<_>>());
    }
}
