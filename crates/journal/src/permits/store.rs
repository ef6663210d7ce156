//! Whether the store answers, and whether it is still the one that held what this replica holds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout};

use super::key::{GENERATION, RECOVERING};
use super::{Inner, Pool, Settings, State, Subject};
use crate::keyed::{Bucket, Held};
use crate::log::AppendError;

/// Time for one look at the store, and the pause between looks while it is silent.
const LOOK: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(500);
/// Pause after the first look that failed: one call may well be lost.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// How long counts of replicas are remembered: others vanish from view before the outage is noticed.
const REMEMBERED: Duration = Duration::from_secs(10);

pub(super) struct Store {
    away: bool,
    looking: bool,
    /// Since when it can't be relied on: it is away, or came back empty.
    pub(super) since: Option<Instant>,
    /// When it was found to have come back empty.
    emptied: Option<Instant>,
    /// The watch told everything that there was.
    pub(super) told: bool,
    /// The greatest revision heard of.
    pub(super) newest: u64,
    generation: Option<Bytes>,
    samples: VecDeque<(Instant, u32)>,
    /// Permits given without it since it went away.
    pub(super) given_without: u64,
    started: Instant,
}

impl Store {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            away: false,
            looking: false,
            since: None,
            emptied: None,
            told: false,
            newest: 0,
            generation: None,
            samples: VecDeque::new(),
            given_without: 0,
            started: now,
        }
    }

    pub(super) const fn answers(&self) -> bool {
        !self.away
    }

    /// It came back empty: holders claim again what they hold, and nobody else claims.
    pub(super) fn recovers(&self, now: Instant, settings: &Settings) -> bool {
        self.emptied.is_some_and(|at| now < at + settings.ttl)
    }

    pub(super) fn recovers_rates(&self, now: Instant, settings: &Settings) -> bool {
        self.emptied.is_some_and(|at| now < at + settings.rate_life())
    }

    /// Whether slots are to be claimed.
    pub(super) fn gives_slots(&self, now: Instant, settings: &Settings) -> bool {
        !self.away && !self.recovers(now, settings)
    }

    /// Whether rate permits are to be claimed.
    pub(super) fn gives_rates(&self, now: Instant, settings: &Settings) -> bool {
        !self.away && !self.recovers_rates(now, settings)
    }

    pub(super) fn heard(&mut self, revision: u64) {
        self.newest = self.newest.max(revision);
    }

    /// Replicas that lived when the store was last heard of: the most of the last seconds, since an outage is noticed
    /// later than it begins.
    pub(super) fn replicas(&self) -> u32 {
        self.samples.iter().map(|(_, replicas)| *replicas).max().unwrap_or(1).max(1)
    }

    fn sample(&mut self, now: Instant, replicas: u32) {
        if self.since.is_some() {
            return;
        }
        self.samples.push_back((now, replicas));
        while self.samples.pop_front_if(|(at, _)| now.duration_since(*at) > REMEMBERED).is_some() {}
    }
}

impl Inner {
    /// Looks whether the store answers, unless somebody does already.
    pub(super) fn ask_store(self: &Arc<Self>, state: &mut State) {
        if !std::mem::replace(&mut state.store.looking, true) {
            self.tasks.spawn(self.clone().look());
        }
    }

    /// A call wasn't answered: until the store answers again, limits go by their policies.
    pub(super) fn store_is_silent(self: &Arc<Self>, state: &mut State) {
        let now = Instant::now();
        self.ask_store(state);
        if !std::mem::replace(&mut state.store.away, true) {
            state.store.since.get_or_insert(now);
            self.counters.outages.add();
            tracing::warn!(
                replicas = state.store.replicas(),
                "permits can't be asked for: limits go by their policies"
            );
            self.pump_all(state);
        }
    }

    /// Looks at all subjects that requests wait for.
    pub(super) fn pump_all(self: &Arc<Self>, state: &mut State) {
        let waited_for = |pool: &Pool| pool.slots.wanted() > 0 || !pool.rate.waiters.is_empty();
        let subjects = state.pools.iter().filter(|(_, pool)| waited_for(pool));
        let subjects: Vec<Subject> = subjects.map(|(subject, _)| subject.clone()).collect();
        for subject in subjects {
            self.pump(state, &subject);
            self.pump_rate(state, &subject);
        }
    }

    async fn look(self: Arc<Self>) {
        let mut failed = 0_u32;
        loop {
            let asked = timeout(LOOK, self.keyed.get(Bucket::Permits, GENERATION)).await;
            {
                let mut state = self.state.lock();
                if let Ok(Ok(found)) = asked {
                    state.store.looking = false;
                    self.answered(&mut state, found.map(|entry| entry.value));
                    return;
                }
                failed = failed.saturating_add(1);
                if failed > 1 {
                    self.store_is_silent(&mut state);
                }
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(if failed > 1 { PAUSE } else { FIRST_PAUSE }) => {}
            }
        }
    }

    /// The store has answered; `found` is its generation.
    pub(super) fn answered(self: &Arc<Self>, state: &mut State, found: Option<Bytes>) {
        let known = state.store.generation.clone();
        if found.is_none() {
            let serial = state.next();
            self.tasks.spawn(self.clone().name_generation(self.claim(serial, 0).written()));
            // Somebody may have named it since that was read. Whether what was there is gone, the write tells.
            if known.is_some() {
                return;
            }
        } else {
            if known.is_some() && known != found {
                self.emptied(state);
            }
            state.store.generation = found;
        }
        state.store.away = false;
        self.relied_on_again(state);
        self.pump_all(state);
    }

    /// Gives the store's content a name, by which it is known again.
    async fn name_generation(self: Arc<Self>, name: Bytes) {
        let write = self.keyed.write(Bucket::Permits, GENERATION, name.clone(), Held::Nothing, None);
        let written = timeout(LOOK, write).await;
        let mut state = self.state.lock();
        match written {
            Ok(Ok(revision)) => {
                // A look may have found this very name before its write was answered.
                if state.store.generation.as_ref().is_some_and(|known| *known != name) {
                    self.emptied(&mut state);
                    state.store.away = false;
                }
                state.store.heard(revision);
                state.store.generation = Some(name);
            }
            // Somebody else was first, or nobody can tell; the next look does.
            Ok(Err(AppendError::Conflict | AppendError::Unknown { .. })) | Err(_) => {}
            Ok(Err(error)) => tracing::error!(%error, "the generation of permits can't be named"),
        }
    }

    /// The store holds nothing of what it held. Holders claim again at once.
    pub(super) fn emptied(self: &Arc<Self>, state: &mut State) {
        let now = Instant::now();
        if state.store.recovers(now, &self.settings) {
            return;
        }
        tracing::warn!("the store of permits came back empty: nobody claims for one time to live");
        self.counters.emptied.add();
        self.recover(state, now);
        state.store.generation = None;
        state.store.newest = 0;
        self.ask_store(state);
        self.tasks.spawn(self.clone().tell_recovery());
    }

    /// Nobody claims for one time to live, and what this replica holds is claimed again.
    pub(super) fn recover(&self, state: &mut State, now: Instant) {
        state.store.emptied = Some(now);
        state.store.since.get_or_insert(now);
        for own in state.pools.values_mut().flat_map(|pool| pool.slots.all_own()) {
            own.check = true;
            own.wake.notify_one();
        }
    }

    /// Tells also those who never knew the store otherwise.
    async fn tell_recovery(self: Arc<Self>) {
        let value = {
            let mut state = self.state.lock();
            let serial = state.next();
            self.claim(serial, 0).written()
        };
        let write = self.keyed.write(Bucket::Permits, RECOVERING, value, Held::Nothing, Some(self.settings.ttl));
        let written = timeout(LOOK, write).await;
        if !matches!(written, Ok(Ok(_) | Err(AppendError::Conflict))) {
            tracing::debug!("that the store recovers isn't told");
        }
    }

    fn relied_on_again(&self, state: &mut State) {
        let now = Instant::now();
        let store = &mut state.store;
        if store.since.is_some() && store.gives_slots(now, &self.settings) && store.gives_rates(now, &self.settings) {
            store.since = None;
            store.emptied = None;
            let given = std::mem::take(&mut store.given_without);
            if given > 0 {
                tracing::warn!(given, "permits are asked for again; so many were given without the store");
            } else {
                tracing::info!("permits are asked for again");
            }
        }
    }

    /// What is done for the store every second.
    pub(super) fn tend_store(self: &Arc<Self>, state: &mut State, second: u64) {
        let now = Instant::now();
        self.relied_on_again(state);
        let replicas = (self.replicas)();
        state.store.sample(now, replicas);
        if second.is_multiple_of(2) {
            self.ask_store(state);
        }
        // Whoever never heard all there is knows it when all of it has lapsed.
        if !state.store.told && now >= state.store.started + self.settings.rate_life() {
            state.store.told = true;
        }
    }
}
