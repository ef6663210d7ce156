//! Outcomes of the last while, as counts in 12 slots of time. Time comes from events only; adding commutes, so the order
//! in which outcomes arrive makes no difference to the counts.

use serde::{Deserialize, Serialize};
use waybill_event::LogTime;
use waybill_event::failure::Health;

/// Number of slots of a window.
const SLOTS: i64 = 12;

/// Outcomes counted by what they say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// It works.
    pub ok: u32,
    /// It is broken.
    pub fail: u32,
    /// It is overloaded.
    pub busy: u32,
}

impl Counts {
    /// All of them.
    #[must_use]
    pub const fn all(self) -> u32 {
        self.ok.saturating_add(self.fail).saturating_add(self.busy)
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            ok: self.ok.saturating_add(other.ok),
            fail: self.fail.saturating_add(other.fail),
            busy: self.busy.saturating_add(other.busy),
        }
    }
}

/// A sliding window of outcomes. It reaches back between 11 and 12 twelfths of its length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Window {
    window_ms: u64,
    /// Number of the newest slot, counted from 1970.
    head: i64,
    slots: [Counts; SLOTS as usize],
}

impl Window {
    /// An empty window of this length; at least 12 ms.
    #[must_use]
    pub fn new(window_ms: u64) -> Self {
        Self { window_ms: window_ms.max(12), head: 0, slots: [Counts::default(); SLOTS as usize] }
    }

    /// Counts one outcome at `t`. What is older than the window reaches is not counted.
    pub fn add(&mut self, t: LogTime, health: Health) {
        let one = match health {
            Health::Ok => Counts { ok: 1, ..Counts::default() },
            Health::Fail => Counts { fail: 1, ..Counts::default() },
            Health::Busy => Counts { busy: 1, ..Counts::default() },
            Health::None => return,
        };
        self.add_to(self.slot_of(t), one);
    }

    /// What the window holds as of `as_of`.
    #[must_use]
    pub fn totals(&self, as_of: LogTime) -> Counts {
        let now = self.slot_of(as_of).max(self.head);
        self.filled()
            .filter(|(slot, _)| *slot > now - SLOTS)
            .fold(Counts::default(), |sum, (_, counts)| sum.plus(counts))
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::new(self.window_ms);
    }

    /// Gives the window another length; what still fits is kept.
    pub fn set_length(&mut self, window_ms: u64) {
        if self.window_ms == window_ms.max(12) {
            return;
        }
        let mut other = Self::new(window_ms);
        let slot_ms = self.slot_ms();
        for (slot, counts) in self.filled() {
            other.add_to(slot.saturating_mul(slot_ms).div_euclid(other.slot_ms()), counts);
        }
        *self = other;
    }

    fn slot_ms(&self) -> i64 {
        i64::try_from(self.window_ms / 12).unwrap_or(i64::MAX).max(1)
    }

    fn slot_of(&self, t: LogTime) -> i64 {
        t.as_millis().div_euclid(self.slot_ms())
    }

    /// The slots that aren't empty, oldest first, with their numbers.
    fn filled(&self) -> impl Iterator<Item = (i64, Counts)> + '_ {
        ((self.head - SLOTS + 1)..=self.head)
            .filter_map(|slot| self.slots.get(index(slot)).map(|counts| (slot, *counts)))
            .filter(|(_, counts)| *counts != Counts::default())
    }

    fn add_to(&mut self, slot: i64, counts: Counts) {
        if slot > self.head {
            for passed in (slot - SLOTS + 1).max(self.head + 1)..=slot {
                if let Some(place) = self.slots.get_mut(index(passed)) {
                    *place = Counts::default();
                }
            }
            self.head = slot;
        }
        if slot > self.head - SLOTS
            && let Some(place) = self.slots.get_mut(index(slot))
        {
            *place = place.plus(counts);
        }
    }
}

fn index(slot: i64) -> usize {
    usize::try_from(slot.rem_euclid(SLOTS)).unwrap_or(0)
}

/// The compact form: slots that hold something, by their age.
#[derive(Serialize, Deserialize)]
struct Stored {
    ms: u64,
    #[serde(default)]
    head: i64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    slots: Vec<(i64, u32, u32, u32)>,
}

impl From<Window> for Stored {
    fn from(window: Window) -> Self {
        let slots = window.filled().map(|(slot, c)| (window.head - slot, c.ok, c.fail, c.busy)).collect();
        Self { ms: window.window_ms, head: window.head, slots }
    }
}

impl From<Stored> for Window {
    fn from(stored: Stored) -> Self {
        let mut window = Self::new(stored.ms);
        window.head = stored.head;
        for (age, ok, fail, busy) in stored.slots {
            if (0..SLOTS).contains(&age) {
                window.add_to(stored.head.saturating_sub(age), Counts { ok, fail, busy });
            }
        }
        window
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(length_ms: u64, outcomes: &[(i64, Health)], as_of_ms: i64, expected: (u32, u32, u32)) {
        let mut window = Window::new(length_ms);
        for (ms, health) in outcomes {
            window.add(LogTime::from_micros(ms * 1_000), *health);
        }
        let totals = window.totals(LogTime::from_micros(as_of_ms * 1_000));
        assert_eq!((totals.ok, totals.fail, totals.busy), expected);
        let stored = serde_json::to_string(&window).unwrap();
        assert_eq!(serde_json::from_str::<Window>(&stored).unwrap(), window, "{stored}");
    }

    #[test]
    fn outcomes_leave_the_window_with_time() {
        let outcomes = [(1_000, Health::Fail), (2_000, Health::Ok), (59_000, Health::Busy), (59_000, Health::None)];
        check(60_000, &outcomes, 59_500, (1, 1, 1));
        check(60_000, &outcomes, 60_000, (0, 0, 1));
        check(60_000, &outcomes, 200_000, (0, 0, 0));
    }

    #[test]
    fn late_outcomes_count_in_their_own_slot_or_not_at_all() {
        check(60_000, &[(100_000, Health::Ok), (70_000, Health::Fail), (10_000, Health::Fail)], 100_000, (1, 1, 0));
    }

    #[test]
    fn another_length_keeps_what_fits() {
        let mut window = Window::new(60_000);
        window.add(LogTime::from_micros(1_000_000), Health::Fail);
        window.add(LogTime::from_micros(59_000_000), Health::Ok);
        window.set_length(30_000);
        assert_eq!(window.totals(LogTime::from_micros(59_000_000)), Counts { ok: 1, fail: 0, busy: 0 });
    }

    proptest! {
        #[test]
        fn the_order_of_arrival_makes_no_difference(
            outcomes in proptest::collection::vec((0i64..200_000, 0u8..3), 0..60),
            turn in 0usize..60,
        ) {
            let health = |h: u8| match h { 0 => Health::Ok, 1 => Health::Fail, _ => Health::Busy };
            let fold = |order: &[(i64, u8)]| {
                let mut window = Window::new(60_000);
                for (ms, h) in order {
                    window.add(LogTime::from_micros(ms * 1_000), health(*h));
                }
                window
            };
            let mut turned = outcomes.clone();
            turned.rotate_left(if outcomes.is_empty() { 0 } else { turn % outcomes.len() });
            let mut reversed = outcomes.clone();
            reversed.reverse();
            prop_assert_eq!(fold(&outcomes), fold(&turned));
            prop_assert_eq!(fold(&outcomes), fold(&reversed));
        }
    }
}
