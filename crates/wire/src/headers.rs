//! Which headers cross the gateway. Both directions are allow-lists: what isn't named stays behind.

#[cfg(test)]
mod tests;

use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, HeaderName, RETRY_AFTER};
use http::{HeaderMap, HeaderValue};
use smallvec::SmallVec;

/// Client to upstream. Credentials, cookies, forwarding, hop-by-hop, `accept-encoding` and organisation headers are
/// absent on purpose: the source has its own, and a compressed answer couldn't be read for usage.
static OUTBOUND: [HeaderName; 4] =
    [CONTENT_TYPE, ACCEPT, HeaderName::from_static("idempotency-key"), HeaderName::from_static("openai-beta")];

/// Upstream to client, on every answer.
fn is_inbound(name: &str) -> bool {
    match name {
        "content-type" | "content-encoding" | "content-language" => true,
        "openai-processing-ms" | "openai-version" | "openai-model" => true,
        family => family.starts_with("x-ratelimit-"),
    }
}

/// Upstream to client, only with an upstream's error that is passed on.
static INBOUND_ERROR: [HeaderName; 3] =
    [RETRY_AFTER, HeaderName::from_static("retry-after-ms"), HeaderName::from_static("x-should-retry")];

/// Room for headers that are added to those that cross, so that the map doesn't grow. A map is kept for as long as its
/// connection.
const ROOM: usize = 8;

/// What of a client's headers goes to an upstream: nothing else can be in it.
#[derive(Debug, Clone, Default)]
pub struct ToUpstream(Vec<(HeaderName, HeaderValue)>);

impl ToUpstream {
    /// Of these headers.
    #[must_use]
    pub fn of(from_client: &HeaderMap) -> Self {
        let mut crossing = Vec::with_capacity(OUTBOUND.len());
        for name in &OUTBOUND {
            crossing.extend(from_client.get_all(name).iter().map(|value| (name.clone(), value.clone())));
        }
        Self(crossing)
    }

    /// As a map, with room for headers of our own.
    #[must_use]
    pub fn to_map(&self) -> HeaderMap {
        let mut to_upstream = HeaderMap::with_capacity(ROOM);
        for (name, value) in &self.0 {
            to_upstream.append(name, value.clone());
        }
        to_upstream
    }
}

/// What of an upstream's headers goes to the client. `content-length` and transfer headers are the server's own.
#[must_use]
pub fn inbound(from_upstream: &HeaderMap) -> HeaderMap {
    let crossing: SmallVec<[_; 2 * ROOM]> =
        from_upstream.iter().filter(|(name, _)| is_inbound(name.as_str())).collect();
    let mut to_client = HeaderMap::with_capacity(crossing.len() + ROOM);
    for (name, value) in crossing {
        to_client.append(name, value.clone());
    }
    to_client
}

/// Like [`inbound`], for an upstream's error that is passed on with its status: its wait hints go along. The body is
/// ours then, so the content headers stay behind.
#[must_use]
pub fn inbound_error(from_upstream: &HeaderMap) -> HeaderMap {
    let mut to_client = inbound(from_upstream);
    for content in [CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LANGUAGE] {
        to_client.remove(content);
    }
    for name in &INBOUND_ERROR {
        for value in from_upstream.get_all(name) {
            to_client.append(name, value.clone());
        }
    }
    to_client
}

/// Whether a body is encoded, so that it can be forwarded but not read.
#[must_use]
pub fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Whether a body can be what its content encoding says: what claims to be gzip begins as gzip does.
#[must_use]
pub fn is_encoded_so(headers: &HeaderMap, body: &[u8]) -> bool {
    let gzip = headers.get(CONTENT_ENCODING).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"gzip"));
    !gzip || body.starts_with(&[0x1f, 0x8b])
}

/// Whether an answer is an event stream by its content type.
#[must_use]
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    let Some(Ok(kind)) = headers.get(CONTENT_TYPE).map(|value| value.to_str()) else { return false };
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
}
