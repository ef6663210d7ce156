use super::*;

fn check(body: &str, expected: Result<Option<&str>, ShapeFault>) {
    let facts = inspect_answer(body.as_bytes());
    assert_eq!(facts.map(|facts| facts.finish_reason), expected.map(|why| why.map(str::to_owned)), "{body}");
}

fn answer(message: &str, finish_reason: &str) -> String {
    format!(r#"{{"model":"m","choices":[{{"index":0,"message":{message},"finish_reason":"{finish_reason}"}}]}}"#)
}

fn empty(finish_reason: &str) -> ShapeFault {
    ShapeFault::EmptyOutput(Box::new(AnswerFacts {
        finish_reason: Some(finish_reason.to_owned()),
        usage: None,
        model: Some("m".to_owned()),
    }))
}

#[test]
fn answers_are_answers() {
    check(&answer(r#"{"role":"assistant","content":"hi"}"#, "stop"), Ok(Some("stop")));
    check(&answer(r#"{"content":null,"tool_calls":[{"id":"c"}]}"#, "tool_calls"), Ok(Some("tool_calls")));
    check(&answer(r#"{"content":null,"refusal":"no"}"#, "stop"), Ok(Some("stop")));
    check(&answer(r#"{"content":"","reasoning_content":"hm"}"#, "length"), Ok(Some("length")));
    check(&answer(r#"{"content":""}"#, "length"), Ok(Some("length")));
    check(&answer(r#"{"content":""}"#, "content_filter"), Ok(Some("content_filter")));
    check(r#"{"choices":[{"text":"x","finish_reason":null}]}"#, Ok(None));
    check("\u{feff} {\"choices\":[{\"message\":{\"content\":\"x\"}}],\"error\":null}\n", Ok(None));
    check(r#"{"choices":[{"message":{"content":"x"}}],"error":{}}"#, Ok(None));
    check(r#"{"choices":[{"message":{"content":"x"},"finish_reason":3}],"model":7}"#, Ok(None));
}

#[test]
fn usage_and_model_are_read() {
    let facts = inspect_answer(
        br#"{"model":"served","choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#,
    )
    .unwrap();
    assert_eq!(facts.model.as_deref(), Some("served"));
    assert_eq!(facts.usage.unwrap().completion, Some(4));
}

#[test]
fn empty_answers_are_faults() {
    check(&answer(r#"{"role":"assistant","content":null}"#, "stop"), Err(empty("stop")));
    check(&answer(r#"{"role":"assistant","content":"","tool_calls":[]}"#, "stop"), Err(empty("stop")));
    let body = r#"{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}"#;
    assert!(matches!(inspect_answer(body.as_bytes()), Err(ShapeFault::EmptyOutput(_))));
}

#[test]
fn what_is_no_answer_says_what_it_is() {
    check("", Err(ShapeFault::Empty));
    check(" null ", Err(ShapeFault::Empty));
    check("<!DOCTYPE html><html>x</html>", Err(ShapeFault::Html));
    check("upstream connect error", Err(ShapeFault::NotJson));
    check("data: {\"choices\":[]}\n\n", Err(ShapeFault::EventStream));
    check("{}", Err(ShapeFault::WrongShape));
    check("[]", Err(ShapeFault::WrongShape));
    check("7", Err(ShapeFault::WrongShape));
    check(r#"{"choices":{}}"#, Err(ShapeFault::WrongShape));
    check(r#"{"choices":[{"delta":{"content":"x"}}]}"#, Err(ShapeFault::WrongShape));
    check(r#"{"id":"as-x","result":"text"}"#, Err(ShapeFault::WrongShape));
    assert_eq!(inspect_answer(b"\x1f\x8b\x08"), Err(ShapeFault::NotJson));
}

#[test]
fn errors_with_a_success_status_are_found() {
    for (body, code) in [
        (r#"{"error":{"message":"m","code":529},"choices":[{"message":{"content":""}}]}"#, "529"),
        (r#"[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}]"#, "429"),
        (r#"{"base_resp":{"status_code":1002,"status_msg":"m"},"choices":null}"#, "1002"),
        (r#"{"error_code":17,"error_msg":"m"}"#, "17"),
        (r#"{"code":"Arrearage","message":"m"}"#, "Arrearage"),
    ] {
        let Err(ShapeFault::ErrorObject(error)) = inspect_answer(body.as_bytes()) else { panic!("{body}") };
        assert_eq!((error.code.as_deref(), error.message.as_deref()), (Some(code), Some("m")), "{body}");
    }
}

#[test]
fn finish_reasons_that_say_failure_are_errors() {
    for why in ["error", "insufficient_system_resource"] {
        let body = answer(r#"{"content":"par"}"#, why);
        let Err(ShapeFault::ErrorObject(error)) = inspect_answer(body.as_bytes()) else { panic!("{body}") };
        assert_eq!(error.code.as_deref(), Some(why));
    }
}
