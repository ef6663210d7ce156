use super::*;

#[derive(Default)]
struct Expected<'a> {
    inner: Option<u16>,
    code: Option<&'a str>,
    kind: Option<&'a str>,
    param: Option<&'a str>,
    reason: Option<&'a str>,
    message: Option<&'a str>,
}

fn check(body: &str, expected: Expected<'_>) {
    let facts = ErrorFacts::read(400, Some("text/plain"), body.as_bytes());
    assert_eq!(facts.shape, BodyShape::Json, "{body}");
    let said = Expected {
        inner: facts.status_inner,
        code: facts.code.as_deref(),
        kind: facts.kind.as_deref(),
        param: facts.param.as_deref(),
        reason: facts.reason.as_deref(),
        message: facts.message.as_deref(),
    };
    let tuple = |e: &Expected<'_>| format!("{:?}", (e.inner, e.code, e.kind, e.param, e.reason, e.message));
    assert_eq!(tuple(&said), tuple(&expected), "{body}");
}

#[test]
fn openai_shape() {
    check(
        r#"{"error":{"message":"m","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
        Expected {
            code: Some("context_length_exceeded"),
            kind: Some("invalid_request_error"),
            param: Some("messages"),
            message: Some("m"),
            ..Expected::default()
        },
    );
    check(
        r#"{"error":{"message":"m","type":null,"param":null,"code":null}}"#,
        Expected { message: Some("m"), ..Expected::default() },
    );
}

#[test]
fn shapes_of_other_providers() {
    let m = Some("m");
    check(
        r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
        Expected { kind: Some("overloaded_error"), message: m, ..Expected::default() },
    );
    check(
        r#"[{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}]"#,
        Expected {
            inner: Some(400),
            code: Some("400"),
            kind: Some("INVALID_ARGUMENT"),
            reason: Some("API_KEY_INVALID"),
            message: m,
            ..Expected::default()
        },
    );
    check(
        r#"{"error":"m","error_type":"overloaded"}"#,
        Expected { kind: Some("overloaded"), message: m, ..Expected::default() },
    );
    check(
        r#"{"error":"invalid_grant","error_description":"m"}"#,
        Expected { code: Some("invalid_grant"), message: m, ..Expected::default() },
    );
    check(
        r#"{"code":"no credits","error":"m"}"#,
        Expected { code: Some("no credits"), message: m, ..Expected::default() },
    );
    check(r#"{"detail":"m"}"#, Expected { message: m, ..Expected::default() });
    check(
        r#"{"detail":{"code":"deactivated_workspace"}}"#,
        Expected { code: Some("deactivated_workspace"), ..Expected::default() },
    );
    check(
        r#"{"detail":[{"type":"extra_forbidden","loc":["body","tools",0],"msg":"m"}]}"#,
        Expected { kind: Some("extra_forbidden"), param: Some("tools.0"), message: m, ..Expected::default() },
    );
    check(
        r#"{"object":"error","message":{"detail":[{"type":"missing","loc":["body","messages"],"msg":"m"}]},
            "type":"invalid_request_error","raw_status_code":422}"#,
        Expected {
            inner: Some(422),
            kind: Some("missing"),
            param: Some("messages"),
            message: m,
            ..Expected::default()
        },
    );
    check(
        r#"{"success":false,"errors":[{"code":10000,"message":"m"}],"result":null}"#,
        Expected { code: Some("10000"), message: m, ..Expected::default() },
    );
    check(
        r#"{"message":"m","originalStatusCode":500}"#,
        Expected { inner: Some(500), message: m, ..Expected::default() },
    );
}

#[test]
fn wrapped_errors_are_unwrapped() {
    check(
        r#"{"error":{"code":400,"message":"Provider returned error","metadata":{"raw":
            "{\"error\":{\"message\":\"inner\",\"code\":\"context_length_exceeded\",\"status\":413}}"}}}"#,
        Expected {
            inner: Some(413),
            code: Some("context_length_exceeded"),
            message: Some("inner"),
            ..Expected::default()
        },
    );
    check(
        r#"{"error":{"message":"Provider returned error","metadata":{"raw":"x is limited","limit_source":"shared"}}}"#,
        Expected { reason: Some("shared"), message: Some("x is limited"), ..Expected::default() },
    );
    check(
        r#"{"error":{"message":"{\"error\":{\"message\":\"inner\",\"type\":\"t\"}}","type":"upstream_error"}}"#,
        Expected { kind: Some("t"), message: Some("inner"), ..Expected::default() },
    );
    check(
        r#"{"error":{"message":"<400> InternalError.Algo.InvalidParameter: m","code":"x"}}"#,
        Expected {
            inner: Some(400),
            code: Some("x"),
            reason: Some("InternalError.Algo.InvalidParameter"),
            message: Some("<400> InternalError.Algo.InvalidParameter: m"),
            ..Expected::default()
        },
    );
    check(
        "event: error\ndata: {\"status_code\":429,\"error\":{\"type\":\"usage_limit_reached\",\"message\":\"m\"}}\n\n",
        Expected {
            inner: Some(429),
            code: Some("429"),
            kind: Some("usage_limit_reached"),
            message: Some("m"),
            ..Expected::default()
        },
    );
}

#[test]
fn waits_in_bodies_are_read() {
    for (body, ms) in [
        (r#"{"error":{"details":[{"@type":"RetryInfo","retryDelay":"1.5s"}]}}"#, Some(1500)),
        (r#"{"error":{"resets_in_seconds":3000}}"#, Some(3_000_000)),
        (r#"{"error":"loading","estimated_time":20.0}"#, Some(20_000)),
        (r#"{"error":{"resets_in_seconds":-5}}"#, None),
        (r#"{"error":{"resets_in_seconds":1e300}}"#, None),
    ] {
        assert_eq!(ErrorFacts::read(429, None, body.as_bytes()).retry_in_ms, ms, "{body}");
    }
}

#[test]
fn what_is_no_json_has_a_shape() {
    let read = |body: &[u8]| {
        let facts = ErrorFacts::read(502, None, body);
        (facts.shape, facts.message)
    };
    assert_eq!(read(b" \n"), (BodyShape::Empty, None));
    assert_eq!(
        read(b"<html><head><title>502 Bad Gateway</title>"),
        (BodyShape::Html, Some("502 Bad Gateway".to_owned()))
    );
    assert_eq!(read(b"404 page not found"), (BodyShape::Text, Some("404 page not found".to_owned())));
    assert_eq!(read(b"\x1f\x8b\xff"), (BodyShape::Binary, None));
    let large = format!("{{\"error\":{{\"message\":\"{}\"}}}}", "é".repeat(MAX_TREE_BYTES));
    assert_eq!(read(large.as_bytes()), (BodyShape::Text, None));
}

#[test]
fn what_is_kept_is_bounded_and_debug_is_masked() {
    let body = format!(
        r#"{{"error":{{"message":"key sk-abcdefgh12345678 {}","code":"{}"}}}}"#,
        "x ".repeat(4000),
        "c".repeat(500)
    );
    let facts = ErrorFacts::read(401, None, body.as_bytes());
    assert_eq!(facts.message.as_ref().unwrap().len(), MAX_MESSAGE_BYTES);
    assert_eq!(facts.code.as_ref().unwrap().len(), MAX_WORD_BYTES);
    assert!(!format!("{facts:?}").contains("abcdefgh"));
    assert!(facts.evidence().unwrap().starts_with("key [masked] x x"));
}
