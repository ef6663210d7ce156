//! What the store tells: who holds what, and who waits.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::Instant;
use waybill_event::ProducerId;

use super::key::{Claim, Key};
use super::{Inner, State, Subject};
use crate::keyed::{Bucket, Entry, Watched};

/// How much longer than in the store a mark lasts in the view.
const LATE: Duration = Duration::from_millis(500);

impl Inner {
    pub(super) fn watch_always(self: &Arc<Self>) {
        let inner = self.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = inner.stop.cancelled() => {}
                () = inner.watch() => {}
            }
        });
    }

    async fn watch(self: &Arc<Self>) {
        let mut changes = self.keyed.watch(Bucket::Permits);
        while let Some(change) = changes.next().await {
            match change {
                Ok(Watched::Put(entry)) => {
                    let mut state = self.state.lock();
                    if let Some(key) = Key::read(&entry.key) {
                        self.told_put(&mut state, key, &entry);
                    }
                    state.store.heard(entry.revision);
                }
                Ok(Watched::Gone { key, revision }) => {
                    let mut state = self.state.lock();
                    state.store.heard(revision);
                    if let Some(key) = Key::read(&key) {
                        self.told_gone(&mut state, &key, revision);
                    }
                }
                Ok(Watched::Current) => self.state.lock().store.told = true,
                Err(error) => {
                    tracing::debug!(%error, "permits can't be watched just now");
                    self.ask_store(&mut self.state.lock());
                }
            }
        }
    }

    fn told_put(self: &Arc<Self>, state: &mut State, key: Key, entry: &Entry) {
        let now = Instant::now();
        match key {
            Key::Slot(subject, n) => {
                let Some(claim) = Claim::read(&entry.value) else { return };
                self.told_slot(state, &subject, n, claim, entry);
            }
            Key::Rate(subject, n) => {
                let Some(claim) = Claim::read(&entry.value) else { return };
                self.told_rate(state, &subject, n, &claim, entry);
            }
            Key::Demand(subject, replica) => {
                let Ok(replica) = replica.parse::<ProducerId>() else { return };
                if replica != self.replica {
                    let lapses = now + self.settings.demand_life + LATE;
                    state.pool(&subject).slots.marks.insert(replica, lapses);
                    self.pump(state, &subject);
                }
            }
            // What the store itself says of it counts; a watch may tell of it late or twice.
            Key::Generation => self.ask_store(state),
            Key::Recovering => {
                if !state.store.recovers(now, &self.settings) {
                    self.recover(state, now);
                }
            }
        }
    }

    fn told_slot(self: &Arc<Self>, state: &mut State, subject: &Subject, n: u32, claim: Claim, entry: &Entry) {
        let now = Instant::now();
        let slots = &mut state.pool(subject).slots;
        if claim.holder == self.replica && claim.boot == self.boot {
            let held = slots.own(n).is_some_and(|own| own.serial == claim.n);
            let claiming = slots.claims(n).is_some_and(|claiming| claiming.serial == claim.n);
            if !held && !claiming {
                slots.took(n, claim.holder, entry.revision, now, &self.settings);
                self.orphan(entry.key.clone(), entry.value.clone());
            }
            return;
        }
        // An earlier start of this replica has ended, and its requests with it.
        if claim.holder == self.replica && claim.boot < self.boot {
            self.orphan(entry.key.clone(), entry.value.clone());
        }
        if let Some(own) = slots.own_mut(n)
            && own.revision < entry.revision
        {
            own.check = true;
            own.wake.notify_one();
        }
        slots.took(n, claim.holder, entry.revision, now, &self.settings);
        self.pump(state, subject);
    }

    fn told_rate(self: &Arc<Self>, state: &mut State, subject: &Subject, n: u32, claim: &Claim, entry: &Entry) {
        let rate = &mut state.pool(subject).rate;
        if claim.holder == self.replica && claim.boot == self.boot {
            if !rate.knows(n, claim.n) {
                // Its claim was given up before it got through: nothing of it was used.
                self.orphan(entry.key.clone(), entry.value.clone());
            }
            return;
        }
        rate.took(n, claim.n, claim.units, Instant::now() + self.settings.rate_life());
    }

    fn told_gone(self: &Arc<Self>, state: &mut State, key: &Key, revision: u64) {
        let relied = state.store.since.is_none();
        match key {
            Key::Slot(subject, n) => {
                let slots = &mut state.pool(subject).slots;
                slots.gone(*n, relied, revision);
                if let Some(own) = slots.own_mut(*n)
                    && own.revision < revision
                {
                    own.check = true;
                    own.wake.notify_one();
                }
                self.pump(state, subject);
            }
            Key::Rate(subject, n) => state.pool(subject).rate.gone(*n),
            Key::Demand(subject, replica) => {
                if let Ok(replica) = replica.parse::<ProducerId>() {
                    state.pool(subject).slots.unmark(&replica);
                    self.pump(state, subject);
                }
            }
            Key::Generation => self.ask_store(state),
            Key::Recovering => {}
        }
    }
}
