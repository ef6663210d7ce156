//! Demand marks: a replica whose requests wait while others hold all slots says so, and is given one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::{Inner, Subject, key};
use crate::keyed::{Bucket, Held};

/// Time for one write.
const DEADLINE: Duration = Duration::from_secs(1);
/// How long a mark outlives a request that waited in vain: the next one is likely to want the same.
const GRACE: Duration = Duration::from_millis(100);

impl Inner {
    /// Keeps this replica's mark on a subject for as long as its requests wait there.
    pub(super) async fn mark(self: Arc<Self>, subject: Subject, wake: Arc<Notify>) {
        let key = key::demand(&subject, &self.replica);
        let value = {
            let mut state = self.state.lock();
            let serial = state.next();
            self.claim(serial, 1).written()
        };
        let mut written = false;
        while self.wants_mark(&subject).await {
            written = true;
            self.counters.marks.add();
            let life = Some(self.settings.demand_life);
            let write = self.keyed.write(Bucket::Permits, &key, value.clone(), Held::Anything, life);
            match timeout(DEADLINE, write).await {
                Ok(Ok(revision)) => self.state.lock().store.heard(revision),
                Ok(Err(error)) => tracing::debug!(key, %error, "a demand mark wasn't set"),
                Err(_) => tracing::debug!(key, "a demand mark wasn't set in time"),
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                () = self.unwaited(&subject, &wake) => {}
                () = sleep(self.settings.demand_life / 2) => {}
            }
        }
        // Who left at once has told nobody.
        if written {
            let deleted = timeout(DEADLINE, self.keyed.delete(Bucket::Permits, &key, Held::Anything)).await;
            if !matches!(deleted, Ok(Ok(()))) {
                tracing::debug!(key, "a demand mark lapses by itself");
            }
        }
        let mut state = self.state.lock();
        state.pool(&subject).slots.marking = None;
        self.pump(&mut state, &subject);
    }

    /// Whether requests wait, or did just now in vain.
    async fn wants_mark(&self, subject: &Subject) -> bool {
        let waits = |inner: &Self| {
            let state = inner.state.lock();
            let slots = state.pools.get(subject).map(|pool| &pool.slots);
            let waits = slots.is_some_and(|slots| !slots.waiters.is_empty());
            (waits, slots.is_some_and(|slots| slots.served), state.store.answers())
        };
        let (waiting, served, answers) = waits(self);
        if waiting || served || !answers || self.stop.is_cancelled() {
            return waiting && answers && !self.stop.is_cancelled();
        }
        sleep(GRACE).await;
        let (waiting, _, answers) = waits(self);
        waiting && answers
    }

    /// Ends when nobody waits any more.
    async fn unwaited(&self, subject: &Subject, wake: &Notify) {
        loop {
            wake.notified().await;
            let waits = self.state.lock().pools.get(subject).is_some_and(|pool| !pool.slots.waiters.is_empty());
            if !waits {
                return;
            }
        }
    }
}
