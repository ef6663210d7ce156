//! The public error codes: the one table of what the gateway tells its clients. `docs/errors/` has a page for each.

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:literal, $kind:literal, $message:literal;)+) => {
        /// A public error code. Codes are never renamed and never reused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum PublicCode {
            $($(#[$doc])* $name,)+
        }

        impl PublicCode {
            /// All codes.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The code as clients, events and metrics have it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// The HTTP status that goes with it, unless the upstream's own is passed on.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)+ }
            }

            /// The error's `type` as OpenAI clients know them.
            #[must_use]
            pub const fn kind(self) -> &'static str {
                match self { $(Self::$name => $kind,)+ }
            }

            /// The message where nothing more particular is known.
            #[must_use]
            pub const fn message(self) -> &'static str {
                match self { $(Self::$name => $message,)+ }
            }
        }
    };
}

codes! {
    /// The request can't be read or isn't valid.
    InvalidRequest = "invalid_request", 400, "invalid_request_error", "The request isn't valid.";
    /// The prompt is longer than the model's context window.
    ContextLengthExceeded = "context_length_exceeded", 400, "invalid_request_error",
        "The prompt is longer than the model's context window.";
    /// No source that could be asked supports what the request needs.
    CapabilityMissing = "capability_missing", 400, "invalid_request_error",
        "No source for this model supports what the request needs.";
    /// The content was refused.
    ContentPolicyViolation = "content_policy_violation", 400, "policy_refusal",
        "The content was refused by the provider's content policy.";
    /// The client's key is missing, unknown, disabled or expired.
    InvalidApiKey = "invalid_api_key", 401, "authentication_error", "The API key is missing or isn't valid here.";
    /// The client's key is fine, but may not do this.
    PermissionDenied = "permission_denied", 403, "permission_error", "This API key may not do that.";
    /// No such model for this key.
    ModelNotFound = "model_not_found", 404, "invalid_request_error", "This key has no model of that name.";
    /// No such path.
    NotFound = "not_found", 404, "invalid_request_error", "There is nothing at this path.";
    /// The path exists, the method doesn't.
    MethodNotAllowed = "method_not_allowed", 405, "invalid_request_error", "The path doesn't take this method.";
    /// The request's body didn't arrive in time.
    RequestTimeout = "request_timeout", 408, "invalid_request_error", "The request's body didn't arrive in time.";
    /// A momentary conflict at the upstream that didn't pass.
    Conflict = "conflict", 409, "conflict_error", "Another request is working on the same thing; try again.";
    /// The body is too large.
    PayloadTooLarge = "payload_too_large", 413, "invalid_request_error", "The request's body is too large.";
    /// The body isn't JSON.
    UnsupportedMediaType = "unsupported_media_type", 415, "invalid_request_error",
        "The request's body must be application/json.";
    /// Every source that could serve is at its limit, or this key is.
    RateLimited = "rate_limited", 429, "rate_limit_error", "The rate limit is reached; try again later.";
    /// The client left before the answer.
    ClientClosedRequest = "client_closed_request", 499, "client_closed_request", "The client closed the connection.";
    /// The gateway itself failed.
    InternalError = "internal_error", 500, "api_error", "The gateway failed; this is not the provider's fault.";
    /// The one source that was asked failed.
    UpstreamError = "upstream_error", 502, "upstream_error", "The provider failed to answer the request.";
    /// Several sources were asked and all failed.
    AllSourcesFailed = "all_sources_failed", 502, "upstream_error", "Every source that was asked failed.";
    /// The answer broke off after it had begun.
    StreamInterrupted = "stream_interrupted", 502, "upstream_error", "The answer broke off before it was complete.";
    /// The model isn't served at any source just now.
    ModelUnavailable = "model_unavailable", 503, "server_error", "The model isn't available at the moment.";
    /// The upstreams are overloaded.
    Overloaded = "overloaded", 503, "overloaded_error", "The provider is overloaded; try again later.";
    /// Sources are configured, but none may be asked now.
    NoSourceAvailable = "no_source_available", 503, "server_error", "No source for this model is available now.";
    /// This replica doesn't know enough yet to serve.
    GatewayNotReady = "gateway_not_ready", 503, "server_error", "The gateway is starting; try again shortly.";
    /// A limit of the gateway's own is reached.
    GatewayBusy = "gateway_busy", 503, "overloaded_error", "The gateway is at its limit; try again shortly.";
    /// The outbox can't take the request's events, so the request isn't begun.
    OutboxFull = "outbox_full", 503, "server_error", "The gateway can't record further requests now.";
    /// The log didn't confirm the request's admission in time, and nothing is begun that it doesn't hold.
    LogUnavailable = "log_unavailable", 503, "server_error", "The gateway's event store didn't confirm the request in time.";
    /// The upstream took too long.
    UpstreamTimeout = "upstream_timeout", 504, "timeout_error", "The provider took too long to answer.";
    /// The request's own deadline has passed.
    DeadlineExceeded = "deadline_exceeded", 504, "timeout_error", "The request's deadline has passed.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_code_has_a_page_and_every_page_a_code() {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
        let there: BTreeSet<String> = std::fs::read_dir(pages)
            .unwrap()
            .filter_map(|entry| {
                entry.unwrap().file_name().to_str().and_then(|n| n.strip_suffix(".md")).map(String::from)
            })
            .filter(|name| name != "README")
            .collect();
        let codes: BTreeSet<String> = PublicCode::ALL.iter().map(|code| code.as_str().to_owned()).collect();
        assert_eq!(there, codes);
    }

    #[test]
    fn pages_say_what_the_table_says() {
        for code in PublicCode::ALL {
            let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/errors/{}.md", code.as_str()));
            let page = std::fs::read_to_string(page).unwrap();
            let head = format!("# `{}`\n\nHTTP status {}, type `{}`.", code.as_str(), code.status(), code.kind());
            assert!(page.starts_with(&head), "{head}");
            assert!(page.contains(code.message()) || *code == PublicCode::ClientClosedRequest, "{}", code.message());
        }
    }

    #[test]
    fn codes_are_stored_as_they_are_told() {
        for code in PublicCode::ALL {
            assert_eq!(serde_json::to_string(code).unwrap(), format!("\"{}\"", code.as_str()));
            assert!((400..600).contains(&code.status()));
        }
    }
}
