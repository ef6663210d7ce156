//! An answer while it comes in. Dropping it closes its connection (or resets its HTTP/2 stream) at once.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use waybill_domain::observation::TransportFault;

use crate::dispatch::Lease;
use crate::exchange::Pieces;
use crate::fault;

/// Most room that is set aside for a body on the word of its `content-length`.
const MAX_TRUSTED_LENGTH: usize = 1024 * 1024;

/// The head of an answer, and its body as it arrives.
pub struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Body,
    received: u64,
    resent: bool,
}

enum Body {
    /// With the connection that it comes over, if that serves nobody else meanwhile.
    Network(Incoming, Option<Lease>),
    Within(Pieces),
    Ended,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("status", &self.status).field("received", &self.received).finish_non_exhaustive()
    }
}

impl Reply {
    pub(crate) fn over(answer: Response<Incoming>, lease: Option<Lease>, resent: bool) -> Self {
        let (head, body) = answer.into_parts();
        let mut reply =
            Self { status: head.status, headers: head.headers, body: Body::Network(body, lease), received: 0, resent };
        reply.end_if_over();
        reply
    }

    pub(crate) fn within(answer: Response<Pieces>) -> Self {
        let (head, body) = answer.into_parts();
        Self { status: head.status, headers: head.headers, body: Body::Within(body), received: 0, resent: false }
    }

    /// The status.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The headers, all of them: what may cross to a client is for `waybill_wire::headers` to say.
    #[must_use]
    pub const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Takes the headers out.
    pub fn take_headers(&mut self) -> HeaderMap {
        std::mem::take(&mut self.headers)
    }

    /// Whether the request went out a second time because its pooled connection was dead.
    #[must_use]
    pub fn resent(&self) -> bool {
        self.resent
    }

    /// Bytes of the body received so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The next piece of the body as it arrived, or none at its regular end. Waits without a limit of its own.
    ///
    /// # Errors
    /// [`TransportFault`] if the body breaks off.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, TransportFault> {
        let chunk = loop {
            match &mut self.body {
                Body::Network(body, lease) => match frame(body, lease).await {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => break Some(data),
                        // Trailers say nothing that anybody here asks for.
                        Err(_) => continue,
                    },
                    Some(Err(error)) => return Err(fault::in_body(&error, self.received)),
                    None => break None,
                },
                Body::Within(pieces) => match pieces.next().await {
                    Some(Ok(piece)) => break Some(piece),
                    Some(Err(error)) => return Err(fault::in_body(&error, self.received)),
                    None => break None,
                },
                Body::Ended => break None,
            }
        };
        match &chunk {
            Some(chunk) => {
                self.received += u64::try_from(chunk.len()).unwrap_or(u64::MAX);
                self.end_if_over();
            }
            None => self.end(),
        }
        Ok(chunk)
    }

    /// Nothing more of it is read: its connection is closed, as when it is dropped.
    pub fn leave(&mut self) {
        self.body = Body::Ended;
    }

    fn end_if_over(&mut self) {
        if matches!(&self.body, Body::Network(body, _) if body.is_end_stream()) {
            self.end();
        }
    }

    /// The body has been read whole: its connection may serve others.
    fn end(&mut self) {
        if let Body::Network(_, Some(lease)) = std::mem::replace(&mut self.body, Body::Ended) {
            lease.give_back();
        }
    }

    fn announced(&self) -> Option<usize> {
        match &self.body {
            Body::Network(body, _) => usize::try_from(body.size_hint().exact()?).ok(),
            Body::Within(_) | Body::Ended => None,
        }
    }

    /// The whole body.
    ///
    /// # Errors
    /// [`TransportFault`] if it breaks off, or is larger than `limit` bytes.
    pub async fn read_to_end(&mut self, limit: usize) -> Result<Bytes, TransportFault> {
        let (body, whole) = self.read_up_to(limit).await?;
        if whole { Ok(body) } else { Err(fault::too_large(limit, self.received)) }
    }

    /// At most `limit` bytes of the body, and whether that is all of it: for errors, whose rest doesn't matter.
    ///
    /// # Errors
    /// [`TransportFault`] if it breaks off before.
    pub async fn read_up_to(&mut self, limit: usize) -> Result<(Bytes, bool), TransportFault> {
        let Some(first) = self.chunk().await? else { return Ok((Bytes::new(), true)) };
        let Some(second) = self.chunk_within(first.len(), limit).await? else { return Ok(bounded(first, limit)) };
        let have = first.len() + second.len();
        let announced = self.announced().unwrap_or(0).saturating_add(have);
        let mut body = BytesMut::with_capacity(announced.clamp(have, MAX_TRUSTED_LENGTH.max(have)));
        body.extend_from_slice(&first);
        body.extend_from_slice(&second);
        while let Some(chunk) = self.chunk_within(body.len(), limit).await? {
            body.extend_from_slice(&chunk);
        }
        Ok(bounded(body.freeze(), limit))
    }

    async fn chunk_within(&mut self, have: usize, limit: usize) -> Result<Option<Bytes>, TransportFault> {
        if have > limit { Ok(None) } else { self.chunk().await }
    }
}

/// The next frame of a body; a connection that serves nobody else is driven by who waits here.
async fn frame(body: &mut Incoming, lease: &mut Option<Lease>) -> Option<Result<Frame<Bytes>, hyper::Error>> {
    let Some(lease) = lease else { return body.frame().await };
    poll_fn(|context| lease.connection.poll(context, |within| Pin::new(&mut *body).poll_frame(within))).await
}

fn bounded(mut body: Bytes, limit: usize) -> (Bytes, bool) {
    let whole = body.len() <= limit;
    body.truncate(limit);
    (body, whole)
}
