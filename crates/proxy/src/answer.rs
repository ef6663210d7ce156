//! Answers to clients: the one place that turns what happened into HTTP. Every answer carries the request's id twice,
//! since OpenAI's SDKs read `x-request-id` and Anthropic's `request-id`.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use waybill_domain::verdict::PublicCode;
use waybill_event::RequestId;
use waybill_wire::error::{PublicError, render_error};

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
const X_CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-client-request-id");
const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An error as it goes to a client.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// HTTP status: the code's own, or an upstream's that is passed on.
    pub status: u16,
    /// The public code.
    pub code: PublicCode,
    /// What the client reads; masked where it comes from an upstream.
    pub message: String,
    /// The upstream's own code, where it is passed on in place of ours.
    pub upstream_code: Option<String>,
    /// The request field at fault.
    pub param: Option<String>,
    /// When another try makes sense.
    pub retry_after: Option<Duration>,
    /// Whether a client's own retry would only repeat what we have tried.
    pub no_retry: bool,
}

impl Refusal {
    /// The code's own status and message.
    #[must_use]
    pub fn of(code: PublicCode) -> Self {
        Self {
            status: code.status(),
            code,
            message: code.message().to_owned(),
            upstream_code: None,
            param: None,
            retry_after: None,
            no_retry: false,
        }
    }

    /// With a message of its own.
    #[must_use]
    pub fn saying(code: PublicCode, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::of(code) }
    }

    /// As the wire's error.
    #[must_use]
    pub fn public(&self) -> PublicError {
        let code = self.upstream_code.clone().map_or_else(|| self.code.as_str().into(), Into::into);
        PublicError {
            status: self.status,
            kind: self.code.kind().into(),
            code: Some(code),
            message: self.message.clone(),
            param: self.param.clone().map(Into::into),
        }
    }

    /// As a whole answer.
    #[must_use]
    pub fn response(&self, ids: &Ids) -> Response<Body> {
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(CONTENT_TYPE, JSON);
        if let Some(wait) = self.retry_after {
            let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            headers.insert(RETRY_AFTER, HeaderValue::from(millis.div_ceil(1_000).max(1)));
            headers.insert(RETRY_AFTER_MS, HeaderValue::from(millis.max(1)));
        }
        if self.no_retry {
            headers.insert(X_SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        respond(self.status, headers, ids, Body::from(render_error(&self.public())))
    }
}

/// The ids that an answer carries.
#[derive(Debug, Clone)]
pub struct Ids {
    /// Ours.
    pub request: RequestId,
    /// The client's, where it sent one.
    pub client: Option<String>,
}

impl Ids {
    /// Writes them into an answer's headers.
    pub fn write(&self, headers: &mut HeaderMap) {
        let mut digits = [0; 36];
        if let Ok(id) = HeaderValue::from_str(self.request.as_uuid().as_hyphenated().encode_lower(&mut digits)) {
            headers.insert(X_REQUEST_ID, id.clone());
            headers.insert(REQUEST_ID, id);
        }
        if let Some(Ok(id)) = self.client.as_deref().map(HeaderValue::from_str) {
            headers.insert(X_CLIENT_REQUEST_ID, id);
        }
    }
}

/// A whole answer.
#[must_use]
pub fn respond(status: u16, mut headers: HeaderMap, ids: &Ids, body: Body) -> Response<Body> {
    ids.write(&mut headers);
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = headers;
    response
}

/// A JSON answer of ours.
#[must_use]
pub fn json(ids: &Ids, body: Bytes) -> Response<Body> {
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(CONTENT_TYPE, JSON);
    respond(200, headers, ids, Body::from(body))
}
