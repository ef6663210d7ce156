//! What follows from a change: who waits is served, claims are begun, marks are set. Called under the lock after every
//! change, so that there is one place that decides.

use std::sync::Arc;

use tokio::time::Instant;

use super::outage::Situation;
use super::own::Phase;
use super::slots::{Claiming, Waiter};
use super::waiting::{RatePermit, Slot, Spent};
use super::{Inner, OnOutage, State, Subject};

impl Inner {
    /// Serves those who wait for a slot of a subject.
    pub(super) fn pump(self: &Arc<Self>, state: &mut State, subject: &Subject) {
        let now = Instant::now();
        state.pool(subject).slots.expire(now);
        self.serve_idle(state, subject, now);
        if state.store.gives_slots(now, &self.settings) {
            self.begin_claims(state, subject, now);
            self.begin_marking(state, subject);
        } else {
            self.serve_outside(state, subject, now);
        }
        if state.store.answers() {
            state.pool(subject).slots.dismiss(now);
        }
    }

    fn serve_idle(self: &Arc<Self>, state: &mut State, subject: &Subject, now: Instant) {
        let slots = &mut state.pool(subject).slots;
        while let Some((id, waiter)) = slots.waiters.pop_first() {
            if waiter.send.is_closed() {
                continue;
            }
            let Some(n) = slots.idle(now, &self.settings) else {
                slots.waiters.insert(id, waiter);
                return;
            };
            let Some(serial) = slots.own(n).map(|own| own.serial) else { return };
            let slot = Slot::leased(self.clone(), subject.clone(), n, serial);
            match waiter.send.send(slot) {
                Ok(()) => {
                    slots.set(n, Phase::Used);
                    slots.served = true;
                }
                Err(slot) => slot.withdraw(),
            }
        }
        if let Some(marking) = &slots.marking {
            marking.notify_one();
        }
    }

    fn serve_outside(self: &Arc<Self>, state: &mut State, subject: &Subject, now: Instant) {
        let situation = self.situation(state, subject, now);
        let slots = &mut state.pool(subject).slots;
        let has_leases = slots.has_leases(now, &self.settings);
        // Until its leases end a replica uses what it holds.
        let may = |on_outage, running: u32| match on_outage {
            OnOutage::Open => true,
            OnOutage::Closed => false,
            OnOutage::Share { .. } => !has_leases && running < situation.allowed(on_outage),
        };
        let mut running = slots.uncovered().saturating_add(slots.over_lease());
        let mut served = Vec::new();
        for (id, waiter) in &slots.waiters {
            if may(waiter.on_outage, running) {
                served.push(*id);
                running = running.saturating_add(u32::from(!waiter.send.is_closed()));
            }
        }
        let mut given = 0;
        for Waiter { on_outage, send } in served.into_iter().filter_map(|id| slots.waiters.remove(&id)) {
            match send.send(Slot::outside(self.clone(), subject.clone())) {
                Ok(()) => {
                    slots.outside = slots.outside.saturating_add(1);
                    self.count_outside(on_outage);
                    given += 1;
                }
                Err(slot) => slot.withdraw(),
            }
        }
        state.store.given_without += given;
    }

    fn count_outside(&self, on_outage: OnOutage) {
        match on_outage {
            OnOutage::Open => self.counters.opened.add(),
            OnOutage::Share { .. } | OnOutage::Closed => self.counters.shared.add(),
        }
    }

    fn situation(&self, state: &mut State, subject: &Subject, now: Instant) -> Situation {
        let (replicas, told) = (state.store.replicas(), state.store.told);
        let settled = state.store.since.is_some_and(|since| now >= since + self.settings.ttl);
        let slots = &state.pool(subject).slots;
        Situation { limit: slots.limit(), replicas, taken: slots.maybe_taken(), unsure: !told && !settled }
    }

    fn begin_claims(self: &Arc<Self>, state: &mut State, subject: &Subject, now: Instant) {
        loop {
            let slots = &state.pool(subject).slots;
            // What runs without a slot gets one, too, now that there are some.
            if slots.awaited() >= slots.wanted() {
                return;
            }
            let Some(n) = slots.candidate(&self.replica, self.offset, now) else { return };
            let serial = state.next();
            state.pool(subject).slots.begin(n, serial);
            self.tasks.spawn(self.clone().claim_slot(subject.clone(), n, serial));
        }
    }

    fn begin_marking(self: &Arc<Self>, state: &mut State, subject: &Subject) {
        let slots = &mut state.pool(subject).slots;
        let wants = !slots.waiters.is_empty() && slots.awaited() == 0 && slots.others_hold();
        if wants && slots.marking.is_none() && !self.stop.is_cancelled() {
            let wake = Arc::default();
            slots.marking = Some(Arc::clone(&wake));
            self.tasks.spawn(self.clone().mark(subject.clone(), wake));
        }
    }

    /// Serves those who wait for a rate permit of a subject.
    pub(super) fn pump_rate(self: &Arc<Self>, state: &mut State, subject: &Subject) {
        let now = Instant::now();
        let rate = &mut state.pool(subject).rate;
        while let Some((id, waiter)) = rate.waiters.pop_first() {
            if waiter.send.is_closed() {
                continue;
            }
            let Some((n, serial)) = rate.take(now) else {
                rate.waiters.insert(id, waiter);
                break;
            };
            let permit = RatePermit::new(self.clone(), subject.clone(), Some((n, serial)));
            if waiter.send.send(Ok(permit)).is_err() {
                rate.give_back(n, serial);
            }
        }
        if !state.store.gives_rates(now, &self.settings) {
            self.decide_rates_outside(state, subject, now);
            return;
        }
        self.begin_rate_claims(state, subject, now);
        let rate = &mut state.pool(subject).rate;
        if !rate.is_awaiting() {
            self.refuse_rates(state, subject, now);
        }
    }

    fn begin_rate_claims(self: &Arc<Self>, state: &mut State, subject: &Subject, now: Instant) {
        loop {
            let rate = &mut state.pool(subject).rate;
            // What was given without the store is paid when the next request asks.
            if rate.waiters.is_empty() || rate.awaited() >= rate.wanted() {
                return;
            }
            let Some(n) = rate.candidate(self.offset, now) else { return };
            let units = rate.units(n);
            let serial = state.next();
            state.pool(subject).rate.claiming.insert(n, Claiming { serial, doubtful: false });
            self.tasks.spawn(self.clone().claim_rate(subject.clone(), n, serial, units));
        }
    }

    fn decide_rates_outside(self: &Arc<Self>, state: &mut State, subject: &Subject, now: Instant) {
        let (replicas, told) = (state.store.replicas(), state.store.told);
        let settled = state.store.since.is_some_and(|since| now >= since + self.settings.rate_life());
        let rate = &mut state.pool(subject).rate;
        let (limit, taken) = (rate.per_minute(), rate.maybe_used(now));
        let situation = Situation { limit, replicas, taken, unsure: !told && !settled };
        let mut given = 0;
        while let Some((_, waiter)) = rate.waiters.pop_first() {
            if rate.outside(now) < situation.allowed(waiter.on_outage) {
                let permit = RatePermit::new(self.clone(), subject.clone(), None);
                if waiter.send.send(Ok(permit)).is_ok() {
                    rate.give_outside(now + self.settings.minute);
                    self.count_outside(waiter.on_outage);
                    given += 1;
                }
            } else {
                let spent = Spent {
                    subject: subject.clone(),
                    per_minute: rate.per_minute(),
                    retry_after: rate.retry_after(now),
                    store_away: true,
                };
                // Who left has nothing to hear.
                let _left = waiter.send.send(Err(spent));
            }
        }
        state.store.given_without += given;
    }

    fn refuse_rates(&self, state: &mut State, subject: &Subject, now: Instant) {
        let rate = &mut state.pool(subject).rate;
        let (per_minute, retry_after) = (rate.per_minute(), rate.retry_after(now));
        while let Some((_, waiter)) = rate.waiters.pop_first() {
            let spent = Spent { subject: subject.clone(), per_minute, retry_after, store_away: false };
            let _left = waiter.send.send(Err(spent));
        }
    }
}
