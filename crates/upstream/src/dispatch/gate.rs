//! Passes wakes on to whoever drives a connection, except those that the driving itself brings about: a connection and the
//! one that waits for its answer tell each other of every step, which would be a further look at the whole task each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Wake, Waker};

use futures_util::task::AtomicWaker;

/// Nobody drives: a wake goes to who did last.
const OPEN: u8 = 0;
/// Somebody drives.
const DRIVING: u8 = 1;
/// Somebody drives, and a wake has come meanwhile.
const WOKEN: u8 = 2;

/// Between a connection and its driver.
#[derive(Debug, Default)]
pub(super) struct Gate {
    state: AtomicU8,
    driver: AtomicWaker,
}

impl Gate {
    /// From here on this one drives.
    pub(super) fn enter(&self, driver: &Waker) {
        self.driver.register(driver);
        self.state.store(DRIVING, Ordering::SeqCst);
    }

    /// It has driven. Says whether a wake has come meanwhile, so that there may be more to do.
    pub(super) fn leave(&self) -> bool {
        self.state.swap(OPEN, Ordering::SeqCst) == WOKEN
    }

    /// Whoever drove last has nothing more to do with it.
    pub(super) fn forget(&self) {
        drop(self.driver.take());
    }
}

impl Wake for Gate {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let noted = self.state.compare_exchange(DRIVING, WOKEN, Ordering::SeqCst, Ordering::SeqCst);
        if noted == Err(OPEN) {
            self.driver.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn wakes_pass_unless_they_come_from_within() {
        let (gate, count) = (Arc::new(Gate::default()), Arc::new(Count::default()));
        let (inner, outer) = (Waker::from(gate.clone()), Waker::from(count.clone()));
        let woken = || count.0.load(Ordering::SeqCst);
        inner.wake_by_ref();
        assert_eq!(woken(), 0, "nobody drives");
        gate.enter(&outer);
        inner.wake_by_ref();
        inner.wake_by_ref();
        assert_eq!(woken(), 0, "who drives is told at the end");
        assert!(gate.leave());
        inner.wake_by_ref();
        assert_eq!(woken(), 1, "who has driven is woken");
        gate.enter(&outer);
        assert!(!gate.leave());
        gate.forget();
        inner.wake_by_ref();
        assert_eq!(woken(), 1, "whoever has left isn't");
    }
}
