//! What is done once a second: what has lapsed is forgotten, and what nobody wakes up for is looked at.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout};

use super::rate::Unused;
use super::{Inner, Subject, key};
use crate::keyed::{Bucket, Held};

const EVERY: Duration = Duration::from_secs(1);
/// Subjects that are looked at in one piece.
const AT_ONCE: usize = 256;

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
        {
            let mut state = self.state.lock();
            self.tend_store(&mut state, second);
            self.pump_all(&mut state);
        }
        let mut last = None;
        while let Some(subject) = self.tidy_after(last.as_ref()) {
            last = Some(subject);
        }
    }

    /// Tidies some subjects after one, so that no request waits long for it; the last of them, if there was any.
    fn tidy_after(self: &Arc<Self>, last: Option<&Subject>) -> Option<Subject> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let after = last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut empty = Vec::new();
        let mut reached = None;
        for (subject, pool) in state.pools.range_mut((after, Bound::Unbounded)).take(AT_ONCE) {
            pool.slots.tidy(now);
            for unused in pool.rate.tidy(now) {
                self.tasks.spawn(self.clone().give_back(subject.clone(), unused));
            }
            if pool.slots.is_empty() && pool.rate.is_empty() {
                empty.push(subject.clone());
            }
            reached = Some(subject.clone());
        }
        for subject in empty {
            state.pools.remove(&subject);
        }
        reached
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
