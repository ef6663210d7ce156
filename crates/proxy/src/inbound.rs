//! What arrives: the client's credential, its ids and wishes, and its body within limits.

use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use http::header::{AUTHORIZATION, CONTENT_LENGTH};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::BodyExt;
use waybill_domain::verdict::PublicCode;

use crate::answer::Refusal;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Longest name of a conversation that is taken.
const MAX_SESSION: usize = 512;
/// Longest id of a client's that is kept.
const MAX_CLIENT_ID: usize = 128;
/// Time a body may take to arrive.
const BODY_DEADLINE: Duration = Duration::from_secs(60);
/// Most that is read of a body whose request is refused whatever it says, in bytes.
const MAX_REFUSED_BYTES: u64 = 1024 * 1024;
/// Most room set aside on the word of `content-length`.
const MAX_TRUSTED_LENGTH: u64 = 256 * 1024;

/// What a client's headers ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The client's own id of the request.
    pub client_id: Option<String>,
    /// How long the whole request may take.
    pub deadline: Option<Duration>,
    /// Which retry of its own the SDK says this is.
    pub retry: Option<u32>,
    /// The conversation that it says it belongs to.
    pub session: Option<String>,
}

impl Wishes {
    /// Reads them; what can't be read counts as not said.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let [mut client_id, mut request_id, mut millis, mut seconds] = [None; 4];
        let [mut session, mut session_id, mut retry] = [None; 3];
        // One walk over them costs less than asking for each; of a name that is there twice the first counts.
        for (name, value) in headers {
            let wish = match name.as_str() {
                "x-client-request-id" => &mut client_id,
                "x-request-id" => &mut request_id,
                "x-waybill-deadline-ms" => &mut millis,
                "x-stainless-timeout" => &mut seconds,
                "x-waybill-session" => &mut session,
                "x-session-id" => &mut session_id,
                "x-stainless-retry-count" => &mut retry,
                _ => continue,
            };
            wish.get_or_insert(value);
        }
        let client_id = text(client_id).or_else(|| text(request_id));
        let millis = text(millis).and_then(|t| t.parse().ok()).map(Duration::from_millis);
        let seconds = text(seconds).and_then(|t| t.parse().ok()).and_then(|s| Duration::try_from_secs_f64(s).ok());
        let deadline = match (millis, seconds) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self {
            client_id: client_id
                .filter(|id| (1..=MAX_CLIENT_ID).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic()))
                .map(str::to_owned),
            deadline: deadline.filter(|d| !d.is_zero()),
            retry: text(retry).and_then(|t| t.parse().ok()),
            session: text(session)
                .or_else(|| text(session_id))
                .filter(|id| (1..=MAX_SESSION).contains(&id.len()))
                .map(str::to_owned),
        }
    }
}

fn text(value: Option<&HeaderValue>) -> Option<&str> {
    value.and_then(|value| value.to_str().ok()).map(str::trim)
}

/// The client's token: `Authorization: Bearer …` or `x-api-key`.
#[must_use]
pub fn token(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    bearer.or_else(|| headers.get(X_API_KEY)?.to_str().ok().map(str::trim)).filter(|token| !token.is_empty())
}

/// Reads a body of at most `limit` bytes.
///
/// # Errors
/// A refusal for the client: the body is too large, breaks off or takes too long.
pub async fn read_body(headers: &HeaderMap, body: Body, limit: u64) -> Result<Bytes, Refusal> {
    let announced = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit) {
        // The rest is read and thrown away, within bounds: a peer that still writes would otherwise see a reset
        // instead of this answer.
        Box::pin(discard(body, limit)).await;
        return Err(too_large(limit));
    }
    let mut collecting = pin!(collect(body, announced, limit));
    // Most bodies come with their head: nothing is waited for, and no time looked at.
    if let Some(read) = collecting.as_mut().now_or_never() {
        return read;
    }
    match tokio::time::timeout(BODY_DEADLINE, collecting).await {
        Ok(read) => read,
        Err(_) => Err(Refusal::of(PublicCode::RequestTimeout)),
    }
}

async fn collect(mut body: Body, announced: Option<u64>, limit: u64) -> Result<Bytes, Refusal> {
    let mut first: Option<Bytes> = None;
    let mut whole = BytesMut::new();
    let mut length = 0_u64;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return Err(Refusal::saying(PublicCode::InvalidRequest, "The request's body broke off."));
        };
        let Ok(chunk) = frame.into_data() else { continue };
        length += u64::try_from(chunk.len()).unwrap_or(u64::MAX);
        if length > limit {
            Box::pin(discard(body, limit)).await;
            return Err(too_large(limit));
        }
        // Most bodies come in one piece, which is kept as it is.
        match (first.take(), whole.is_empty()) {
            (None, true) => first = Some(chunk),
            (Some(before), _) => {
                let room = announced.unwrap_or(0).clamp(length, MAX_TRUSTED_LENGTH.max(length));
                whole.reserve(usize::try_from(room).unwrap_or(0));
                whole.extend_from_slice(&before);
                whole.extend_from_slice(&chunk);
            }
            (None, false) => whole.extend_from_slice(&chunk),
        }
    }
    Ok(first.unwrap_or_else(|| whole.freeze()))
}

/// Reads a refused request's body and throws it away, within bounds: a peer that still writes would otherwise see a reset
/// instead of its answer, and one that sends its next request on the connection would find it closed.
pub async fn discard_refused(body: Body) {
    Box::pin(discard(body, MAX_REFUSED_BYTES)).await;
}

/// Reads on, and keeps nothing, for as long as another body of the limit's size would take.
async fn discard(mut body: Body, limit: u64) {
    let mut left = limit;
    let drained = async {
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, |data| u64::try_from(data.len()).unwrap_or(u64::MAX));
            left = left.saturating_sub(length);
            if left == 0 {
                return;
            }
        }
    };
    let _gave_up = tokio::time::timeout(Duration::from_secs(5), drained).await;
}

fn too_large(limit: u64) -> Refusal {
    Refusal::saying(
        PublicCode::PayloadTooLarge,
        format!("The request's body is larger than the limit of {limit} bytes."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn a_token_comes_in_either_header() {
        let check = |pairs: &[(&'static str, &'static str)], expected| assert_eq!(token(&headers(pairs)), expected);
        check(&[("authorization", "Bearer abc")], Some("abc"));
        check(&[("authorization", "bearer  abc ")], Some("abc"));
        check(&[("x-api-key", "abc")], Some("abc"));
        check(&[("authorization", "Basic abc"), ("x-api-key", "def")], Some("def"));
        check(&[("authorization", "Bearer ")], None);
        check(&[], None);
    }

    #[test]
    fn wishes_are_read_and_nonsense_is_not() {
        let wishes = Wishes::of(&headers(&[
            ("x-client-request-id", "mine-1"),
            ("x-waybill-deadline-ms", "1500"),
            ("x-stainless-timeout", "600"),
            ("x-stainless-retry-count", "2"),
        ]));
        let deadline = Some(Duration::from_millis(1500));
        assert_eq!(wishes, Wishes { client_id: Some("mine-1".into()), deadline, retry: Some(2), session: None });
        let wishes = Wishes::of(&headers(&[("x-request-id", "a b"), ("x-stainless-timeout", "-1")]));
        assert_eq!(wishes, Wishes::default());
    }

    #[tokio::test]
    async fn a_body_within_the_limit_is_whole_and_one_beyond_is_refused() {
        let chunks = |n: usize| {
            let parts = (0..n).map(|_| Ok::<_, std::convert::Infallible>(Bytes::from_static(b"0123456789")));
            Body::from_stream(futures_util::stream::iter(parts.collect::<Vec<_>>()))
        };
        for n in [0, 1, 2, 5] {
            assert_eq!(read_body(&HeaderMap::new(), chunks(n), 50).await.unwrap().len(), n * 10);
        }
        let refused = read_body(&HeaderMap::new(), chunks(6), 50).await.unwrap_err();
        assert_eq!(refused.code, PublicCode::PayloadTooLarge);
        assert!(refused.message.contains("50"));
    }
}
