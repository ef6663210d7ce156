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
        reason: facts.reasons.first().map(String::as_str),
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
fn codes_are_read_wherever_they_hide() {
    let reasons = |body: &str| ErrorFacts::read(429, None, body.as_bytes()).reasons;
    assert_eq!(reasons(r#"{"error":{"message":"[1310][Weekly limit]"}}"#), ["1310"]);
    assert_eq!(reasons(r#"{"error":{"message":"unknown error, 999 (1000)"}}"#), ["1000"]);
    assert_eq!(reasons(r#"{"error":{"message":"(see the manual)"}}"#), Vec::<String>::new());
    let quota = r#"{"error":{"details":[{"violations":[{"quotaId":"PerDay"}]},{"reason":"R"}]}}"#;
    assert_eq!(reasons(quota), ["PerDay", "R"]);
    let frame = r#"[{"headers":{":exception-type":"throttlingException"},"payload":{"message":"m"}}]"#;
    assert_eq!(reasons(frame), ["throttlingException"]);
}

#[test]
fn places_and_headers_are_kept() {
    let facts = ErrorFacts::read(
        200,
        None,
        br#"{"type":"response.failed","response":{"error":{"code":"c","message":"m"}},"headers":{"Retry-After":7}}"#,
    );
    assert_eq!((facts.at.as_str(), facts.message_at.as_str()), ("response.error", "response.error.message"));
    assert_eq!(facts.headers, [("Retry-After".to_owned(), "7".to_owned())]);
    assert_eq!(facts.trees.len(), 1);
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
