//! The clock of the log: the machine's steady time plus an offset learnt from the store, so that all producers' times are
//! comparable whatever their own clocks say.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use waybill_event::LogTime;

/// Observations that the offset is the minimum of.
const OBSERVATIONS: usize = 8;
/// A correction beyond this is taken at once.
const JUMP: i64 = 1_000_000;
/// A smaller one is spread: at most this part of the time that passes, in thousandths.
const SLEW_MILLI: i64 = 50;

/// Steady time in microseconds, that of `CLOCK_BOOTTIME` unless a test gives another.
pub type Steady = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The machine's steady time.
#[must_use]
pub fn boottime() -> Steady {
    Arc::new(|| {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1_000)
    })
}

#[derive(Debug, Default)]
struct Offset {
    seen: VecDeque<i64>,
    /// Where the offset is going; `None` before the first observation.
    target: Option<i64>,
    /// Where it was at `since`.
    from: i64,
    since: i64,
}

impl Offset {
    fn at(&self, steady: i64) -> Option<i64> {
        let target = self.target?;
        let passed = steady.saturating_sub(self.since).max(0);
        let most = passed.saturating_mul(SLEW_MILLI) / 1_000;
        Some(self.from + (target - self.from).clamp(-most, most))
    }
}

struct Inner {
    steady: Steady,
    offset: Mutex<Offset>,
    /// The greatest time told.
    told: AtomicI64,
    jumps: AtomicU64,
}

/// The clock of the log. Clones are handles of the same one.
#[derive(Clone)]
pub struct LogClock {
    inner: Arc<Inner>,
}

impl LogClock {
    /// A clock that knows no offset yet.
    #[must_use]
    pub fn new(steady: Steady) -> Self {
        let inner =
            Inner { steady, offset: Mutex::default(), told: AtomicI64::new(i64::MIN), jumps: AtomicU64::new(0) };
        Self { inner: Arc::new(inner) }
    }

    /// The time of the log; `None` before the first observation. It never decreases.
    #[must_use]
    pub fn now(&self) -> Option<LogTime> {
        let steady = (self.inner.steady)();
        let offset = self.inner.offset.lock().at(steady)?;
        let now = steady.saturating_add(offset);
        let told = self.inner.told.fetch_max(now, Ordering::Relaxed);
        Some(LogTime::from_micros(now.max(told)))
    }

    /// Steady time now, to be given back with what the store says of something sent now.
    #[must_use]
    pub fn steady(&self) -> i64 {
        (self.inner.steady)()
    }

    /// Something that was sent at `sent` (steady time) was stored at `stored_at`. The way there only adds to the
    /// difference, so that the least of the last few is the nearest.
    pub fn observe(&self, sent: i64, stored_at: LogTime) {
        let now = self.steady();
        let mut offset = self.inner.offset.lock();
        offset.seen.push_back(stored_at.as_micros().saturating_sub(sent));
        if offset.seen.len() > OBSERVATIONS {
            offset.seen.pop_front();
        }
        let Some(target) = offset.seen.iter().min().copied() else { return };
        match offset.at(now) {
            None => offset.from = target,
            Some(current) if (target - current).abs() > JUMP => {
                self.inner.jumps.fetch_add(1, Ordering::Relaxed);
                offset.from = target;
                // What was seen before the jump speaks of another time.
                let newest = offset.seen.back().copied();
                offset.seen.clear();
                offset.seen.extend(newest);
            }
            Some(current) => offset.from = current,
        }
        offset.since = now;
        offset.target = Some(target);
    }

    /// Corrections that were taken at once.
    #[must_use]
    pub fn jumps(&self) -> u64 {
        self.inner.jumps.load(Ordering::Relaxed)
    }

    /// How long ago a time of the log was; zero if it lies ahead or the clock isn't set.
    #[must_use]
    pub fn since(&self, earlier: LogTime) -> Duration {
        self.now().map_or(Duration::ZERO, |now| now.since(earlier))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Hand(Arc<AtomicI64>);

    impl Hand {
        fn clock() -> (Self, LogClock) {
            let at = Arc::new(AtomicI64::new(0));
            let read = at.clone();
            (Self(at), LogClock::new(Arc::new(move || read.load(Ordering::Relaxed))))
        }
        fn set(&self, micros: i64) {
            self.0.store(micros, Ordering::Relaxed);
        }
    }

    fn now(clock: &LogClock) -> Option<i64> {
        clock.now().map(LogTime::as_micros)
    }

    #[test]
    fn it_tells_nothing_before_it_has_met_the_store() {
        let (hand, clock) = Hand::clock();
        assert_eq!(now(&clock), None);
        hand.set(1_000);
        clock.observe(900, LogTime::from_micros(50_900));
        assert_eq!(now(&clock), Some(51_000));
    }

    #[test]
    fn the_quickest_way_there_counts() {
        let (hand, clock) = Hand::clock();
        clock.observe(0, LogTime::from_micros(5_000));
        clock.observe(0, LogTime::from_micros(9_000));
        hand.set(1_000_000);
        assert_eq!(now(&clock), Some(1_005_000));
    }

    #[test]
    fn small_corrections_are_spread_and_large_ones_taken_at_once() {
        let (hand, clock) = Hand::clock();
        clock.observe(0, LogTime::from_micros(1_000_000));
        clock.observe(0, LogTime::from_micros(900_000));
        assert_eq!(now(&clock), Some(1_000_000), "nothing jumps");
        hand.set(1_000_000);
        assert_eq!(now(&clock), Some(1_950_000), "50 ms a second");
        hand.set(3_000_000);
        assert_eq!(now(&clock), Some(3_900_000), "all of it");
        assert_eq!(clock.jumps(), 0);
        clock.observe(3_000_000, LogTime::from_micros(1_000_000));
        assert_eq!(clock.jumps(), 1);
        assert_eq!(now(&clock), Some(3_900_000), "it never decreases");
        hand.set(10_000_000);
        assert_eq!(now(&clock), Some(8_000_000));
    }
}
