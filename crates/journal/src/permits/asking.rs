//! A request asks for a slot or a rate permit, and gives it back.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::own::Phase;
use super::rate::RateWaiter;
use super::slots::{Released, Waiter};
use super::waiting::{Full, RatePermit, Slot, Spent, WaitingForRate, WaitingForSlot};
use super::{Inner, OnOutage, Subject};

/// What is decided at an instant is heard of just after it.
const JUST_AFTER: Duration = Duration::from_millis(5);

impl Inner {
    pub(super) async fn slot(
        self: &Arc<Self>,
        subject: &Subject,
        limit: u32,
        on_outage: OnOutage,
        wait: Duration,
    ) -> Result<Slot, Full> {
        let begun = Instant::now();
        let mut waiting = match self.ask(subject, limit, on_outage) {
            Ok(slot) => return Ok(slot),
            Err(waiting) => waiting,
        };
        let mut end = begun + wait;
        loop {
            if let Ok(given) = timeout_at(end, &mut waiting.receive).await {
                // The sender is dropped only with the queue.
                return given.map_err(|_| self.full(subject, limit));
            }
            // A claim that is under way is waited for: it is decided when the store's deadline has passed.
            if end > begun + wait || !self.awaits_claim(subject) {
                break;
            }
            end += self.settings.store_deadline + JUST_AFTER;
        }
        waiting.leave().ok_or_else(|| self.full(subject, limit))
    }

    /// A slot that is idle, or a place in the queue.
    fn ask(self: &Arc<Self>, subject: &Subject, limit: u32, on_outage: OnOutage) -> Result<Slot, WaitingForSlot> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let slots = &mut state.pool(subject).slots;
        slots.set_limit(limit);
        slots.expire(now);
        if slots.waiters.is_empty()
            && let Some(n) = slots.idle(now, &self.settings)
            && let Some(serial) = slots.own(n).map(|own| own.serial)
        {
            slots.set(n, Phase::Used);
            self.counters.reused.add();
            return Ok(Slot::leased(self.clone(), subject.clone(), n, serial));
        }
        let id = state.next();
        let (send, receive) = oneshot::channel();
        state.pool(subject).slots.waiters.insert(id, Waiter { on_outage, send });
        self.pump(&mut state, subject);
        Err(WaitingForSlot::new(self.clone(), subject.clone(), id, receive))
    }

    fn full(&self, subject: &Subject, limit: u32) -> Full {
        let now = Instant::now();
        let mut state = self.state.lock();
        let in_flight = state.pools.get_mut(subject).map_or(0, |pool| {
            pool.slots.expire(now);
            pool.slots.in_flight()
        });
        let store_away = !state.store.gives_slots(now, &self.settings);
        Full { subject: subject.clone(), limit, in_flight, store_away }
    }

    fn awaits_claim(&self, subject: &Subject) -> bool {
        self.state.lock().pools.get(subject).is_some_and(|pool| pool.slots.awaited() > 0)
    }

    /// A request leaves the queue, served or not.
    pub(super) fn leave(self: &Arc<Self>, subject: &Subject, id: u64) {
        let mut state = self.state.lock();
        let Some(pool) = state.pools.get_mut(subject) else { return };
        if pool.slots.waiters.remove(&id).is_some() && pool.slots.waiters.is_empty() {
            pool.slots.served = false;
            if let Some(marking) = &pool.slots.marking {
                marking.notify_one();
            }
            // Who no longer waits keeps no slot from those who do.
            self.pump(&mut state, subject);
        }
    }

    pub(super) fn release(self: &Arc<Self>, subject: &Subject, n: u32, serial: u64) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let Some(pool) = state.pools.get_mut(subject) else { return };
        pool.slots.expire(now);
        match pool.slots.release(n, serial, now, &self.settings) {
            Released::Unknown => return,
            Released::Idle => {
                if let Some(own) = pool.slots.own_mut(n)
                    && !own.armed
                {
                    own.armed = true;
                    own.wake.notify_one();
                }
                if pool.slots.waiters.is_empty() && pool.slots.marking.is_none() {
                    // Nothing follows from it.
                    return;
                }
            }
            Released::Goes => {
                if let Some(own) = pool.slots.own(n) {
                    own.wake.notify_one();
                }
            }
            Released::Forgotten => {}
        }
        self.pump(&mut state, subject);
    }

    pub(super) fn release_outside(self: &Arc<Self>, subject: &Subject) {
        let mut state = self.state.lock();
        let Some(pool) = state.pools.get_mut(subject) else { return };
        pool.slots.outside = pool.slots.outside.saturating_sub(1);
        let covering = pool.slots.covering.pop();
        self.pump(&mut state, subject);
        drop(state);
        if let Some((n, serial)) = covering {
            self.release(subject, n, serial);
        }
    }

    pub(super) fn is_over_lease(&self, subject: &Subject, n: u32, serial: u64) -> bool {
        let state = self.state.lock();
        let own = state.pools.get(subject).and_then(|pool| pool.slots.own(n));
        own.is_some_and(|own| own.serial == serial && matches!(own.phase(), Phase::Over { .. }))
    }

    pub(super) async fn rate(
        self: &Arc<Self>,
        subject: &Subject,
        per_minute: u32,
        on_outage: OnOutage,
    ) -> Result<RatePermit, Spent> {
        let begun = Instant::now();
        let mut waiting = match self.ask_rate(subject, per_minute, on_outage) {
            Ok(permit) => return Ok(permit),
            Err(waiting) => waiting,
        };
        // The claim that it waits for, or the store's silence, decides before that.
        let end = begun + self.settings.store_deadline * 2;
        match timeout_at(end, &mut waiting.receive).await {
            Ok(Ok(decided)) => decided,
            Ok(Err(_)) | Err(_) => Err(self.spent(subject, per_minute)),
        }
    }

    fn ask_rate(
        self: &Arc<Self>,
        subject: &Subject,
        per_minute: u32,
        on_outage: OnOutage,
    ) -> Result<RatePermit, WaitingForRate> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let pool = state.pool(subject);
        pool.rate.limit(per_minute);
        if pool.rate.waiters.is_empty()
            && let Some(of) = pool.rate.take(now)
        {
            self.counters.reused.add();
            return Ok(RatePermit::new(self.clone(), subject.clone(), Some(of)));
        }
        let id = state.next();
        let (send, receive) = oneshot::channel();
        state.pool(subject).rate.waiters.insert(id, RateWaiter { on_outage, send });
        self.pump_rate(&mut state, subject);
        Err(WaitingForRate::new(self.clone(), subject.clone(), id, receive))
    }

    fn spent(&self, subject: &Subject, per_minute: u32) -> Spent {
        let state = self.state.lock();
        let now = Instant::now();
        let store_away = !state.store.gives_rates(now, &self.settings);
        let retry_after = state.pools.get(subject).map_or(self.settings.use_window, |pool| pool.rate.retry_after(now));
        Spent { subject: subject.clone(), per_minute, retry_after, store_away }
    }

    pub(super) fn leave_rate(&self, subject: &Subject, id: u64) {
        if let Some(pool) = self.state.lock().pools.get_mut(subject) {
            pool.rate.waiters.remove(&id);
        }
    }

    pub(super) fn unused(self: &Arc<Self>, subject: &Subject, n: u32, serial: u64) {
        let mut state = self.state.lock();
        let Some(pool) = state.pools.get_mut(subject) else { return };
        if pool.rate.give_back(n, serial) {
            self.pump_rate(&mut state, subject);
        }
    }
}
