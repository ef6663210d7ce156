use super::*;

fn map(names: &[&'static str]) -> HeaderMap {
    names.iter().map(|name| (HeaderName::from_static(name), HeaderValue::from_static("v"))).collect()
}

fn check(filter: fn(&HeaderMap) -> HeaderMap, given: &[&'static str], expected: &[&str]) {
    let out = filter(&map(given));
    let mut names: Vec<_> = out.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, expected);
}

const EVERYTHING: [&str; 33] = [
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "forwarded",
    "host",
    "idempotency-key",
    "keep-alive",
    "openai-beta",
    "openai-organization",
    "openai-processing-ms",
    "openai-project",
    "openai-version",
    "proxy-authorization",
    "retry-after",
    "retry-after-ms",
    "server",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-api-key",
    "x-forwarded-for",
    "x-ratelimit-remaining-tokens",
    "x-request-id",
    "x-should-retry",
    "x-stainless-os",
    "strict-transport-security",
];

#[test]
fn only_named_headers_go_out() {
    check(
        |headers| ToUpstream::of(headers).to_map(),
        &EVERYTHING,
        &["accept", "content-type", "idempotency-key", "openai-beta"],
    );
}

#[test]
fn only_named_headers_come_in() {
    check(
        inbound,
        &EVERYTHING,
        &["content-encoding", "content-type", "openai-processing-ms", "openai-version", "x-ratelimit-remaining-tokens"],
    );
    check(
        inbound_error,
        &EVERYTHING,
        &[
            "openai-processing-ms",
            "openai-version",
            "retry-after",
            "retry-after-ms",
            "x-ratelimit-remaining-tokens",
            "x-should-retry",
        ],
    );
}

#[test]
fn content_is_told_apart() {
    let mut headers = HeaderMap::new();
    assert!(!is_encoded(&headers) && !is_event_stream(&headers));
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("Text/Event-Stream; charset=utf-8"));
    assert!(!is_encoded(&headers) && is_event_stream(&headers));
    headers.append(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    assert!(is_encoded(&headers));
}
