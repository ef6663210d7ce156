//! Permits: limits that hold over all replicas at once, without a coordinator on a request's path.
//!
//! A limit of L has L slot keys in the bucket of permits. A replica claims a free one by compare-and-set with a time to
//! live, uses it for one request at a time, keeps it a moment longer for its next request, and then deletes it; what a
//! dead replica held lapses by itself. Limits per minute are the same keys, never released, with a life of more than a
//! minute. What the store can't be asked about in time is given or refused by the limit's own policy.
//!
//! Who holds what is known by watch, so that a request that finds a slot of its replica's idle asks nobody.

mod asking;
mod claim;
mod counts;
mod demand;
mod ends;
mod free;
mod keep;
mod key;
mod others;
mod outage;
mod own;
mod pump;
mod rate;
mod slots;
mod store;
mod subject;
mod sweep;
mod taken;
mod waiting;
mod watch;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_event::{Boot, ProducerId};

use crate::keyed::Keyed;
use counts::Counters;
pub use counts::Counts;
use rate::Rate;
use slots::Slots;
use store::Store;
pub use subject::{About, Subject};
pub use taken::Taken;
pub use waiting::{Full, RatePermit, Slot, Spent};

/// What a limit does while the store can't be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnOutage {
    /// Each replica gives its share of the limit, once what was held before has lapsed.
    Share {
        /// What a share is where the limit is smaller than the fleet.
        floor: ShareFloor,
    },
    /// Nothing is given beyond what the replica holds.
    Closed,
    /// Everything is given.
    Open,
}

/// The share of a limit that is smaller than the number of replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShareFloor {
    /// One: the fleet may exceed such a limit, up to one for each replica.
    Available,
    /// None: the limit is never exceeded.
    Strict,
}

/// Times of permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Life of a slot in the store; whole seconds. It is refreshed at half of it.
    pub ttl: Duration,
    /// How much earlier than the store the holder takes a slot for lapsed.
    pub margin: Duration,
    /// How long an idle slot is kept for the next request.
    pub linger: Duration,
    /// How long a request waits for a slot, if nothing else is said.
    pub slot_wait: Duration,
    /// Time the store gets on a request's path.
    pub store_deadline: Duration,
    /// Life of a demand mark in the store; whole seconds. It is renewed at half of it.
    pub demand_life: Duration,
    /// How long a slot is held at least before others' demand takes it from a replica that could use it itself.
    pub tenure: Duration,
    /// How long the permits of one claim may be used.
    pub use_window: Duration,
    /// What limits per minute are counted over: a minute, but where a test has less time.
    pub minute: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(60),
            margin: Duration::from_secs(2),
            linger: Duration::from_secs(1),
            slot_wait: Duration::from_millis(50),
            store_deadline: Duration::from_millis(100),
            demand_life: Duration::from_secs(2),
            tenure: Duration::from_secs(1),
            use_window: Duration::from_secs(1),
            minute: Duration::from_secs(60),
        }
    }
}

impl Settings {
    /// For how long after its last confirmed refresh a slot is surely held.
    fn lease(&self) -> Duration {
        self.ttl.saturating_sub(self.margin)
    }

    /// Life of a rate permit's key: a minute from its last possible use, and a second for the way to where it counts.
    #[must_use]
    pub fn rate_life(&self) -> Duration {
        self.minute + self.use_window + Duration::from_secs(1)
    }
}

/// What is left of a limit that was taken away, for those who wait at it: more than any that can be set.
const NONE_ANY_MORE: u32 = 1_000_000;

/// How much of a limit is in use, as far as this replica knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// Requests in flight: slots that others hold, own ones in use, and what runs without a slot of the store's.
    pub in_flight: u32,
    /// Slots that this replica holds, idle ones included.
    pub held: u32,
    /// Rate permits of the last minute that are claimed, fleet-wide.
    pub rate_used: u32,
    /// Replicas that wait for a slot, this one included.
    pub wanting: u32,
}

/// The permits of this replica. Clones are handles of the same.
#[derive(Clone)]
pub struct Permits {
    inner: Arc<Inner>,
}

struct Inner {
    keyed: Arc<dyn Keyed>,
    replica: ProducerId,
    boot: Boot,
    replicas: Arc<dyn Fn() -> u32 + Send + Sync>,
    tasks: TaskTracker,
    stop: CancellationToken,
    settings: Settings,
    /// Where this replica begins to look for a free key, so that replicas seldom ask for the same one.
    offset: u32,
    counters: Counters,
    state: Mutex<State>,
}

struct State {
    pools: BTreeMap<Subject, Pool>,
    store: Store,
    /// Rises with each claim and each waiter, so that no two bear the same number.
    serial: u64,
}

/// What is known of one subject.
#[derive(Default)]
struct Pool {
    slots: Slots,
    rate: Rate,
}

impl State {
    fn pool(&mut self, subject: &Subject) -> &mut Pool {
        self.pools.entry(subject.clone()).or_default()
    }

    const fn next(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }
}

impl Permits {
    /// Starts watching who holds what, in tasks of `tasks` that end soon after `stop`. `replicas` tells how many replicas
    /// live, this one included.
    #[must_use]
    pub fn start(
        keyed: Arc<dyn Keyed>,
        producer: &ProducerId,
        boot: Boot,
        replicas: Arc<dyn Fn() -> u32 + Send + Sync>,
        tasks: &TaskTracker,
        stop: &CancellationToken,
        settings: Settings,
    ) -> Self {
        let state = State { pools: BTreeMap::new(), store: Store::new(Instant::now()), serial: 0 };
        let inner = Arc::new(Inner {
            keyed,
            replica: producer.clone(),
            boot,
            replicas,
            tasks: tasks.clone(),
            stop: stop.clone(),
            settings,
            offset: key::offset(producer),
            counters: Counters::default(),
            state: Mutex::new(state),
        });
        inner.watch_always();
        inner.sweep_always();
        inner.ask_store(&mut inner.state.lock());
        Self { inner }
    }

    /// A slot of a subject that may have `limit` requests in flight. It is there at once where this replica holds an idle
    /// one; else it takes a claim, one round trip, and a short wait while others hold all of them.
    ///
    /// # Errors
    /// [`Full`] when there is none.
    pub async fn slot(&self, subject: &Subject, limit: NonZeroU32, on_outage: OnOutage) -> Result<Slot, Full> {
        self.slot_within(subject, limit, on_outage, self.inner.settings.slot_wait).await
    }

    /// As [`Permits::slot`], waiting up to `wait`. Those who wait in this replica are served in the order in which they
    /// came. Without any wait a claim under way is still waited for, but other replicas aren't told that slots are wanted.
    ///
    /// # Errors
    /// [`Full`] when there was none in that time.
    pub async fn slot_within(
        &self,
        subject: &Subject,
        limit: NonZeroU32,
        on_outage: OnOutage,
        wait: Duration,
    ) -> Result<Slot, Full> {
        self.inner.slot(subject, limit.get(), on_outage, wait).await
    }

    /// Limits have changed: what is held goes by what holds now, and so do those who wait, who would else hear of it from the
    /// next request alone. `of` gives a subject's limit of requests in flight, or none where it has none any more.
    pub fn relimit(&self, of: impl Fn(&Subject) -> Option<NonZeroU32>) {
        let mut state = self.inner.state.lock();
        let known = state.pools.iter().filter(|(_, pool)| pool.slots.limit() > 0);
        let known: Vec<Subject> = known.map(|(subject, _)| subject.clone()).collect();
        for subject in known {
            let limit = of(&subject).map_or(NONE_ANY_MORE, NonZeroU32::get);
            let slots = &mut state.pool(&subject).slots;
            if limit != slots.limit() {
                slots.set_limit(limit);
                self.inner.pump(&mut state, &subject);
            }
        }
    }

    /// A permit of a subject that may be used `per_minute` times in any 60 s. It is to be used at once.
    ///
    /// # Errors
    /// [`Spent`] when all are used.
    pub async fn rate(
        &self,
        subject: &Subject,
        per_minute: NonZeroU32,
        on_outage: OnOutage,
    ) -> Result<RatePermit, Spent> {
        self.inner.rate(subject, per_minute.get(), on_outage).await
    }

    /// What is known of a subject; asks nobody.
    #[must_use]
    pub fn seen(&self, subject: &Subject) -> Seen {
        let mut state = self.inner.state.lock();
        let now = Instant::now();
        state.pools.get_mut(subject).map_or_else(Seen::default, |pool| {
            pool.slots.expire(now);
            Seen {
                in_flight: pool.slots.in_flight(),
                held: pool.slots.held(),
                rate_used: pool.rate.used(now),
                wanting: pool.slots.wanting(now),
            }
        })
    }

    /// Whether the store is being asked; while it isn't, limits go by their policies.
    #[must_use]
    pub fn store_answers(&self) -> bool {
        self.inner.state.lock().store.answers()
    }

    /// What was counted since the start.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let over_lease = self.inner.state.lock().pools.values().map(|pool| u64::from(pool.slots.over_lease())).sum();
        self.inner.counters.told(over_lease)
    }
}

#[cfg(test)]
mod tests;
