//! Runtime blocks of one scope. A longer block extends a shorter one and is never shortened by it, in whatever order they
//! arrive; whether one still holds is computed when asked.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use waybill_event::failure::Strength;
use waybill_event::{FailureKind, LogTime};

use super::state::{Revisions, is_of_token};

/// A block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// `<scope>@<mark of the outcome that set it>`.
    pub id: Arc<str>,
    /// Why.
    pub kind: FailureKind,
    /// Since when.
    pub since: LogTime,
    /// Until when.
    pub until: LogTime,
    /// The end that was last announced. A storm of limits lengthens a block with each answer; only a step that
    /// matters is announced.
    pub announced: LogTime,
    /// When evidence last said that it holds.
    #[serde(default)]
    pub confirmed: LogTime,
    /// What the evidence was made with.
    pub revisions: Revisions,
}

impl Block {
    /// Whether it says of the source that it is busy, rather than that it is broken.
    #[must_use]
    pub const fn is_limit(&self, strength: Strength) -> bool {
        match self.kind {
            FailureKind::RateLimited | FailureKind::WindowExhausted | FailureKind::Overloaded => true,
            _ => matches!(strength, Strength::Hint),
        }
    }

    /// From when on it may be tried again although it holds.
    #[must_use]
    pub fn retry_from(&self, after: Duration) -> LogTime {
        self.confirmed.max(self.since) + after
    }
}

/// What an outcome asks to be blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// How strictly.
    pub strength: Strength,
    /// Why.
    pub kind: FailureKind,
    /// From when on.
    pub t: LogTime,
    /// For how long, before growth.
    pub duration: Duration,
    /// When the request was admitted: one that was on its way before the block began repeats nothing.
    pub admitted: LogTime,
    /// What the evidence was made with.
    pub revisions: Revisions,
}

/// The blocks of one scope, one of each strength.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Blocks {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    soft: Option<Block>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<Block>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hard: Option<Block>,
    /// Rate limits without a hint since the last success: when the last step was made, and how many there were before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    repeated: Option<(LogTime, u32)>,
}

impl Blocks {
    /// The block of this strength that holds as of `as_of`.
    #[must_use]
    pub fn active(&self, strength: Strength, as_of: LogTime) -> Option<&Block> {
        self.slot(strength).as_ref().filter(|block| as_of < block.until)
    }

    /// Sets or lengthens a block; repetition alone makes none longer than `growth_max`. Returns it when that is worth
    /// announcing.
    pub fn set(&mut self, id: impl FnOnce() -> Arc<str>, wanted: Wanted, growth_max: Duration) -> Option<&Block> {
        let duration = self.grown(wanted, growth_max);
        let until = wanted.t + duration;
        let slot = match wanted.strength {
            Strength::Soft => &mut self.soft,
            Strength::Hint => &mut self.hint,
            Strength::Hard => &mut self.hard,
        };
        if let Some(held) = slot.as_mut().filter(|held| held.until >= until) {
            held.confirmed = held.confirmed.max(wanted.t);
            return None;
        }
        let confirmed = slot.as_ref().map_or(wanted.t, |held| held.confirmed.max(wanted.t));
        let held = slot.as_ref().filter(|held| held.until > wanted.t);
        let step = (duration / 4).max(Duration::from_millis(250));
        let announce = held.is_none_or(|held| until.since(held.announced) >= step);
        // What isn't announced goes on under the name that was.
        let goes_on = held.filter(|_| !announce).map(|held| (Arc::clone(&held.id), held.since, held.announced));
        let Wanted { kind, t, revisions, .. } = wanted;
        let (id, since, announced) = goes_on.unwrap_or_else(|| (id(), t, until));
        let block = slot.insert(Block { id, kind, since, until, announced, confirmed, revisions });
        announce.then_some(block)
    }

    /// A success at `t`: rate limits without a hint from before it are over.
    pub fn lift(&mut self, t: LogTime) {
        if self.soft.as_ref().is_some_and(|held| held.kind == FailureKind::RateLimited && held.since <= t) {
            self.soft = None;
        }
        if self.repeated.is_some_and(|(last, _)| last <= t) {
            self.repeated = None;
        }
    }

    /// A request that was served although a limit held: it was admitted so long after the limit was last told of that it
    /// must have tried again, so the limit is over. Gives what held until `t`.
    pub fn retried(&mut self, t: LogTime, admitted: LogTime, after: Duration) -> SmallVec<[(Arc<str>, Strength); 2]> {
        let mut ended = SmallVec::new();
        for (slot, strength) in [(&mut self.hint, Strength::Hint), (&mut self.hard, Strength::Hard)] {
            let over = |held: &&mut Block| held.is_limit(strength) && held.retry_from(after) <= admitted;
            if slot.as_mut().filter(over).is_some()
                && let Some(block) = slot.take()
                && t < block.until
            {
                ended.push((block.id, strength));
            }
        }
        ended
    }

    /// Everything is lifted by hand at `t`; gives those that still held.
    pub fn lift_all(&mut self, t: LogTime) -> Vec<(Arc<str>, Strength)> {
        let strengths = [Strength::Soft, Strength::Hint, Strength::Hard];
        let held = strengths.into_iter().filter_map(|s| self.active(s, t).map(|block| (Arc::clone(&block.id), s)));
        let held = held.collect();
        *self = Self::default();
        held
    }

    /// Ends what says that a token older than this one was refused; gives what still held at `t`.
    pub fn lift_of_token(&mut self, credential: u64, t: LogTime) -> SmallVec<[(Arc<str>, Strength); 2]> {
        let mut ended = SmallVec::new();
        let slots =
            [(&mut self.soft, Strength::Soft), (&mut self.hint, Strength::Hint), (&mut self.hard, Strength::Hard)];
        for (slot, strength) in slots {
            let over = |held: &mut Block| is_of_token(held.kind) && held.revisions.credential < credential;
            if let Some(block) = slot.take_if(over)
                && t < block.until
            {
                ended.push((block.id, strength));
            }
        }
        ended
    }

    /// Forgets what was made with older credentials or base URLs than these.
    pub fn clear_older(&mut self, revisions: Revisions) {
        for slot in [&mut self.soft, &mut self.hint, &mut self.hard] {
            if slot.as_ref().is_some_and(|held| held.revisions.older_than(revisions)) {
                *slot = None;
            }
        }
        self.repeated = None;
    }

    /// When an upstream last told of a limit that is still remembered.
    #[must_use]
    pub fn limit_told(&self) -> Option<LogTime> {
        [&self.hint, &self.hard].into_iter().flatten().map(|block| block.confirmed).max()
    }

    /// Whether nothing is held any more as of `as_of`.
    #[must_use]
    pub fn is_idle(&self, as_of: LogTime) -> bool {
        [Strength::Soft, Strength::Hint, Strength::Hard].into_iter().all(|s| self.active(s, as_of).is_none())
    }

    const fn slot(&self, strength: Strength) -> &Option<Block> {
        match strength {
            Strength::Soft => &self.soft,
            Strength::Hint => &self.hint,
            Strength::Hard => &self.hard,
        }
    }

    /// How long the block lasts: a repeated rate limit without a hint doubles.
    fn grown(&mut self, wanted: Wanted, growth_max: Duration) -> Duration {
        if wanted.strength != Strength::Soft || wanted.kind != FailureKind::RateLimited {
            return wanted.duration;
        }
        let n = match self.repeated {
            None => 0,
            Some((last, n)) if wanted.admitted < last => n,
            Some((_, n)) => n.saturating_add(1).min(16),
        };
        if self.repeated.is_none_or(|(_, before)| before != n) {
            self.repeated = Some((wanted.t, n));
        }
        wanted.duration.saturating_mul(1 << n).min(growth_max.max(wanted.duration))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> LogTime {
        LogTime::from_micros(seconds * 1_000_000)
    }

    fn wanted(strength: Strength, kind: FailureKind, t: i64, seconds: u64) -> Wanted {
        let duration = Duration::from_secs(seconds);
        Wanted { strength, kind, t: at(t), duration, admitted: at(t), revisions: Revisions::default() }
    }

    fn set(blocks: &mut Blocks, wanted: Wanted) -> bool {
        blocks.set(|| format!("x@{}", wanted.t).into(), wanted, Duration::from_secs(60)).is_some()
    }

    #[test]
    fn a_repeated_rate_limit_doubles_until_a_success() {
        let mut blocks = Blocks::default();
        let mut check = |t: i64, success: bool, until: i64| {
            if success {
                blocks.lift(at(t));
            } else {
                set(&mut blocks, wanted(Strength::Soft, FailureKind::RateLimited, t, 5));
            }
            let held = blocks.active(Strength::Soft, at(t)).map_or(at(0), |held| held.until);
            assert_eq!(held, at(until), "at {t}");
        };
        check(100, false, 105);
        check(106, false, 116);
        check(117, false, 137);
        check(140, false, 180);
        check(190, false, 250);
        check(260, false, 320);
        check(261, true, 0);
        check(270, false, 275);
    }

    #[test]
    fn requests_that_were_already_under_way_repeat_nothing() {
        let mut blocks = Blocks::default();
        for millis in 0..50 {
            let t = LogTime::from_micros(100_000_000 + millis * 1_000);
            let burst = Wanted { t, admitted: at(99), ..wanted(Strength::Soft, FailureKind::RateLimited, 0, 5) };
            assert_eq!(set(&mut blocks, burst), millis == 0, "only the first is announced");
        }
        assert!(blocks.active(Strength::Soft, at(106)).is_none());
    }

    #[test]
    fn hints_and_hard_blocks_neither_grow_nor_are_lifted() {
        let mut blocks = Blocks::default();
        set(&mut blocks, wanted(Strength::Hint, FailureKind::RateLimited, 1, 20));
        set(&mut blocks, wanted(Strength::Hint, FailureKind::RateLimited, 2, 20));
        set(&mut blocks, wanted(Strength::Hard, FailureKind::WindowExhausted, 2, 30));
        blocks.lift(at(3));
        assert_eq!(blocks.active(Strength::Hint, at(3)).unwrap().until, at(22));
        assert_eq!(blocks.active(Strength::Hard, at(3)).unwrap().until, at(32));
    }

    proptest! {
        #[test]
        fn merging_commutes(
            blocks in proptest::collection::vec((0u8..3, 0i64..100, 1u64..100), 1..20),
            turn in 0usize..20,
        ) {
            let strength = |s: u8| match s { 0 => Strength::Soft, 1 => Strength::Hint, _ => Strength::Hard };
            let fold = |order: &[(u8, i64, u64)]| {
                let mut held = Blocks::default();
                for (s, t, seconds) in order {
                    set(&mut held, wanted(strength(*s), FailureKind::Overloaded, *t, *seconds));
                }
                [Strength::Soft, Strength::Hint, Strength::Hard]
                    .map(|s| held.active(s, at(0)).map(|b| b.until))
            };
            let mut turned = blocks.clone();
            turned.rotate_left(turn % blocks.len());
            let mut reversed = blocks.clone();
            reversed.reverse();
            prop_assert_eq!(fold(&blocks), fold(&turned));
            prop_assert_eq!(fold(&blocks), fold(&reversed));
        }
    }
}
