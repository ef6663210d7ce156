//! The accept loop of every listener: hyper's builder with the timers and limits that `axum::serve` doesn't set, and a
//! drain with a deadline.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Time a connection may take to send a request's head.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Streams one HTTP/2 connection may have open.
const MAX_CONCURRENT_STREAMS: u32 = 256;
/// Pause after `accept` failed, so that a lack of file descriptors doesn't turn into a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Time that what is open gets to say goodbye once the grace period has passed.
const FAREWELL: Duration = Duration::from_secs(2);

/// How a listener came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Every open connection finished.
    Clean,
    /// The grace period passed with connections still open; they were closed.
    Cut,
}

/// Serves `router` on `listener` until `stop`, then lets open connections finish for at most `grace`.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken, grace: Duration) -> Drained {
    serve_with(listener, TowerToHyperService::new(router), stop, grace, &CancellationToken::new()).await
}

/// As [`serve`], with any service. When the grace period has passed, `end` is cancelled: who listens to it has a moment
/// to end what is open in good order.
pub async fn serve_with<S>(
    listener: TcpListener,
    service: S,
    stop: CancellationToken,
    grace: Duration,
    end: &CancellationToken,
) -> Drained
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_READ_TIMEOUT).half_close(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(Duration::from_secs(20)))
        .keep_alive_timeout(Duration::from_secs(20))
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS);
    let graceful = GracefulShutdown::new();
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY");
        }
        let served = builder.serve_connection_with_upgrades(TokioIo::new(stream), service.clone());
        let connection = graceful.watch(served.into_owned());
        let cut = cut.clone();
        connections.spawn(async move {
            tokio::select! {
                result = connection => {
                    if let Err(error) = result {
                        tracing::debug!(error, "connection ended");
                    }
                }
                () = cut.cancelled() => {}
            }
        });
    }
    drop(listener);
    connections.close();
    let mut idle = pin!(graceful.shutdown());
    let drained = tokio::time::timeout(grace, &mut idle).await.is_ok();
    if !drained {
        end.cancel();
        let _cut_otherwise = tokio::time::timeout(FAREWELL, idle).await;
    }
    cut.cancel();
    connections.wait().await;
    if drained { Drained::Clean } else { Drained::Cut }
}
