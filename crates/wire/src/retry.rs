//! Which headers of an answer may name a wait.

use http::{HeaderMap, HeaderValue};

/// What stands in the names of headers that name a wait, or the window that it belongs to.
const NAMES: [&str; 4] = ["retry-after", "ratelimit", "reset", "used-percent"];

/// The headers that may name a wait, in memory of their own: all of an answer's headers would hold on to the buffer of the
/// connection that they came over.
#[must_use]
pub fn hints(headers: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for (name, value) in headers {
        if NAMES.iter().any(|part| name.as_str().contains(part))
            && let Ok(value) = HeaderValue::from_bytes(value.as_bytes())
        {
            kept.append(name.clone(), value);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_name_a_wait_is_kept() {
        let names =
            ["retry-after", "retry-after-ms", "x-ratelimit-reset", "x-codex-primary-used-percent", "x-request-id"];
        let all: HeaderMap =
            names.iter().map(|name| (http::HeaderName::from_static(name), HeaderValue::from_static("7"))).collect();
        let kept = hints(&all);
        assert_eq!(kept.keys().map(http::HeaderName::as_str).collect::<Vec<_>>().len(), 4);
        assert!(!kept.contains_key("x-request-id"));
    }
}
