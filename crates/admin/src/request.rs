//! What every request of the API goes through: its id, authentication, and how bodies and preconditions are read.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request, State as Held};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};
use tracing::Instrument;
use waybill_event::Actor;

use crate::State;
use crate::edit::Author;
use crate::problem::Problem;
use crate::tokens;

/// Header that carries the request's id in and out.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Header with the reason of an edit.
const REASON: &str = "x-waybill-reason";
/// Longest reason, in characters.
const REASON_CHARS: usize = 500;
/// Time the fold gets to load before a request is told to come again.
const LOAD: Duration = Duration::from_secs(3);

/// Gives each request an id, and problems the id.
pub async fn identify(mut request: Request, next: Next) -> Response {
    let given = request.headers().get(&REQUEST_ID).and_then(|value| value.to_str().ok());
    let usable = |id: &&str| (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
    let id = given.filter(usable).map_or_else(|| uuid::Uuid::now_v7().to_string(), str::to_owned);
    let span =
        tracing::info_span!("admin_request", request_id = id, method = %request.method(), path = request.uri().path());
    let value = HeaderValue::from_str(&id).ok();
    if let Some(value) = &value {
        request.headers_mut().insert(REQUEST_ID, value.clone());
    }
    let mut response = next.run(request).instrument(span).await;
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        response = problem.respond(Some(&id));
    } else if response.status().is_client_error() && !is_json(response.headers()) {
        // What the router itself refuses.
        let status = response.status();
        let code = match status {
            StatusCode::NOT_FOUND => "not_found",
            StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
            StatusCode::PAYLOAD_TOO_LARGE => "body_too_large",
            _ => "bad_request",
        };
        let detail = status.canonical_reason().unwrap_or("the request can't be served");
        response = Problem::new(status, code, detail).respond(Some(&id));
    }
    if let Some(value) = value {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).is_some_and(|kind| kind.contains("json"))
}

/// Lets only holders of an admin token pass, and notes who it is.
pub async fn authenticate(Held(state): Held<State>, mut request: Request, next: Next) -> Response {
    match author(&state, request.headers()).await {
        Ok(author) => {
            request.extensions_mut().insert(author);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

async fn author(state: &State, headers: &HeaderMap) -> Result<Author, Problem> {
    let unauthorized = |detail: &str| Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail);
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.ok_or_else(|| unauthorized("an admin token is needed: Authorization: Bearer wb-admin-…"))?;
    let (scheme, presented) = given.split_once(' ').unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(unauthorized("the Authorization header must be of the form: Bearer wb-admin-…"));
    }
    let catalog = state.fold().loaded(LOAD).await;
    let catalog = catalog.map_err(|_| Problem::unavailable("log_unavailable", "configuration isn't loaded yet"))?;
    // Where the fold moved on while the first view was waited for, the newest counts.
    let newest = state.fold().view().catalog;
    let token = tokens::admin(
        state.peppers(),
        if newest.position >= catalog.position { &newest } else { &catalog },
        presented.trim(),
    );
    let token = token.ok_or_else(|| unauthorized("this admin token is unknown, or no longer valid"))?;
    let reason = headers.get(REASON).and_then(|value| value.to_str().ok()).map(str::to_owned);
    if reason.as_ref().is_some_and(|reason| reason.chars().count() > REASON_CHARS) {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "bad_request", "the reason is too long"));
    }
    Ok(Author { actor: Actor::AdminToken { id: token.id.get(), name: token.name.clone() }, reason })
}

/// Why, in the query: edits without a body have no other place that takes every character.
#[derive(Deserialize)]
struct Because {
    reason: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for Author {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let missing = || Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "an admin token is needed");
        let author = parts.extensions.get::<Self>().cloned().ok_or_else(missing)?;
        let Query(Because { reason }) = Query::from_request_parts(parts, state).await?;
        because(author, reason)
    }
}

/// A JSON body. Faults name the field.
pub struct Json<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Problem;
    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection| {
            let (status, detail) = (rejection.status(), rejection.body_text());
            let code = if status == StatusCode::PAYLOAD_TOO_LARGE { "body_too_large" } else { "bad_request" };
            Problem::new(status, code, detail)
        })?;
        read_json(&bytes).map(Self)
    }
}

/// Reads a body; one that is empty says nothing.
fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let pointer = pointer(error.path());
        Problem::invalid(&pointer, said(error.inner()))
    })?;
    reader.end().map_err(|error| Problem::invalid("", error.to_string()))?;
    Ok(read)
}

/// What is wrong with a value. Where it stands is the pointer's to say; in a text that isn't JSON, line and column do.
fn said(error: &serde_json::Error) -> String {
    let said = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match said.strip_suffix(&place) {
        Some(what) if error.is_data() => what.to_owned(),
        Some(_) | None => said,
    }
}

fn pointer(path: &Path) -> String {
    let segment = |segment: &Segment| match segment {
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Map { key } => Some(key.replace('~', "~0").replace('/', "~1")),
        Segment::Enum { variant } => Some(variant.clone()),
        Segment::Unknown => None,
    };
    path.iter().filter_map(segment).collect::<Vec<_>>().join("/")
}

/// Parameters of the query. Faults and unknown ones are refused.
pub struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let read = axum::extract::Query::<T>::try_from_uri(&parts.uri);
        read.map(|axum::extract::Query(value)| Self(value))
            .map_err(|rejection| Problem::new(StatusCode::BAD_REQUEST, "bad_request", rejection.body_text()))
    }
}

/// The version that the caller knows: from `If-Match` or from `?expected_version=`.
pub struct Expected(pub Option<u64>);

#[derive(Deserialize)]
struct ExpectedQuery {
    expected_version: Option<u64>,
}

impl<S: Send + Sync> FromRequestParts<S> for Expected {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Query(query) = Query::<ExpectedQuery>::from_request_parts(parts, state).await?;
        let header = match parts.headers.get(header::IF_MATCH) {
            None => None,
            Some(value) => {
                let text = value.to_str().unwrap_or_default().trim_matches('"');
                let wrong = || Problem::new(StatusCode::BAD_REQUEST, "bad_request", "If-Match must be a version");
                Some(text.parse().map_err(|_| wrong())?)
            }
        };
        match (header, query.expected_version) {
            (Some(a), Some(b)) if a != b => {
                Err(Problem::new(StatusCode::BAD_REQUEST, "bad_request", "If-Match and expected_version differ"))
            }
            (a, b) => Ok(Self(a.or(b))),
        }
    }
}

impl Expected {
    /// The one version that body, header and query agree on.
    ///
    /// # Errors
    /// None is given, or they differ.
    pub fn needed(&self, in_body: Option<u64>) -> Result<u64, Problem> {
        match (self.0, in_body) {
            (Some(a), Some(b)) if a != b => Err(Problem::invalid("expected_version", "differs from If-Match")),
            (a, b) => a.or(b).ok_or_else(|| {
                Problem::invalid("expected_version", "the version you edited is needed, here or in If-Match")
            }),
        }
    }
}

/// The author with the reason from the body, where the body gives one.
///
/// # Errors
/// The reason is too long.
pub fn because(mut author: Author, reason: Option<String>) -> Result<Author, Problem> {
    if let Some(reason) = reason {
        if reason.chars().count() > REASON_CHARS {
            return Err(Problem::invalid("reason", format!("must be at most {REASON_CHARS} characters")));
        }
        author.reason = Some(reason);
    }
    Ok(author)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[expect(dead_code, reason = "only read")]
        models: Vec<u32>,
    }

    #[test]
    fn a_fault_in_a_body_has_a_pointer() {
        let check = |body: &str, pointer: &str| {
            let problem = read_json::<Sample>(body.as_bytes()).unwrap_err();
            assert_eq!(problem.members.get("pointer").unwrap(), pointer, "{body}");
        };
        check(r#"{"models": [1, "x"]}"#, "/models/1");
        check(r#"{"models": [], "wieght": 1}"#, "/wieght");
        check("{", "/");
        check(r#"{"models": []} x"#, "/");
        let said = |body: &str| read_json::<Sample>(body.as_bytes()).unwrap_err().detail;
        assert!(!said(r#"{"models": ["x"]}"#).contains("column"), "the pointer says where");
        assert!(said("{").contains("column"), "a text that isn't JSON has no pointer");
    }
}
