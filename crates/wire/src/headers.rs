//! Which headers cross the gateway. Both directions are allow-lists: what isn't named stays behind.

#[cfg(test)]
mod tests;

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, HeaderName, RETRY_AFTER};

/// Client to upstream. Credentials, cookies, forwarding, hop-by-hop, `accept-encoding` and organisation headers are
/// absent on purpose: the source has its own, and a compressed answer couldn't be read for usage.
const OUTBOUND: [HeaderName; 4] =
    [CONTENT_TYPE, ACCEPT, HeaderName::from_static("idempotency-key"), HeaderName::from_static("openai-beta")];

/// Upstream to client, on every answer.
const INBOUND: [HeaderName; 6] = [
    CONTENT_TYPE,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    HeaderName::from_static("openai-processing-ms"),
    HeaderName::from_static("openai-version"),
    HeaderName::from_static("openai-model"),
];

/// Upstream to client, families by prefix.
const INBOUND_PREFIXES: [&str; 1] = ["x-ratelimit-"];

/// Upstream to client, only with an upstream's error that is passed on.
const INBOUND_ERROR: [HeaderName; 3] =
    [RETRY_AFTER, HeaderName::from_static("retry-after-ms"), HeaderName::from_static("x-should-retry")];

/// Room for headers that are added to those that cross, so that the map doesn't grow. A map is kept for as long as its
/// connection.
const ROOM: usize = 8;

/// What of a client's headers goes to an upstream.
#[must_use]
pub fn outbound(from_client: &HeaderMap) -> HeaderMap {
    let mut to_upstream = HeaderMap::with_capacity(ROOM);
    copy(from_client, &OUTBOUND, &mut to_upstream);
    to_upstream
}

/// What of an upstream's headers goes to the client. `content-length` and transfer headers are the server's own.
#[must_use]
pub fn inbound(from_upstream: &HeaderMap) -> HeaderMap {
    let crosses = |name: &HeaderName| {
        INBOUND.contains(name) || INBOUND_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix))
    };
    let crossing = || from_upstream.iter().filter(|(name, _)| crosses(name));
    let mut to_client = HeaderMap::with_capacity(crossing().count() + ROOM);
    for (name, value) in crossing() {
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
    copy(from_upstream, &INBOUND_ERROR, &mut to_client);
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

fn copy(from: &HeaderMap, names: &[HeaderName], to: &mut HeaderMap) {
    for (name, value) in from {
        if names.contains(name) {
            to.append(name, value.clone());
        }
    }
}
