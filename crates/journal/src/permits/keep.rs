//! A slot's keeper: the only one that writes its key once it is claimed. It refreshes the lease, sees it end, and deletes
//! the slot when it isn't needed any more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::key;
use super::own::{Own, Phase};
use super::{Inner, Subject};
use crate::keyed::{Bucket, Held};
use crate::log::AppendError;
use crate::settle;

/// Pause before a refresh that nobody answered is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a slot whose request still runs is kept when the replica stops.
const GRACE: Duration = Duration::from_secs(2);

/// What a keeper does next.
enum Step {
    /// The slot is no longer its.
    Ended,
    Wait(Instant),
    Delete(u64),
    Refresh(u64),
}

/// What a refresh came to.
enum Refreshed {
    /// It is held at this revision; the lease began anew.
    Confirmed(u64),
    /// It is held at this revision, since when isn't known.
    Found(u64),
    /// Somebody else holds it.
    Lost,
    /// It changed meanwhile.
    Changed,
    Unknown,
}

impl Inner {
    pub(super) async fn keep(self: Arc<Self>, subject: Subject, n: u32, serial: u64, wake: Arc<Notify>) {
        let (key, value) = (key::slot(&subject, n), self.claim(serial, 1).written());
        let mut not_before = Instant::now();
        let mut stopped: Option<Instant> = None;
        loop {
            if self.stop.is_cancelled() {
                let since = *stopped.get_or_insert_with(Instant::now);
                if Instant::now() >= since + GRACE {
                    return;
                }
            }
            match self.step(&subject, n, serial, not_before) {
                Step::Ended => return,
                Step::Wait(until) => {
                    let until = stopped.map_or(until, |since| until.min(since + GRACE));
                    tokio::select! {
                        biased;
                        () = wake.notified() => {}
                        () = self.stop.cancelled(), if stopped.is_none() => {}
                        () = tokio::time::sleep_until(until) => {}
                    }
                }
                Step::Delete(revision) => {
                    self.delete(&key, &value, revision).await;
                    self.forget(&subject, n, serial);
                    return;
                }
                Step::Refresh(revision) => {
                    let sent = Instant::now();
                    let refreshed = self.refresh(&key, &value, revision).await;
                    not_before = sent + AGAIN;
                    self.note(&subject, n, serial, sent, &refreshed);
                }
            }
        }
    }

    fn step(self: &Arc<Self>, subject: &Subject, n: u32, serial: u64, not_before: Instant) -> Step {
        let now = Instant::now();
        let mut state = self.state.lock();
        let answers = state.store.answers();
        let pool = state.pool(subject);
        let slots = &mut pool.slots;
        let Some(own) = slots.own_of(n, serial) else { return Step::Ended };
        let (leased, revision) = (own.leased(now, &self.settings), own.revision);
        own.armed = false;
        match own.phase() {
            Phase::Going => return Step::Delete(revision),
            Phase::Over { lost: true } => return Step::Ended,
            Phase::Idle { since } => {
                let done = answers && now >= since + self.settings.linger;
                if done || !leased || self.stop.is_cancelled() {
                    slots.set(n, Phase::Going);
                    return Step::Delete(revision);
                }
                own.armed = true;
            }
            Phase::Used if !leased => {
                slots.set(n, Phase::Over { lost: false });
                self.counters.over_lease.add();
                tracing::warn!(%subject, slot = n, "a request runs on though the lease of its slot has ended");
            }
            Phase::Used | Phase::Over { .. } => {}
        }
        let Some(own) = slots.own_of(n, serial) else { return Step::Ended };
        let due = if own.check { now } else { own.confirmed + self.settings.ttl / 2 };
        if due.max(not_before) <= now {
            own.check = false;
            return Step::Refresh(own.revision);
        }
        let mut until = self.until(own, due.max(not_before));
        if !answers {
            // What would linger is looked at when the store answers again.
            until = until.max(now + self.settings.linger / 4);
        }
        Step::Wait(until)
    }

    fn until(&self, own: &Own, refresh: Instant) -> Instant {
        let lease_ends = own.confirmed + self.settings.lease();
        match own.phase() {
            Phase::Idle { since } => refresh.min(since + self.settings.linger).min(lease_ends),
            Phase::Used => refresh.min(lease_ends),
            Phase::Over { .. } | Phase::Going => refresh,
        }
    }

    async fn refresh(&self, key: &str, value: &Bytes, revision: u64) -> Refreshed {
        let ttl = Some(self.settings.ttl);
        let write = |held| timeout(self.patience(), self.keyed.write(Bucket::Permits, key, value.clone(), held, ttl));
        match write(Held::Revision(revision)).await {
            Ok(Ok(revision)) => return Refreshed::Confirmed(revision),
            Ok(Err(AppendError::Conflict | AppendError::Unknown { .. })) | Err(_) => {}
            Ok(Err(error @ (AppendError::Refused { .. } | AppendError::Full))) => {
                tracing::error!(key, %error, "a slot can't be refreshed");
                return Refreshed::Unknown;
            }
        }
        match timeout(self.patience(), self.keyed.get(Bucket::Permits, key)).await {
            Ok(Ok(Some(entry))) if entry.value == *value => Refreshed::Found(entry.revision),
            Ok(Ok(Some(_))) => Refreshed::Lost,
            // It has lapsed, or the store lost it: who holds it claims it again.
            Ok(Ok(None)) => match write(Held::Nothing).await {
                Ok(Ok(revision)) => Refreshed::Confirmed(revision),
                Ok(Err(AppendError::Conflict)) => Refreshed::Changed,
                Ok(Err(_)) | Err(_) => Refreshed::Unknown,
            },
            Ok(Err(_)) | Err(_) => Refreshed::Unknown,
        }
    }

    fn note(self: &Arc<Self>, subject: &Subject, n: u32, serial: u64, sent: Instant, refreshed: &Refreshed) {
        let mut state = self.state.lock();
        if let Refreshed::Confirmed(revision) | Refreshed::Found(revision) = refreshed {
            state.store.heard(*revision);
        }
        let pool = state.pool(subject);
        let slots = &mut pool.slots;
        let Some(own) = slots.own_of(n, serial) else { return };
        let phase = own.phase();
        match refreshed {
            Refreshed::Confirmed(revision) => {
                self.counters.refreshed.add();
                own.revision = *revision;
                own.confirmed = sent;
                if phase == (Phase::Over { lost: false }) {
                    slots.set(n, Phase::Used);
                }
            }
            Refreshed::Found(revision) => {
                own.revision = *revision;
                own.check = true;
            }
            Refreshed::Lost => match phase {
                Phase::Used | Phase::Over { .. } => {
                    if phase == Phase::Used {
                        self.counters.over_lease.add();
                    }
                    slots.set(n, Phase::Over { lost: true });
                    tracing::warn!(%subject, slot = n, "somebody else holds the slot of a request that runs");
                }
                Phase::Idle { .. } | Phase::Going => {
                    slots.forget(n);
                }
            },
            Refreshed::Changed => own.check = true,
            Refreshed::Unknown => self.store_is_silent(&mut state),
        }
        self.pump(&mut state, subject);
    }

    async fn delete(&self, key: &str, value: &Bytes, revision: u64) {
        let deleting = async {
            match settle::delete(self.keyed.as_ref(), Bucket::Permits, key, Held::Revision(revision)).await {
                // A refresh that nobody answered may have moved it.
                Err(AppendError::Conflict) => match self.keyed.get(Bucket::Permits, key).await {
                    Ok(Some(entry)) if entry.value == *value => {
                        settle::delete(self.keyed.as_ref(), Bucket::Permits, key, Held::Revision(entry.revision)).await
                    }
                    Ok(_) => Ok(()),
                    Err(error) => Err(AppendError::Unknown { reason: error.to_string() }),
                },
                deleted => deleted,
            }
        };
        match timeout(self.patience(), deleting).await {
            Ok(Ok(())) => self.counters.returned.add(),
            Ok(Err(_)) | Err(_) => tracing::debug!(key, "a slot lapses by itself"),
        }
    }

    /// A slot was deleted, or will lapse.
    fn forget(self: &Arc<Self>, subject: &Subject, n: u32, serial: u64) {
        let mut state = self.state.lock();
        let newest = state.store.newest;
        let slots = &mut state.pool(subject).slots;
        if slots.own_of(n, serial).is_some() {
            slots.forget(n);
            slots.serves(&self.replica, newest);
        }
        self.pump(&mut state, subject);
    }
}
