use super::*;

fn check(body: &str, given: impl FnOnce(Peek<'_>)) {
    given(peek(body.as_bytes()).unwrap());
}

fn check_refused(body: &str, expected: PeekError) {
    assert_eq!(peek(body.as_bytes()).unwrap_err(), expected, "{body}");
}

#[test]
fn reads_what_is_asked_wherever_it_stands() {
    let body = r#" { "messages" : [{"role":"user","content":"model \"x\""}], "tools":[{}], "n":2,
        "stream_options":{"include_usage": true}, "max_tokens": 50, "max_completion_tokens": 20,
        "model" : "gpt-x" , "stream":true, "unknown": {"model":"inner"} }"#;
    check(body, |peek| {
        assert_eq!(peek.model, "gpt-x");
        assert_eq!(&body[peek.model_span.clone()], "\"gpt-x\"");
        assert!(peek.stream && peek.include_usage && peek.has_tools);
        assert_eq!(peek.max_tokens, Some(20));
        assert_eq!(peek.choices, 2);
        assert_eq!(peek.messages, r#"[{"role":"user","content":"model \"x\""}]"#);
    });
}

#[test]
fn defaults_are_those_of_the_protocol() {
    check(r#"{"model":"m","messages":[],"tools":[ ],"stream":null,"stream_options":null,"max_tokens":null}"#, |peek| {
        assert!(!peek.stream && !peek.include_usage && !peek.has_tools);
        assert_eq!((peek.max_tokens, peek.choices), (None, 1));
        assert!(matches!(peek.layout.stream_options, StreamOptions::Null(_)));
    });
}

#[test]
fn numbers_that_are_no_whole_numbers_are_left_to_the_upstream() {
    for value in ["-1", "1.5", "\"7\"", "99999999999999999999999"] {
        check(&format!(r#"{{"model":"m","messages":[],"max_tokens":{value}}}"#), |peek| {
            assert_eq!(peek.max_tokens, None, "{value}");
        });
    }
}

#[test]
fn escapes_in_model_and_names_are_resolved() {
    check(r#"{"mod\u0065l":"a\/\u00e9","messages":[]}"#, |peek| {
        assert_eq!(peek.model, "a/é");
    });
}

#[test]
fn a_second_model_or_stream_is_refused() {
    for (body, param) in [
        (r#"{"model":"a","messages":[],"model":"b"}"#, "model"),
        (r#"{"model":"a","messages":[],"mod\u0065l":"b"}"#, "model"),
        (r#"{"model":"a","messages":[],"Model":"b"}"#, "model"),
        (r#"{"model":"a","messages":[],"stream":false,"stream":true}"#, "stream"),
        (r#"{"model":"a","messages":[],"STREAM":true}"#, "stream"),
        (r#"{"model":"a","messages":[],"messages":[]}"#, "messages"),
    ] {
        check_refused(body, PeekError::Duplicate { param });
    }
}

#[test]
fn faults_name_the_field() {
    check_refused("", PeekError::Empty);
    check_refused(" \n", PeekError::Empty);
    check_refused(r#"{"messages":[]}"#, PeekError::Missing { param: "model" });
    check_refused(r#"{"model":"m"}"#, PeekError::Missing { param: "messages" });
    check_refused(r#"{"model":7,"messages":[]}"#, PeekError::WrongType { param: "model", expected: "a string" });
    check_refused(r#"{"model":"m","messages":{}}"#, PeekError::WrongType { param: "messages", expected: "an array" });
    check_refused(
        r#"{"model":"m","messages":[],"stream":"yes"}"#,
        PeekError::WrongType { param: "stream", expected: "a boolean" },
    );
    check_refused(r#"{"model":"","messages":[]}"#, PeekError::BadModel);
    check_refused(r#"{"model":"a\u0000","messages":[]}"#, PeekError::BadModel);
    check_refused(&format!(r#"{{"model":"{}","messages":[]}}"#, "m".repeat(257)), PeekError::BadModel);
}

#[test]
fn json_faults_say_where_and_quote_nothing() {
    let fault = peek(b"{\"model\":\"m\",\n\"messages\":[}").unwrap_err();
    assert!(matches!(fault, PeekError::NotJson { line: 2, column: 13, .. }), "{fault:?}");
    let fault = peek(br#""secret words""#).unwrap_err();
    assert!(!fault.to_string().contains("secret"), "{fault}");
    assert!(peek(br#"{"model":"m","messages":[]} {}"#).is_err());
    assert!(peek(br#"[]"#).is_err());
    assert_eq!(peek(b"{\"model\":\"\xff\"}").unwrap_err(), PeekError::NotUtf8 { at: 10 });
}

#[test]
fn deep_nesting_in_unread_fields_is_no_danger() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let _ = peek(format!(r#"{{"model":"m","messages":[],"x":{deep}}}"#).as_bytes());
}

#[test]
fn what_the_request_needs_is_seen() {
    let body = br#"{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}],
        "response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"}}}}"#;
    let seen = peek(body).unwrap();
    assert!(seen.shows_images());
    assert_eq!(seen.schema, Some(r#"{"type":"object"}"#));
    let plain = peek(br#"{"model":"m","messages":[],"response_format":{"type":"json_object"}}"#).unwrap();
    assert!(!plain.shows_images());
    assert_eq!(plain.schema, None);
}

#[test]
fn a_conversation_is_known_by_what_it_begins_with() {
    let beginning = |messages: &str| {
        let body = format!(r#"{{"model":"m","messages":{messages},"user":"u-1","prompt_cache_key":"k\"1"}}"#);
        let seen = peek(body.as_bytes()).unwrap();
        assert_eq!((seen.user().as_deref(), seen.prompt_cache_key().as_deref()), (Some("u-1"), Some("k\"1")));
        seen.beginning().to_owned()
    };
    let first = r#"[{"role":"system","content":"s"},{"role":"user","content":"hi"}"#;
    let later = format!(r#"{first},{{"role":"assistant","content":"ho"}},{{"role":"user","content":"x"}}]"#);
    assert_eq!(beginning(&format!("{first}]")), first);
    assert_eq!(beginning(&later), first);
    assert_ne!(beginning(r#"[{"role":"user","content":"other"}]"#), first);
    assert_eq!(beginning(r#"[{"role":"system","content":"s"}]"#), r#"[{"role":"system","content":"s"}"#);
    assert_eq!(beginning("[]"), "[]");
    let named = peek(br#"{"model":"m","messages":[],"user":7,"prompt_cache_key":""}"#).unwrap();
    assert_eq!((named.user(), named.prompt_cache_key()), (None, None), "what isn't a name is none");
}
