//! What is done once a second: what has lapsed is forgotten, and what nobody wakes up for is looked at.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::rate::Unused;
use super::{Inner, Subject, key};
use crate::keyed::{Bucket, Held};

const EVERY: Duration = Duration::from_secs(1);

impl Inner {
    pub(super) fn sweep_always(self: &Arc<Self>) {
        let inner = self.clone();
        self.tasks.spawn(async move {
            let mut second = 0;
            loop {
                inner.sweep(second);
                second += 1;
                tokio::select! {
                    biased;
                    () = inner.stop.cancelled() => return,
                    () = tokio::time::sleep(EVERY) => {}
                }
            }
        });
    }

    fn sweep(self: &Arc<Self>, second: u64) {
        let now = tokio::time::Instant::now();
        let mut state = self.state.lock();
        self.tend_store(&mut state, second);
        let mut unused = Vec::new();
        for (subject, pool) in &mut state.pools {
            pool.slots.tidy(now);
            unused.extend(pool.rate.tidy(now).into_iter().map(|unused| (subject.clone(), unused)));
        }
        self.pump_all(&mut state);
        state.pools.retain(|_, pool| !(pool.slots.is_empty() && pool.rate.is_empty()));
        drop(state);
        for (subject, unused) in unused {
            self.tasks.spawn(self.clone().give_back(subject, unused));
        }
    }

    async fn give_back(self: Arc<Self>, subject: Subject, unused: Unused) {
        let key = key::rate(&subject, unused.n);
        let delete = self.keyed.delete(Bucket::Permits, &key, Held::Revision(unused.revision));
        if matches!(timeout(self.patience(), delete).await, Ok(Ok(()))) {
            self.counters.returned.add();
        }
    }

    /// Deletes an orphan of this replica in a task.
    pub(super) fn orphan(self: &Arc<Self>, key: String, value: Bytes) {
        self.tasks.spawn(self.clone().give_back_orphan(key, value));
    }
}
