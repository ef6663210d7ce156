//! A connection that serves one request at a time, driven by whoever waits for its answer: a task of its own would be woken
//! for each piece of a request and of its answer, and wake the one that waits in turn.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::gate::Gate;
use super::sender::Body;

/// How often a connection is driven for one wake. What still has to be done then is done after others had their turn.
const ROUNDS: usize = 4;

/// What connections go over.
pub(super) type Io = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Both sides of a connection of HTTP/1. Dropped, it closes at once.
pub(crate) struct Exclusive {
    sender: http1::SendRequest<Body>,
    /// Boxed, since it changes hands with every request; gone once it has ended.
    connection: Option<Box<http1::Connection<Io, Body>>>,
    gate: Arc<Gate>,
    /// The gate as the connection sees it.
    waker: Waker,
}

impl fmt::Debug for Exclusive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exclusive").field("open", &self.connection.is_some()).finish_non_exhaustive()
    }
}

impl Exclusive {
    /// Greets the other side.
    ///
    /// # Errors
    /// What hyper says of it.
    pub(super) async fn over(io: Io) -> Result<Self, hyper::Error> {
        let (sender, connection) = http1::handshake(io).await?;
        let gate = Arc::<Gate>::default();
        Ok(Self { sender, connection: Some(Box::new(connection)), waker: gate.clone().into(), gate })
    }

    /// Sends a request and waits for the answer's head.
    ///
    /// # Errors
    /// What hyper says of it.
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, hyper::Error> {
        let mut answer = pin!(self.sender.send_request(request));
        poll_fn(|context| self.poll(context, |within| answer.as_mut().poll(within))).await
    }

    /// Polls what waits for something of this connection, and drives the connection for it.
    pub(crate) fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        mut waiting: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Self { connection, gate, waker, .. } = self;
        let mut within = Context::from_waker(waker);
        for _ in 0..ROUNDS {
            gate.enter(context.waker());
            // Asked before as well, so that the connection knows that somebody waits.
            let mut polled = waiting(&mut within);
            if polled.is_pending() {
                drive(connection, &mut within);
                polled = waiting(&mut within);
            }
            let woken = gate.leave();
            if polled.is_ready() || !woken {
                return polled;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Waits until it takes the next request. Says no if it has ended.
    pub(super) async fn is_free(&mut self) -> bool {
        if self.has_ended() || self.is_ready() {
            return !self.is_closed();
        }
        poll_fn(|context| {
            self.gate.enter(context.waker());
            drive(&mut self.connection, &mut Context::from_waker(&self.waker));
            let ready = self.sender.poll_ready(&mut Context::from_waker(&self.waker));
            if self.gate.leave() {
                context.waker().wake_by_ref();
            }
            ready
        })
        .await
        .is_ok()
    }

    /// Whether it takes the next request at once.
    pub(super) fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }

    /// Whether it has ended, as far as is known: while it serves nobody, nobody looks.
    pub(super) fn is_closed(&self) -> bool {
        self.connection.is_none() || self.sender.is_closed()
    }

    /// Whether it has ended by now.
    pub(super) fn has_ended(&mut self) -> bool {
        drive(&mut self.connection, &mut Context::from_waker(&self.waker));
        self.is_closed()
    }

    /// It serves nobody any more: nobody is to be woken for it.
    pub(super) fn rest(&self) {
        self.gate.forget();
    }
}

/// What went wrong with it is told to the request that it serves.
fn drive(connection: &mut Option<Box<http1::Connection<Io, Body>>>, context: &mut Context<'_>) {
    let Some(open) = connection else { return };
    if let Poll::Ready(ended) = Pin::new(open.as_mut()).poll(context) {
        if let Err(error) = ended {
            tracing::debug!(%error, "an upstream's connection ended");
        }
        *connection = None;
    }
}
