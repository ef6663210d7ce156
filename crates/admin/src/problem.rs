//! Refusals and failures as problem documents (RFC 9457). This is the one place that turns errors into HTTP.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::{Map, Value};
use waybill_domain::catalog::Rejection;
use waybill_read_model::StoreError;

use crate::edit::EditError;

/// What every problem's type begins with; the code follows.
const TYPE: &str = "urn:waybill:error:";

/// Something that went wrong, as the caller is told.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The status.
    pub status: StatusCode,
    /// The public code: stable, for programs.
    pub code: &'static str,
    /// What happened, for people.
    pub detail: String,
    /// Further members, such as `pointer` or `actual_version`.
    pub members: Box<Map<String, Value>>,
    /// Seconds after which it is worth asking again.
    pub retry_after_s: Option<u64>,
}

#[derive(Serialize)]
struct Document<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    code: &'a str,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(flatten)]
    members: &'a Map<String, Value>,
}

impl Problem {
    /// A problem without further members.
    #[must_use]
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), members: Box::default(), retry_after_s: None }
    }

    /// Adds a member.
    #[must_use]
    pub fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.members.insert(member.to_owned(), value.into());
        self
    }

    /// Nothing is there.
    #[must_use]
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    /// A field of the request is wrong; `pointer` is its JSON pointer without the leading slash.
    #[must_use]
    pub fn invalid(pointer: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_field", detail).with("pointer", format!("/{pointer}"))
    }

    /// A store is away.
    #[must_use]
    pub fn unavailable(code: &'static str, detail: impl Into<String>) -> Self {
        let mut problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, detail);
        problem.retry_after_s = Some(2);
        problem
    }

    /// The document's bytes.
    #[must_use]
    pub fn document(&self, request_id: Option<&str>) -> Vec<u8> {
        let document = Document {
            r#type: format!("{TYPE}{}", self.code),
            title: self.status.canonical_reason().unwrap_or("error"),
            status: self.status.as_u16(),
            code: self.code,
            detail: &self.detail,
            request_id,
            members: &self.members,
        };
        serde_json::to_vec(&document).unwrap_or_default()
    }

    /// The answer with the document.
    #[must_use]
    pub fn respond(&self, request_id: Option<&str>) -> Response {
        let mut response = (self.status, self.document(request_id)).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer realm=\"waybill\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
        }
        response
    }
}

/// The request's id is known to the outermost layer only, which writes the document again with it.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.respond(None);
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        let detail = rejection.to_string();
        let conflict = |code| Self::new(StatusCode::CONFLICT, code, detail.clone());
        match rejection {
            Rejection::NotFound { .. } => Self::not_found(detail),
            Rejection::VersionConflict { expected, actual, .. } => {
                conflict("version_conflict").with("expected_version", expected).with("actual_version", actual)
            }
            Rejection::Invalid { field, .. } => Self::invalid(&field, detail),
            Rejection::NameTaken { by, .. } => conflict("name_taken").with("by", by).with("pointer", "/name"),
            Rejection::InUse { by, more, .. } => conflict("in_use").with("by", by).with("more", more),
            Rejection::LimitReached { limit, .. } => conflict("limit_reached").with("limit", limit),
            Rejection::Blocked(edit) => {
                Self::unavailable("config_blocked", format!("{detail}: {edit}")).with("position", edit.position.0)
            }
        }
    }
}

impl From<EditError> for Problem {
    fn from(error: EditError) -> Self {
        let detail = error.to_string();
        match error {
            EditError::Rejected(rejection) => rejection.into(),
            EditError::Contended => {
                let mut problem = Self::new(StatusCode::CONFLICT, "contended", detail);
                problem.retry_after_s = Some(1);
                problem
            }
            EditError::LogAway { .. } => Self::unavailable("log_unavailable", detail),
            EditError::FateUnknown { .. } => Self::unavailable("outcome_unknown", detail),
            EditError::LogFull => Self::unavailable("log_full", detail),
            EditError::Behind(behind) => Self::unavailable("log_unavailable", format!("{detail}: {behind}")),
            EditError::LogRefused { .. } => Self::new(StatusCode::BAD_GATEWAY, "log_refused", detail),
            EditError::Seal(_) | EditError::Random(_) | EditError::Encode(_) => {
                tracing::error!(error = detail, "an edit failed inside the gateway");
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
            }
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        // The store's own words may speak of hosts and users; they belong into the log.
        tracing::warn!(error = &error as &dyn std::error::Error, "the read model can't be asked");
        Self::unavailable("read_model_unavailable", "the read model can't be asked now; edits still go on")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_names_its_field_and_the_request() {
        let rejection = Rejection::Invalid { field: "models/0/name".to_owned(), message: "is empty".to_owned() };
        let document: Value = serde_json::from_slice(&Problem::from(rejection).document(Some("r-1"))).unwrap();
        assert_eq!(
            document,
            serde_json::json!({
                "type": "urn:waybill:error:invalid_field", "title": "Unprocessable Entity", "status": 422,
                "code": "invalid_field", "detail": "models/0/name: is empty", "request_id": "r-1",
                "pointer": "/models/0/name",
            })
        );
    }
}
