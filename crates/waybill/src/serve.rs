//! The accept loop of every listener: hyper's builders with the timers and limits that `axum::serve` doesn't set, and a
//! drain with a deadline.
//!
//! A connection's first bytes say which version it speaks. They are looked at and left where they are: hyper's own look at
//! them would double each connection's buffer, and leave it with the state of both versions.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What an HTTP/2 connection begins with.
const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
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
    let versions = Versions::new();
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
        let (watcher, service, versions) = (graceful.watcher(), service.clone(), versions.clone());
        let (cut, stop) = (cut.clone(), stop.clone());
        connections.spawn(async move {
            tokio::select! {
                () = versions.serve(stream, service, watcher, stop) => {}
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

/// How connections of each version are served.
#[derive(Clone)]
struct Versions {
    http1: http1::Builder,
    /// For HTTP/2, and for what doesn't say at once which version it is.
    any: auto::Builder<TokioExecutor>,
}

impl Versions {
    fn new() -> Self {
        let mut http1 = http1::Builder::new();
        http1.timer(TokioTimer::new()).header_read_timeout(HEADER_READ_TIMEOUT).half_close(false);
        let mut any = auto::Builder::new(TokioExecutor::new());
        any.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_READ_TIMEOUT).half_close(false);
        any.http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(Some(Duration::from_secs(20)))
            .keep_alive_timeout(Duration::from_secs(20))
            .max_concurrent_streams(MAX_CONCURRENT_STREAMS);
        Self { http1, any }
    }

    /// Serves one connection to its end. One that says nothing is closed by `stop`, and after a while.
    async fn serve<S>(&self, stream: TcpStream, service: S, watcher: Watcher, stop: CancellationToken)
    where
        S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Send + 'static,
        S::Future: Send,
    {
        let begins = tokio::time::timeout(HEADER_READ_TIMEOUT, may_be_http2(&stream));
        let may_be_http2 = match stop.run_until_cancelled(begins).await {
            Some(Ok(Ok(may_be))) => may_be,
            Some(Ok(Err(error))) => return tracing::debug!(%error, "connection ended before it began"),
            Some(Err(_)) | None => return,
        };
        let io = TokioIo::new(stream);
        if may_be_http2 {
            let served = self.any.serve_connection(io, service).into_owned();
            ended(Box::pin(watcher.watch(served)).await);
        } else {
            ended(watcher.watch(self.http1.serve_connection(io, service)).await);
        }
    }
}

/// Whether what has arrived first can be the beginning of HTTP/2. It stays to be read.
async fn may_be_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0; HTTP2_PREFACE.len()];
    let length = stream.peek(&mut first).await?;
    Ok(first.get(..length).is_some_and(|first| HTTP2_PREFACE.starts_with(first)))
}

fn ended<E: std::fmt::Display>(result: Result<(), E>) {
    if let Err(error) = result {
        tracing::debug!(%error, "connection ended");
    }
}

#[cfg(test)]
mod tests;
