//! Follows how far the connection of one dispatch has got, and limits its making. The HTTP client tells neither, and its
//! own connect limit is one for all.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tower::{Layer, Service};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

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

/// State of one dispatch, shared with its connector.
#[derive(Debug, Clone)]
pub(crate) struct Track {
    stage: Arc<AtomicU8>,
    connect_limit: Duration,
}

impl Track {
    pub(crate) fn new(connect_limit: Duration) -> Self {
        Self { stage: Arc::new(AtomicU8::new(Stage::Pooled as u8)), connect_limit }
    }

    /// Runs a dispatch under this track.
    pub(crate) async fn scope<F: Future>(&self, dispatch: F) -> F::Output {
        CURRENT.scope(self.clone(), dispatch).await
    }

    pub(crate) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Pooled,
            1 => Stage::Resolving,
            2 => Stage::Connecting,
            _ => Stage::Connected,
        }
    }

    fn reach(&self, stage: Stage) {
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
    limit: Duration,
}

/// Wraps the client's connector so that it follows the track of the dispatch that calls it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrackLayer;

impl<S> Layer<S> for TrackLayer {
    type Service = Tracked<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Tracked { inner }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Tracked<S> {
    inner: S,
}

impl<S, R> Service<R> for Tracked<S>
where
    S: Service<R, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, to: R) -> Self::Future {
        // Called in the dispatch's own task, while the future may end up in another one.
        let track = CURRENT.try_with(Clone::clone).ok();
        let connecting = self.inner.call(to);
        Box::pin(async move {
            let Some(track) = track else { return connecting.await };
            track.reach(Stage::Connecting);
            let limit = track.connect_limit;
            let connection = CURRENT
                .scope(track.clone(), tokio::time::timeout(limit, connecting))
                .await
                .map_err(|_| BoxError::from(ConnectTimedOut { limit }))??;
            track.reach(Stage::Connected);
            Ok(connection)
        })
    }
}
