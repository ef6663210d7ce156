//! The slots of one subject, as this replica knows them, and what follows from that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use waybill_event::ProducerId;

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
    pub(super) limit: u32,
    /// Slots that this replica holds, or whose requests still run.
    pub(super) own: BTreeMap<u32, Own>,
    /// Slots that others hold.
    pub(super) theirs: BTreeMap<u32, Theirs>,
    /// Claims under way.
    pub(super) claiming: BTreeMap<u32, Claiming>,
    suspects: BTreeMap<u32, Instant>,
    /// Replicas that wait for a slot, with the instant at which their mark has lapsed.
    pub(super) marks: BTreeMap<ProducerId, Instant>,
    /// Revision of the newest claim of each replica: of those that hold equally many, who was served longest ago is next.
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

pub(super) struct Own {
    pub(super) serial: u64,
    pub(super) revision: u64,
    /// When the last write that the store confirmed was sent.
    pub(super) confirmed: Instant,
    pub(super) since: Instant,
    pub(super) phase: Phase,
    /// To be refreshed at once: something is wrong with it.
    pub(super) check: bool,
    pub(super) wake: Arc<Notify>,
    /// Its keeper looks at it soon, whether or not it is woken.
    pub(super) armed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Idle {
        since: Instant,
    },
    Used,
    /// Its lease ended while its request runs. Lost: somebody else has it.
    Over {
        lost: bool,
    },
    /// It is being deleted.
    Going,
}

pub(super) struct Theirs {
    pub(super) holder: ProducerId,
    pub(super) lapses: Instant,
    /// The store said that it is gone, at a time when that isn't to be relied on.
    pub(super) gone: bool,
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

impl Own {
    pub(super) fn leased(&self, now: Instant, settings: &Settings) -> bool {
        now < self.confirmed + settings.lease()
    }
}

impl Slots {
    /// An idle slot for the next request: the one used last, so that those not needed go.
    pub(super) fn idle(&self, now: Instant, settings: &Settings) -> Option<u32> {
        if self.living(now) > self.limit {
            return None;
        }
        let idle = self.own.iter().filter_map(|(n, own)| match own.phase {
            Phase::Idle { since } if *n < self.limit && own.leased(now, settings) => Some((since, *n)),
            Phase::Idle { .. } | Phase::Used | Phase::Over { .. } | Phase::Going => None,
        });
        idle.max().map(|(_, n)| n)
    }

    /// Slots that are held, as far as is known.
    fn living(&self, now: Instant) -> u32 {
        let own = self.own.values().filter(|own| own.phase != Phase::Over { lost: true }).count();
        count(own + self.living_theirs(now).count())
    }

    fn living_theirs(&self, now: Instant) -> impl Iterator<Item = &Theirs> {
        self.theirs.values().filter(move |theirs| !theirs.gone && theirs.lapses > now)
    }

    /// Whether others hold any.
    pub(super) fn others_hold(&self, now: Instant) -> bool {
        self.living_theirs(now).next().is_some()
    }

    fn is_free(&self, n: u32, now: Instant) -> bool {
        !self.own.contains_key(&n)
            && !self.claiming.contains_key(&n)
            && self.theirs.get(&n).is_none_or(|theirs| theirs.gone || theirs.lapses <= now)
            && self.suspects.get(&n).is_none_or(|until| *until <= now)
    }

    /// A slot to claim, looking from `offset` on; none where there is no free one, or others come first.
    pub(super) fn candidate(&self, me: &ProducerId, offset: u32, now: Instant) -> Option<u32> {
        let limit = self.limit;
        // Also slots beyond a limit that was lowered count while they are held.
        if limit == 0 || self.living(now).saturating_add(count(self.claiming.len())) >= limit {
            return None;
        }
        let free = (0..limit).filter(|n| self.is_free(*n, now)).count();
        if free <= self.before(me, now) {
            return None;
        }
        let from = offset % limit;
        (from..limit).chain(0..from).find(|n| self.is_free(*n, now))
    }

    /// Waiting replicas that a free slot goes to before it goes to this one: those that hold fewer, or as many and were
    /// served longer ago, and those that it gave way to.
    fn before(&self, me: &ProducerId, now: Instant) -> usize {
        let mine = (self.held().saturating_add(count(self.claiming.len())), self.served_at(me));
        let before = |(replica, lapses): &(&ProducerId, &Instant)| {
            let theirs = (self.held_by(replica, now), self.served_at(replica));
            **lapses > now && (self.barred(replica, now) || theirs < mine)
        };
        self.marks.iter().filter(before).count()
    }

    fn served_at(&self, replica: &ProducerId) -> u64 {
        self.served_at.get(replica).copied().unwrap_or_default()
    }

    /// A replica claimed a slot.
    pub(super) fn serves(&mut self, replica: &ProducerId, revision: u64) {
        self.served_at.insert(replica.clone(), revision);
    }

    fn barred(&self, replica: &ProducerId, now: Instant) -> bool {
        self.bars.get(replica).is_some_and(|until| *until > now)
    }

    fn held_by(&self, replica: &ProducerId, now: Instant) -> u32 {
        count(self.living_theirs(now).filter(|theirs| theirs.holder == *replica).count())
    }

    /// Slots that this replica holds.
    pub(super) fn held(&self) -> u32 {
        count(self.own.values().filter(|own| matches!(own.phase, Phase::Idle { .. } | Phase::Used)).count())
    }

    pub(super) fn over_lease(&self) -> u32 {
        count(self.own.values().filter(|own| matches!(own.phase, Phase::Over { .. })).count())
    }

    /// Claims that somebody waits for.
    pub(super) fn awaited(&self) -> usize {
        self.claiming.values().filter(|claiming| !claiming.doubtful).count()
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
        let stands = |own: &Own| matches!(own.phase, Phase::Idle { .. } | Phase::Used) && own.leased(now, settings);
        self.own.values().any(stands)
    }

    /// Slots that others may hold, whatever the store says of them just now.
    pub(super) fn maybe_taken(&self, now: Instant) -> u32 {
        count(self.theirs.values().filter(|theirs| theirs.lapses > now).count())
    }

    pub(super) fn in_flight(&self, now: Instant) -> u32 {
        let own = self.own.values().filter(|own| matches!(own.phase, Phase::Used | Phase::Over { .. })).count();
        count(own + self.living_theirs(now).count()).saturating_add(self.uncovered())
    }

    pub(super) fn wanting(&self, now: Instant) -> u32 {
        let others = self.marks.values().filter(|lapses| **lapses > now).count();
        count(others + usize::from(!self.waiters.is_empty()))
    }

    /// A claim was refused: somebody else has the slot, though the watch hasn't said so yet.
    pub(super) fn suspect(&mut self, n: u32, now: Instant) {
        self.suspects.insert(n, now + SUSPECT);
    }

    /// A slot's request has ended.
    pub(super) fn release(&mut self, n: u32, serial: u64, now: Instant, settings: &Settings) -> Released {
        let (mine, lost) = match self.own.get(&n) {
            Some(own) => (own.serial == serial, own.phase == Phase::Over { lost: true }),
            None => (false, false),
        };
        if !mine {
            return Released::Unknown;
        }
        if lost {
            self.own.remove(&n);
            return Released::Forgotten;
        }
        let goes = self.goes_when_released(n, now, settings);
        let Some(own) = self.own.get_mut(&n) else { return Released::Unknown };
        own.phase = if goes { Phase::Going } else { Phase::Idle { since: now } };
        if goes { Released::Goes } else { Released::Idle }
    }

    fn goes_when_released(&mut self, n: u32, now: Instant, settings: &Settings) -> bool {
        let Some(own) = self.own.get(&n) else { return true };
        let excess = n >= self.limit || self.living(now) > self.limit;
        if excess || matches!(own.phase, Phase::Over { .. }) {
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
            let theirs = self.held_by(replica, now);
            // Where the difference is one slot nothing is gained but that it evens out in the long run.
            let due = if theirs > 0 && theirs + 1 == held { settings.tenure * EVEN } else { settings.tenure };
            **lapses > now && theirs < held && tenure >= due && !self.barred(replica, now)
        });
        let poorer: Vec<&ProducerId> = poorer.map(|(replica, _)| replica).collect();
        let free = (0..self.limit).filter(|n| self.is_free(*n, now)).count();
        if free >= poorer.len() {
            // There is one for each already.
            return None;
        }
        poorer.into_iter().min_by_key(|replica| (self.held_by(replica, now), self.served_at(replica)))
    }

    /// Idle slots that are to go at once: others wait, or the limit was lowered.
    pub(super) fn dismiss(&mut self, now: Instant) {
        let wanted = self.waiters.is_empty() && self.marks.values().any(|lapses| *lapses > now);
        let (limit, excess) = (self.limit, self.living(now).saturating_sub(self.limit));
        let mut surplus = excess;
        for (n, own) in self.own.iter_mut().rev() {
            if !matches!(own.phase, Phase::Idle { .. }) {
                continue;
            }
            if wanted || *n >= limit || surplus > 0 {
                surplus = surplus.saturating_sub(1);
                own.phase = Phase::Going;
                own.wake.notify_one();
            }
        }
    }

    /// Somebody else holds a slot, by a write of this revision.
    pub(super) fn took(&mut self, n: u32, holder: ProducerId, revision: u64, now: Instant, settings: &Settings) {
        self.suspects.remove(&n);
        let lapses = now + settings.ttl + LATE;
        let known = self.theirs.get(&n).is_some_and(|theirs| theirs.holder == holder && !theirs.gone);
        if !known {
            self.bars.remove(&holder);
            self.serves(&holder, revision);
        }
        self.theirs.insert(n, Theirs { holder, lapses, gone: false });
    }

    /// A slot is gone. Where that isn't to be relied on it may still be somebody's.
    pub(super) fn gone(&mut self, n: u32, relied: bool) {
        self.suspects.remove(&n);
        match self.theirs.get_mut(&n) {
            Some(theirs) if !relied => theirs.gone = true,
            Some(_) => {
                self.theirs.remove(&n);
            }
            None => {}
        }
    }

    pub(super) fn unmark(&mut self, replica: &ProducerId) {
        self.marks.remove(replica);
        self.bars.remove(replica);
    }

    /// Forgets what has lapsed.
    pub(super) fn tidy(&mut self, now: Instant) {
        self.theirs.retain(|_, theirs| theirs.lapses > now);
        self.suspects.retain(|_, until| *until > now);
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
