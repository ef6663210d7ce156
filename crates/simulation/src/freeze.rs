//! A process that is stopped as by SIGSTOP: its clocks go on, nothing of it runs, and what it was about to do it does
//! when it is let go.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;

/// Stops and lets go.
#[derive(Debug, Clone, Default)]
pub struct Freeze {
    held: Arc<Mutex<Held>>,
}

#[derive(Debug, Default)]
struct Held {
    frozen: bool,
    waiting: Vec<Waker>,
}

impl Freeze {
    /// From now on nothing runs.
    pub fn freeze(&self) {
        self.held.lock().frozen = true;
    }

    /// It goes on. Says whether it stood still.
    pub fn thaw(&self) -> bool {
        let (was, waiting) = {
            let mut held = self.held.lock();
            (std::mem::take(&mut held.frozen), std::mem::take(&mut held.waiting))
        };
        waiting.into_iter().for_each(Waker::wake);
        was
    }

    /// Waits for as long as this is frozen.
    pub async fn thawed(&self) {
        self.over(Box::pin(async {})).await;
    }

    /// A future that stands still while this is frozen.
    #[must_use]
    pub fn over(&self, inner: BoxFuture<'static, ()>) -> Freezable {
        Freezable { freeze: self.clone(), inner }
    }
}

/// A future that can be frozen.
pub struct Freezable {
    freeze: Freeze,
    inner: BoxFuture<'static, ()>,
}

impl Future for Freezable {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        {
            let mut held = self.freeze.held.lock();
            if held.frozen {
                held.waiting.push(context.waker().clone());
                return Poll::Pending;
            }
        }
        self.inner.as_mut().poll(context)
    }
}
