//! What the client's protocol calls an error: one table, no code.

use super::PublicCode;

/// The names of one public code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientTypes {
    /// The code.
    pub code: PublicCode,
    /// In the words of the catalogue of failures.
    pub short: &'static str,
    /// The `type` that Anthropic clients know.
    pub anthropic: &'static str,
    /// The `status` that Gemini clients know.
    pub gemini: &'static str,
}

impl ClientTypes {
    /// The `type` that OpenAI clients know.
    #[must_use]
    pub const fn openai(self) -> &'static str {
        self.code.kind()
    }
}

const fn row(code: PublicCode, short: &'static str, anthropic: &'static str, gemini: &'static str) -> ClientTypes {
    ClientTypes { code, short, anthropic, gemini }
}

/// All codes, in the order of [`PublicCode::ALL`].
pub const CLIENT_TYPES: &[ClientTypes] = {
    use PublicCode as C;
    &[
        row(C::InvalidRequest, "invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT"),
        row(C::ContextLengthExceeded, "context_length_exceeded", "invalid_request_error", "INVALID_ARGUMENT"),
        row(C::CapabilityMissing, "invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT"),
        row(C::ContentPolicyViolation, "content_policy_violation", "invalid_request_error", "INVALID_ARGUMENT"),
        row(C::InvalidApiKey, "authentication_error", "authentication_error", "UNAUTHENTICATED"),
        row(C::PermissionDenied, "permission_error", "permission_error", "PERMISSION_DENIED"),
        row(C::ModelNotFound, "model_not_found", "not_found_error", "NOT_FOUND"),
        row(C::NotFound, "not_found_error", "not_found_error", "NOT_FOUND"),
        row(C::MethodNotAllowed, "invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT"),
        row(C::RequestTimeout, "invalid_request_error", "invalid_request_error", "DEADLINE_EXCEEDED"),
        row(C::Conflict, "upstream_error", "api_error", "ABORTED"),
        row(C::PayloadTooLarge, "request_too_large", "request_too_large", "INVALID_ARGUMENT"),
        row(C::UnsupportedMediaType, "invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT"),
        row(C::RateLimited, "rate_limit_error", "rate_limit_error", "RESOURCE_EXHAUSTED"),
        row(C::ClientClosedRequest, "client_closed_request", "api_error", "CANCELLED"),
        row(C::InternalError, "gateway_error", "api_error", "INTERNAL"),
        row(C::UpstreamError, "upstream_error", "api_error", "INTERNAL"),
        row(C::AllSourcesFailed, "upstream_error", "api_error", "UNAVAILABLE"),
        row(C::StreamInterrupted, "stream_error", "api_error", "UNAVAILABLE"),
        row(C::ModelUnavailable, "model_unavailable", "api_error", "UNAVAILABLE"),
        row(C::Overloaded, "overloaded_error", "overloaded_error", "UNAVAILABLE"),
        row(C::NoSourceAvailable, "model_unavailable", "api_error", "UNAVAILABLE"),
        row(C::GatewayNotReady, "upstream_busy", "overloaded_error", "UNAVAILABLE"),
        row(C::GatewayBusy, "upstream_busy", "overloaded_error", "UNAVAILABLE"),
        row(C::OutboxFull, "upstream_busy", "overloaded_error", "UNAVAILABLE"),
        row(C::LogUnavailable, "upstream_busy", "overloaded_error", "UNAVAILABLE"),
        row(C::UpstreamTimeout, "timeout_error", "timeout_error", "DEADLINE_EXCEEDED"),
        row(C::DeadlineExceeded, "timeout_error", "timeout_error", "DEADLINE_EXCEEDED"),
    ]
};

impl PublicCode {
    /// What the protocols call it.
    #[must_use]
    pub fn client_types(self) -> ClientTypes {
        let known = CLIENT_TYPES.iter().find(|row| row.code == self).copied();
        known.unwrap_or(row(self, "upstream_error", "api_error", "INTERNAL"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_row() {
        let rows: Vec<PublicCode> = CLIENT_TYPES.iter().map(|row| row.code).collect();
        assert_eq!(rows, PublicCode::ALL);
        assert_eq!(PublicCode::Overloaded.client_types().openai(), "overloaded_error");
    }
}
