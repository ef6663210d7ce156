//! Claims: one write by compare-and-set. They run in tasks of their own, so that a client that leaves meanwhile leaves
//! nothing behind: what a claim brings goes to whoever waits, or is given back.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::key::{self, Claim};
use super::own::{Own, Phase};
use super::rate::Granted;
use super::slots::Claiming;
use super::{Inner, State, Subject};
use crate::keyed::{Bucket, Held};
use crate::log::AppendError;

/// Writes of one claim, where the store says that none before got through.
const TRIES: u32 = 3;
/// Time for one call that nobody waits for any more, and for one that the end of the replica waits for.
const PATIENCE: Duration = Duration::from_secs(5);
const LAST_PATIENCE: Duration = Duration::from_secs(1);
/// Pause before a silent store is asked again what became of a claim; it doubles.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long a claim that nobody knows of is left alone: what is known of it may be on its way.
const ORPHANED: Duration = Duration::from_secs(1);

/// What a claim came to.
enum Written {
    /// It is ours, at this revision.
    Held(u64),
    /// It is somebody else's.
    Taken,
    /// The store didn't get it in time, though it may yet.
    Late,
    /// Nobody can tell.
    Away,
}

impl Inner {
    pub(super) fn patience(&self) -> Duration {
        if self.stop.is_cancelled() { LAST_PATIENCE } else { PATIENCE }
    }

    pub(super) fn claim(&self, serial: u64, units: u32) -> Claim {
        Claim { holder: self.replica.clone(), boot: self.boot, n: serial, units }
    }

    /// Claims a slot for whoever waits; another one, while there is time, where that one is taken.
    pub(super) async fn claim_slot(self: Arc<Self>, subject: Subject, mut n: u32, mut serial: u64) {
        let due = Instant::now() + self.settings.store_deadline;
        loop {
            let (key, value) = (key::slot(&subject, n), self.claim(serial, 1).written());
            let (newest, sent) = (self.state.lock().store.newest, Instant::now());
            let late = || self.late(|state| state.pool(&subject).slots.doubt(n));
            let written = self.write_claim(&key, &value, self.settings.ttl, due, late).await;
            let mut state = self.state.lock();
            let now = Instant::now();
            let slots = &mut state.pool(&subject).slots;
            slots.end(n);
            slots.expire(now);
            match written {
                Written::Held(revision) => {
                    self.counters.claims.add();
                    if revision <= newest {
                        self.emptied(&mut state);
                    }
                    self.hold(&mut state, &subject, n, Own::claimed(serial, revision, sent, now, Phase::Going));
                    return;
                }
                Written::Taken => {
                    self.counters.conflicts.add();
                    state.pool(&subject).slots.suspect(n, now);
                }
                Written::Late => self.orphan(key, value),
                Written::Away => {
                    state.pool(&subject).slots.suspect(n, now);
                    self.orphan(key, value);
                    self.store_is_silent(&mut state);
                }
            }
            let may = now < due && state.store.gives_slots(now, &self.settings);
            let slots = &state.pool(&subject).slots;
            let next =
                if slots.awaited() < slots.wanted() { slots.candidate(&self.replica, self.offset, now) } else { None };
            let (true, Some(next)) = (may, next) else {
                self.pump(&mut state, &subject);
                return;
            };
            serial = state.next();
            n = next;
            state.pool(&subject).slots.begin(n, serial);
        }
    }

    /// A slot was claimed. It serves, unless nobody is to claim just now.
    fn hold(self: &Arc<Self>, state: &mut State, subject: &Subject, n: u32, own: Own) {
        let serves = !state.store.recovers(Instant::now(), &self.settings);
        let (serial, since, wake) = (own.serial, own.since, Arc::clone(&own.wake));
        state.store.heard(own.revision);
        let slots = &mut state.pool(subject).slots;
        slots.serves(&self.replica, own.revision);
        slots.hold(n, own);
        if serves && slots.uncovered() > 0 {
            slots.set(n, Phase::Used);
            slots.covering.push((n, serial));
        } else if serves {
            slots.set(n, Phase::Idle { since });
        }
        self.tasks.spawn(self.clone().keep(subject.clone(), n, serial, wake));
        self.pump(state, subject);
    }

    /// Claims a chunk of rate permits for whoever waits; another one, while there is time, where that one is taken.
    pub(super) async fn claim_rate(self: Arc<Self>, subject: Subject, mut n: u32, mut serial: u64, mut units: u32) {
        let due = Instant::now() + self.settings.store_deadline;
        let life = self.settings.rate_life();
        loop {
            let (key, value) = (key::rate(&subject, n), self.claim(serial, units).written());
            let (newest, sent) = (self.state.lock().store.newest, Instant::now());
            let late = || self.late(|state| state.pool(&subject).rate.doubt(n));
            let written = self.write_claim(&key, &value, life, due, late).await;
            let mut state = self.state.lock();
            let now = Instant::now();
            state.pool(&subject).rate.claiming.remove(&n);
            match written {
                Written::Held(revision) => {
                    self.counters.claims.add();
                    if revision <= newest {
                        self.emptied(&mut state);
                    }
                    state.store.heard(revision);
                    let recovers = state.store.recovers_rates(now, &self.settings);
                    let use_by = if recovers { sent } else { sent + self.settings.use_window };
                    // The life began when the store took it, which was before the answer came.
                    let granted = Granted { n, serial, revision, units, use_by, lapses: now + life };
                    state.pool(&subject).rate.granted(granted);
                    self.pump_rate(&mut state, &subject);
                    return;
                }
                Written::Taken => {
                    self.counters.conflicts.add();
                    state.pool(&subject).rate.suspect(n, now);
                }
                Written::Late => self.orphan(key, value),
                Written::Away => {
                    state.pool(&subject).rate.suspect(n, now);
                    self.orphan(key, value);
                    self.store_is_silent(&mut state);
                }
            }
            let may = now < due && state.store.gives_rates(now, &self.settings);
            let rate = &mut state.pool(&subject).rate;
            let next = if rate.awaited() < rate.wanted() { rate.candidate(self.offset, now) } else { None };
            let (true, Some(next)) = (may, next) else {
                self.pump_rate(&mut state, &subject);
                return;
            };
            serial = state.next();
            n = next;
            let rate = &mut state.pool(&subject).rate;
            units = rate.units(n);
            rate.claiming.insert(n, Claiming { serial, doubtful: false });
        }
    }

    /// The store didn't answer a claim in time: nobody waits for it any more, and others needn't wait either.
    fn late(self: &Arc<Self>, doubt: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        doubt(&mut state);
        self.store_is_silent(&mut state);
    }

    /// Writes a claim of something that nobody holds, and clears up what became of it; says once when it is late.
    async fn write_claim(&self, key: &str, value: &Bytes, ttl: Duration, due: Instant, late: impl FnOnce()) -> Written {
        let mut writing = pin!(self.settle_claim(key, value, ttl, due));
        tokio::select! {
            biased;
            written = &mut writing => return written,
            () = sleep_until(due) => late(),
        }
        writing.await
    }

    async fn settle_claim(&self, key: &str, value: &Bytes, ttl: Duration, due: Instant) -> Written {
        let end = Instant::now() + ttl;
        let mut doubted = false;
        for _ in 0..TRIES {
            self.counters.round_trips.add();
            let write = self.keyed.write(Bucket::Permits, key, value.clone(), Held::Nothing, Some(ttl));
            match timeout(self.patience(), write).await {
                Ok(Ok(revision)) => return Written::Held(revision),
                Ok(Err(AppendError::Conflict)) if !doubted => return Written::Taken,
                // What is in the way may be what wasn't answered.
                Ok(Err(AppendError::Conflict)) => {}
                Ok(Err(error @ (AppendError::Refused { .. } | AppendError::Full))) => {
                    tracing::error!(key, %error, "a permit can't be claimed");
                    return Written::Away;
                }
                Ok(Err(AppendError::Unknown { .. })) | Err(_) => doubted = true,
            }
            match self.read_back(key, value, end).await {
                Some(written) => return written,
                None if Instant::now() >= due => return Written::Late,
                None => {}
            }
        }
        Written::Away
    }

    /// What the store says of a claim that it didn't answer; nothing where it doesn't hold any.
    async fn read_back(&self, key: &str, value: &Bytes, end: Instant) -> Option<Written> {
        let mut pause = PAUSE;
        while Instant::now() < end && !self.stop.is_cancelled() {
            self.counters.round_trips.add();
            match timeout(self.patience(), self.keyed.get(Bucket::Permits, key)).await {
                Ok(Ok(Some(entry))) if entry.value == *value => return Some(Written::Held(entry.revision)),
                Ok(Ok(Some(_))) => return Some(Written::Taken),
                Ok(Ok(None)) => return None,
                Ok(Err(_)) | Err(_) => sleep(pause).await,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
        Some(Written::Away)
    }

    /// Deletes a claim that the store has and nobody uses.
    pub(super) async fn give_back_orphan(self: Arc<Self>, key: String, value: Bytes) {
        let _sooner_at_the_stop = timeout(ORPHANED, self.stop.cancelled()).await;
        let Ok(Ok(Some(entry))) = timeout(self.patience(), self.keyed.get(Bucket::Permits, &key)).await else { return };
        if entry.value != value {
            return;
        }
        let delete = self.keyed.delete(Bucket::Permits, &key, Held::Revision(entry.revision));
        match timeout(self.patience(), delete).await {
            Ok(Ok(())) => self.counters.returned.add(),
            Ok(Err(_)) | Err(_) => tracing::debug!(key, "a claim that nobody uses lapses by itself"),
        }
    }
}
