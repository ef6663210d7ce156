//! An answer while it comes in. Dropping it closes its connection (or resets its HTTP/2 stream) at once.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use waybill_domain::observation::TransportFault;

use crate::fault;

/// Most room that is set aside for a body on the word of its `content-length`.
const MAX_TRUSTED_LENGTH: usize = 1024 * 1024;

/// The head of an answer, and its body as it arrives.
#[derive(Debug)]
pub struct Reply {
    response: reqwest::Response,
    received: u64,
    resent: bool,
}

impl Reply {
    pub(crate) fn new(response: reqwest::Response, resent: bool) -> Self {
        Self { response, received: 0, resent }
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// The headers, all of them: what may cross to a client is for `waybill_wire::headers` to say.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Takes the headers out.
    pub fn take_headers(&mut self) -> HeaderMap {
        std::mem::take(self.response.headers_mut())
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
        let chunk = self.response.chunk().await.map_err(|error| fault::in_body(&error, self.received))?;
        if let Some(chunk) = &chunk {
            self.received += u64::try_from(chunk.len()).unwrap_or(u64::MAX);
        }
        Ok(chunk)
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
        let announced = self.response.content_length().and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
        let mut body = BytesMut::with_capacity(
            announced.clamp(first.len() + second.len(), MAX_TRUSTED_LENGTH.max(first.len() + second.len())),
        );
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

fn bounded(mut body: Bytes, limit: usize) -> (Bytes, bool) {
    let whole = body.len() <= limit;
    body.truncate(limit);
    (body, whole)
}
