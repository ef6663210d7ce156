//! Accounts whose access token won't do: upkeep is asked for the next one, and requests wait for it a little.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use waybill_domain::refreshing::{Mark, Wish, mark_key};
use waybill_event::ProducerId;
use waybill_journal::{Bucket, Held, Journal, Keyed};

/// How long the next tokens are waited for, from when a replica first needs them.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a mark stands; it is set again while the tokens are needed.
const MARK_LIFE: Duration = Duration::from_secs(10);
const MARK_AGAIN: Duration = Duration::from_secs(3);
/// Time the store gets.
const DEADLINE: Duration = Duration::from_secs(2);

/// What a replica has met of an account.
#[derive(Debug, Clone, Copy)]
struct Met {
    /// Revision of the tokens that won't do.
    revision: u64,
    /// Until when the next ones are waited for.
    until: Instant,
    /// When the mark was last set.
    marked: Option<(Wish, Instant)>,
    /// Until when tokens that an upstream has refused aren't sent again.
    refused_until: Option<Instant>,
}

/// Asks for tokens and waits for them.
pub struct Tokens {
    keyed: Arc<dyn Keyed>,
    replica: ProducerId,
    tasks: TaskTracker,
    arrived: Notify,
    met: Mutex<HashMap<u64, Met>>,
}

impl Tokens {
    /// Nothing was met yet. Marks are set in tasks of `tasks`; each takes two seconds at most.
    #[must_use]
    pub fn new(journal: &Journal, replica: ProducerId, tasks: TaskTracker) -> Self {
        let keyed = Arc::clone(&journal.keyed);
        Self { keyed, replica, tasks, arrived: Notify::new(), met: Mutex::default() }
    }

    /// Tokens have come: whoever waits looks again.
    pub(crate) fn arrived(&self) {
        self.arrived.notify_waiters();
    }

    /// Waits until `there` gives something newer than the tokens of this revision, which won't do. All requests of a
    /// replica wait no longer than five seconds from when the first did; after that the account is passed over at once
    /// until tokens come.
    pub(crate) async fn wait<T>(
        &self,
        account: u64,
        (revision, why): (u64, Wish),
        there: impl Fn() -> Option<T>,
    ) -> Option<T> {
        loop {
            let arrived = self.arrived.notified();
            tokio::pin!(arrived);
            // Told of from here on, so that nothing comes between looking and waiting.
            arrived.as_mut().enable();
            if let Some(found) = there() {
                return Some(found);
            }
            let until = self.ask(account, revision, why);
            if tokio::time::timeout_at(until, arrived).await.is_err() {
                return there();
            }
        }
    }

    /// An upstream has refused the tokens of this revision. For as long as the next ones are waited for, they count as
    /// expired; after that it is the selector's to say.
    pub(crate) fn refused(&self, account: u64, revision: u64) {
        let until = self.ask(account, revision, Wish::Refused);
        if let Some(met) = self.met.lock().get_mut(&account).filter(|met| met.revision == revision) {
            met.refused_until = Some(until);
        }
    }

    /// Whether the tokens of this revision were refused just now.
    pub(crate) fn is_refused(&self, account: u64, revision: u64) -> bool {
        let all = self.met.lock();
        let until = all.get(&account).filter(|met| met.revision == revision).and_then(|met| met.refused_until);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Sets the account's mark, unless it was set just now; gives until when the next tokens are waited for.
    fn ask(&self, account: u64, revision: u64, why: Wish) -> Instant {
        let now = Instant::now();
        let (until, marks) = {
            let mut all = self.met.lock();
            let fresh = Met { revision, until: now + PATIENCE, marked: None, refused_until: None };
            let met = all.entry(account).or_insert(fresh);
            if met.revision < revision {
                *met = fresh;
            }
            let marks = met.marked.is_none_or(|(was, at)| was != why || now.duration_since(at) >= MARK_AGAIN);
            if marks {
                met.marked = Some((why, now));
            }
            (met.until, marks)
        };
        if marks {
            self.mark(account, Mark { revision, why, replica: self.replica.clone() });
        }
        until
    }

    fn mark(&self, account: u64, mark: Mark) {
        let Ok(value) = serde_json::to_vec(&mark) else { return };
        let keyed = Arc::clone(&self.keyed);
        self.tasks.spawn(async move {
            let key = mark_key(account);
            let written = keyed.write(Bucket::Permits, &key, Bytes::from(value), Held::Anything, Some(MARK_LIFE));
            match tokio::time::timeout(DEADLINE, written).await {
                Ok(Ok(_)) => tracing::info!(account, why = ?mark.why, "asked for newer tokens"),
                Ok(Err(error)) => tracing::warn!(account, %error, "newer tokens can't be asked for"),
                Err(_) => tracing::warn!(account, "newer tokens can't be asked for in time"),
            }
        });
    }

    /// Forgets an account that is gone.
    pub(crate) fn forget(&self, account: u64) {
        self.met.lock().remove(&account);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use waybill_event::LogTime;
    use waybill_journal::memory::Memory;

    use super::*;

    struct Ground {
        tokens: Tokens,
        journal: Journal,
        there: AtomicBool,
    }

    impl Ground {
        fn new() -> Self {
            let journal = Memory::new(Arc::new(|| LogTime::from_micros(0))).journal();
            let tokens = Tokens::new(&journal, "proxy-1".parse().unwrap(), TaskTracker::new());
            Self { tokens, journal, there: AtomicBool::new(false) }
        }

        async fn wait(&self, revision: u64) -> bool {
            let there = || self.there.load(Ordering::SeqCst).then_some(());
            self.tokens.wait(7, (revision, Wish::Expired), there).await.is_some()
        }

        async fn marked(&self) -> Option<Mark> {
            tokio::task::yield_now().await;
            let entry = self.journal.keyed.get(Bucket::Permits, "refresh.7").await.unwrap();
            entry.map(|entry| serde_json::from_slice(&entry.value).unwrap())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_what_it_has_asked_for() {
        let ground = Ground::new();
        let coming = async {
            tokio::time::sleep(Duration::from_millis(400)).await;
            let mark = ground.marked().await.unwrap();
            assert_eq!((mark.revision, mark.why), (5, Wish::Expired));
            ground.there.store(true, Ordering::SeqCst);
            ground.tokens.arrived();
        };
        let begun = Instant::now();
        let (found, ()) = tokio::join!(ground.wait(5), coming);
        assert!(found);
        assert_eq!(begun.elapsed().as_millis() / 100, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn all_together_wait_for_five_seconds_and_then_nobody_does() {
        let ground = Ground::new();
        let begun = Instant::now();
        let later = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            ground.wait(5).await
        };
        assert_eq!(tokio::join!(ground.wait(5), later), (false, false));
        assert_eq!(begun.elapsed().as_secs(), 5);
        assert!(!ground.wait(5).await);
        assert_eq!(begun.elapsed().as_secs(), 5, "passed over at once");
        // Newer ones that have expired in their turn are waited for again.
        assert!(!ground.wait(9).await);
        assert_eq!(begun.elapsed().as_secs(), 10);
        assert_eq!(ground.marked().await.unwrap().revision, 9);
    }

    #[tokio::test(start_paused = true)]
    async fn news_of_another_account_ends_no_wait() {
        let ground = Ground::new();
        let noise = async {
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                ground.tokens.arrived();
            }
        };
        assert_eq!(tokio::join!(ground.wait(5), noise), (false, ()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_told() {
        let ground = Ground::new();
        assert!(!ground.tokens.is_refused(7, 5));
        ground.tokens.refused(7, 5);
        assert_eq!(ground.marked().await.map(|mark| mark.why), Some(Wish::Refused));
        assert!(ground.tokens.is_refused(7, 5) && !ground.tokens.is_refused(7, 6));
        // With nobody to refresh it, whether it is asked again is the selector's to say.
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(!ground.tokens.is_refused(7, 5));
        ground.tokens.forget(7);
    }
}
