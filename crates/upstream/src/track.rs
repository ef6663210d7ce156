//! Follows how far the connection of one dispatch has got: what is called in between tells nothing of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

tokio::task_local! {
    /// The track of the dispatch that runs in this task.
    static CURRENT: Track;
}

/// How far the making of a connection has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// No connection was begun: a pooled one is in use, or none yet.
    Pooled = 0,
    /// Resolving the name.
    Resolving = 1,
    /// Dialling, or negotiating TLS.
    Connecting = 2,
    /// A new connection stands.
    Connected = 3,
}

/// State of one dispatch, shared with its resolver.
#[derive(Debug, Clone)]
pub(crate) struct Track {
    stage: Arc<AtomicU8>,
    connect_limit: Duration,
}

impl Track {
    pub(crate) fn new(connect_limit: Duration) -> Self {
        Self { stage: Arc::new(AtomicU8::new(Stage::Pooled as u8)), connect_limit }
    }

    /// Makes a connection under this track.
    pub(crate) async fn scope<F: Future>(&self, connecting: F) -> F::Output {
        CURRENT.scope(self.clone(), connecting).await
    }

    /// How long the making of a connection may take.
    pub(crate) const fn connect_limit(&self) -> Duration {
        self.connect_limit
    }

    pub(crate) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Pooled,
            1 => Stage::Resolving,
            2 => Stage::Connecting,
            _ => Stage::Connected,
        }
    }

    /// It has got here.
    pub(crate) fn reach(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Release);
    }

    /// Marks the dispatch of this task as resolving; the returned track marks its end.
    pub(crate) fn resolving() -> Option<Self> {
        let track = CURRENT.try_with(Clone::clone).ok()?;
        track.reach(Stage::Resolving);
        Some(track)
    }

    pub(crate) fn resolved(&self) {
        self.reach(Stage::Connecting);
    }
}

/// The connection wasn't made within its limit.
#[derive(Debug, thiserror::Error)]
#[error("no connection within {} ms", limit.as_millis())]
pub(crate) struct ConnectTimedOut {
    pub(crate) limit: Duration,
}
