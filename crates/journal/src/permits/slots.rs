//! The slots of one subject, as this replica knows them, and what follows from that. What a request asks of them is counted
//! along as things change, so that it costs the same however large the limit is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use waybill_event::ProducerId;

use super::ends::Ends;
use super::free::Free;
use super::others::Others;
use super::own::{Own, Owned, Phase};
use super::waiting::Slot;
use super::{OnOutage, Settings};

/// How long a slot counts as taken after a claim of it was refused, if the watch says nothing.
const SUSPECT: Duration = Duration::from_millis(250);
/// How long a replica that gave way waits at most before it claims again.
const BAR: Duration = Duration::from_secs(2);
/// How many times longer a slot is held where it goes to a replica that holds but one fewer.
const EVEN: u32 = 10;
/// Replicas whose newest claims are remembered.
const SERVED: usize = 256;
/// How much longer than in the store what the watch told of lasts in the view: expiry is told late, never early.
pub(super) const LATE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Slots {
    /// Slots that this replica holds, or whose requests still run.
    own: Owned,
    /// Slots that others hold.
    theirs: Others,
    /// Claims under way.
    claiming: BTreeMap<u32, Claiming>,
    /// How many of them nobody waits for any more.
    doubtful: usize,
    suspects: Ends,
    /// Numbers below the limit that are none of these.
    free: Free,
    /// Replicas that wait for a slot, with the instant at which their mark has lapsed.
    pub(super) marks: BTreeMap<ProducerId, Instant>,
    /// When each replica last claimed a slot or gave one back, as a revision: of those that hold equally many, who was served
    /// longest ago is next. Who gave one back comes last of them: as long as it came before the one it gave way to in that
    /// one's eyes, and after it in its own, each let the other go first.
    served_at: BTreeMap<ProducerId, u64>,
    /// Replicas that this one gave way to and that haven't taken the slot yet.
    bars: BTreeMap<ProducerId, Instant>,
    /// This replica's requests that wait, in the order in which they came.
    pub(super) waiters: BTreeMap<u64, Waiter>,
    /// Requests that run on permits given without the store.
    pub(super) outside: u32,
    /// Slots that were claimed since for such requests.
    pub(super) covering: Vec<(u32, u64)>,
    /// Wakes whoever keeps this replica's own mark, while it stands.
    pub(super) marking: Option<Arc<Notify>>,
    /// Whether the last waiter to leave had got a slot.
    pub(super) served: bool,
}

#[derive(Clone, Copy)]
pub(super) struct Claiming {
    pub(super) serial: u64,
    /// Nobody waits for its answer any more.
    pub(super) doubtful: bool,
}

pub(super) struct Waiter {
    pub(super) on_outage: OnOutage,
    pub(super) send: oneshot::Sender<Slot>,
}

/// What becomes of a slot whose request has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Released {
    /// It wasn't known any more.
    Unknown,
    /// It is idle, for the next request.
    Idle,
    /// It is to be deleted.
    Goes,
    /// It was somebody else's already.
    Forgotten,
}

impl Slots {
    pub(super) const fn limit(&self) -> u32 {
        self.free.limit()
    }

    pub(super) fn set_limit(&mut self, limit: u32) {
        if limit == self.free.limit() {
            return;
        }
        let Self { own, theirs, claiming, suspects, free, .. } = self;
        let taken = own.numbers().chain(theirs.numbers()).chain(claiming.keys().copied()).chain(suspects.numbers());
        free.set_limit(limit, taken);
    }

    /// Sees to it that a number is free or isn't, after something about it has changed.
    fn settle(&mut self, n: u32) {
        let taken =
            self.own.get(n).is_some() || self.claiming.contains_key(&n) || self.theirs.hold(n) || self.suspects.has(n);
        if taken { self.free.take(n) } else { self.free.give(n) }
    }

    /// Forgets what others held and what was suspected, as far as that is over. Called before anything is asked.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(n) = self.theirs.lapsed(now) {
            self.settle(n);
        }
        while let Some(n) = self.suspects.over(now) {
            self.settle(n);
        }
    }

    /// One of this replica's slots.
    pub(super) fn own(&self, n: u32) -> Option<&Own> {
        self.own.get(n)
    }

    pub(super) fn own_mut(&mut self, n: u32) -> Option<&mut Own> {
        self.own.get_mut(n)
    }

    /// One of this replica's slots, if it is still the one of this claim.
    pub(super) fn own_of(&mut self, n: u32, serial: u64) -> Option<&mut Own> {
        self.own.of(n, serial)
    }

    pub(super) fn all_own(&mut self) -> impl Iterator<Item = &mut Own> {
        self.own.values_mut()
    }

    /// A slot of this replica's is something else from now on.
    pub(super) fn set(&mut self, n: u32, phase: Phase) {
        self.own.set(n, phase);
    }

    /// A slot is this replica's.
    pub(super) fn hold(&mut self, n: u32, own: Own) {
        self.theirs.remove(n);
        self.own.put(n, own);
        self.settle(n);
    }

    /// A slot isn't this replica's any more.
    pub(super) fn forget(&mut self, n: u32) {
        self.own.remove(n);
        self.settle(n);
    }

    pub(super) fn claims(&self, n: u32) -> Option<Claiming> {
        self.claiming.get(&n).copied()
    }

    /// A claim is under way.
    pub(super) fn begin(&mut self, n: u32, serial: u64) {
        self.end(n);
        self.claiming.insert(n, Claiming { serial, doubtful: false });
        self.settle(n);
    }

    /// Nobody waits for a claim any more.
    pub(super) fn doubt(&mut self, n: u32) {
        if let Some(claiming) = self.claiming.get_mut(&n)
            && !std::mem::replace(&mut claiming.doubtful, true)
        {
            self.doubtful += 1;
        }
    }

    /// A claim has come to something.
    pub(super) fn end(&mut self, n: u32) {
        if let Some(claiming) = self.claiming.remove(&n) {
            self.doubtful -= usize::from(claiming.doubtful);
            self.settle(n);
        }
    }

    /// An idle slot for the next request: the one used last, so that those not needed go.
    pub(super) fn idle(&self, now: Instant, settings: &Settings) -> Option<u32> {
        if self.living() > self.limit() {
            return None;
        }
        let leased = |n: &u32| self.own.get(*n).is_some_and(|own| own.leased(now, settings));
        self.own.idle().find(|n| *n < self.limit() && leased(n))
    }

    /// Slots that are held, as far as is known.
    fn living(&self) -> u32 {
        self.own.living().saturating_add(self.theirs.living())
    }

    /// Whether others hold any.
    pub(super) const fn others_hold(&self) -> bool {
        self.theirs.living() > 0
    }

    /// A slot to claim, looking from `offset` on; none where there is no free one, or others come first.
    pub(super) fn candidate(&self, me: &ProducerId, offset: u32, now: Instant) -> Option<u32> {
        let limit = self.limit();
        // Also slots beyond a limit that was lowered count while they are held.
        if limit == 0 || self.living().saturating_add(count(self.claiming.len())) >= limit {
            return None;
        }
        if self.free.count() <= count(self.before(me, now)) {
            return None;
        }
        self.free.first_from(offset % limit)
    }

    /// Waiting replicas that a free slot goes to before it goes to this one: those that hold fewer, or as many and were
    /// served longer ago, and those that it gave way to.
    fn before(&self, me: &ProducerId, now: Instant) -> usize {
        let mine = (self.held().saturating_add(count(self.claiming.len())), self.served_at(me));
        let before = |(replica, lapses): &(&ProducerId, &Instant)| {
            let theirs = (self.theirs.held_by(replica), self.served_at(replica));
            **lapses > now && (self.barred(replica, now) || theirs < mine)
        };
        self.marks.iter().filter(before).count()
    }

    fn served_at(&self, replica: &ProducerId) -> u64 {
        self.served_at.get(replica).copied().unwrap_or_default()
    }

    /// A replica claimed a slot, or gave one back.
    pub(super) fn serves(&mut self, replica: &ProducerId, revision: u64) {
        self.served_at.insert(replica.clone(), revision);
    }

    fn barred(&self, replica: &ProducerId, now: Instant) -> bool {
        self.bars.get(replica).is_some_and(|until| *until > now)
    }

    /// Slots that this replica holds.
    pub(super) fn held(&self) -> u32 {
        self.own.held()
    }

    pub(super) const fn over_lease(&self) -> u32 {
        self.own.over_lease()
    }

    /// Claims that somebody waits for.
    pub(super) fn awaited(&self) -> usize {
        self.claiming.len() - self.doubtful
    }

    /// Requests that run without a slot of the store's.
    pub(super) fn uncovered(&self) -> u32 {
        self.outside.saturating_sub(count(self.covering.len()))
    }

    /// Requests that slots are to be claimed for.
    pub(super) fn wanted(&self) -> usize {
        self.waiters.len() + usize::try_from(self.uncovered()).unwrap_or(usize::MAX)
    }

    /// Whether this replica holds slots whose leases stand.
    pub(super) fn has_leases(&self, now: Instant, settings: &Settings) -> bool {
        let stands = |own: &Own| matches!(own.phase(), Phase::Idle { .. } | Phase::Used) && own.leased(now, settings);
        self.own.values().any(stands)
    }

    /// Slots that others may hold, whatever the store says of them just now.
    pub(super) fn maybe_taken(&self) -> u32 {
        self.theirs.maybe()
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.own.running().saturating_add(self.theirs.living()).saturating_add(self.uncovered())
    }

    pub(super) fn wanting(&self, now: Instant) -> u32 {
        let others = self.marks.values().filter(|lapses| **lapses > now).count();
        count(others + usize::from(!self.waiters.is_empty()))
    }

    /// A claim was refused: somebody else has the slot, though the watch hasn't said so yet.
    pub(super) fn suspect(&mut self, n: u32, now: Instant) {
        self.suspects.set(n, now + SUSPECT);
        self.settle(n);
    }

    /// A slot's request has ended.
    pub(super) fn release(&mut self, n: u32, serial: u64, now: Instant, settings: &Settings) -> Released {
        let Some(phase) = self.own.of(n, serial).map(|own| own.phase()) else { return Released::Unknown };
        if phase == (Phase::Over { lost: true }) {
            self.forget(n);
            return Released::Forgotten;
        }
        let goes = self.goes_when_released(n, now, settings);
        self.set(n, if goes { Phase::Going } else { Phase::Idle { since: now } });
        if goes { Released::Goes } else { Released::Idle }
    }

    fn goes_when_released(&mut self, n: u32, now: Instant, settings: &Settings) -> bool {
        let Some(own) = self.own.get(n) else { return true };
        let excess = n >= self.limit() || self.living() > self.limit();
        if excess || matches!(own.phase(), Phase::Over { .. }) {
            return true;
        }
        if !self.marks.values().any(|lapses| *lapses > now) {
            return false;
        }
        if self.waiters.is_empty() {
            return true;
        }
        let tenure = now.duration_since(own.since);
        let Some(poorest) = self.gives_way_to(tenure, now, settings).cloned() else { return false };
        // Whom it gives way to is served before it claims again.
        self.bars.insert(poorest, now + BAR);
        true
    }

    /// The replica that gets a slot which this one held for so long and could use itself.
    fn gives_way_to(&self, tenure: Duration, now: Instant, settings: &Settings) -> Option<&ProducerId> {
        let held = self.held();
        let poorer = self.marks.iter().filter(|(replica, lapses)| {
            let theirs = self.theirs.held_by(replica);
            // Where the difference is one slot nothing is gained but that it evens out in the long run.
            let due = if theirs > 0 && theirs + 1 == held { settings.tenure * EVEN } else { settings.tenure };
            **lapses > now && theirs < held && tenure >= due && !self.barred(replica, now)
        });
        let poorer: Vec<&ProducerId> = poorer.map(|(replica, _)| replica).collect();
        if self.free.count() >= count(poorer.len()) {
            // There is one for each already.
            return None;
        }
        poorer.into_iter().min_by_key(|replica| (self.theirs.held_by(replica), self.served_at(replica)))
    }

    /// Idle slots that are to go at once: others wait, or the limit was lowered.
    pub(super) fn dismiss(&mut self, now: Instant) {
        let wanted = self.waiters.is_empty() && self.marks.values().any(|lapses| *lapses > now);
        let limit = self.limit();
        let mut surplus = self.living().saturating_sub(limit);
        while let Some(n) = self.own.last_idle().filter(|n| wanted || *n >= limit || surplus > 0) {
            surplus = surplus.saturating_sub(1);
            self.set(n, Phase::Going);
            if let Some(own) = self.own.get(n) {
                own.wake.notify_one();
            }
        }
    }

    /// Somebody else holds a slot, by a write of this revision.
    pub(super) fn took(&mut self, n: u32, holder: ProducerId, revision: u64, now: Instant, settings: &Settings) {
        self.suspects.clear(n);
        if self.theirs.took(n, holder.clone(), now + settings.ttl + LATE) {
            self.bars.remove(&holder);
            self.serves(&holder, revision);
        }
        self.settle(n);
    }

    /// A slot is gone by a write of this revision. Where that isn't to be relied on it may still be somebody's.
    pub(super) fn gone(&mut self, n: u32, relied: bool, revision: u64) {
        self.suspects.clear(n);
        if let Some(holder) = self.theirs.holder(n).cloned() {
            self.serves(&holder, revision);
        }
        self.theirs.gone(n, relied);
        self.settle(n);
    }

    pub(super) fn unmark(&mut self, replica: &ProducerId) {
        self.marks.remove(replica);
        self.bars.remove(replica);
    }

    /// Forgets what has lapsed.
    pub(super) fn tidy(&mut self, now: Instant) {
        self.expire(now);
        self.marks.retain(|_, until| *until > now);
        self.bars.retain(|_, until| *until > now);
        if self.served_at.len() > SERVED {
            // Who was served longest ago counts as never served.
            let oldest = self.served_at.values().copied().min();
            self.served_at.retain(|_, revision| Some(*revision) != oldest);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.own.is_empty()
            && self.theirs.is_empty()
            && self.claiming.is_empty()
            && self.marks.is_empty()
            && self.waiters.is_empty()
            && self.outside == 0
            && self.marking.is_none()
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
