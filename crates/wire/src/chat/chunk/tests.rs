use super::*;

fn check(data: &str, expected: Chunk<'_>) {
    assert_eq!(inspect_chunk(data.as_bytes()), ChunkFacts::Chunk(expected), "{data}");
}

fn check_commits(delta: &str, commits: bool) {
    check(
        &format!(r#"{{"model":"m","choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#),
        Chunk { commits, model: Some("m".into()), ..Chunk::default() },
    );
}

#[test]
fn what_the_model_says_commits() {
    for delta in [
        r#"{"content":"h"}"#,
        r#"{"content":"\n"}"#,
        r#"{"role":"assistant","reasoning_content":"hm"}"#,
        r#"{"reasoning":"hm","content":""}"#,
        r#"{"refusal":"no"}"#,
        r#"{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":""}}]}"#,
        r#"{"function_call":{"name":"f"}}"#,
        r#"{"content":[{"type":"text","text":"h"}]}"#,
    ] {
        check_commits(delta, true);
    }
}

#[test]
fn roles_and_empty_fields_do_not() {
    for delta in [
        "{}",
        "null",
        r#"{"role":"assistant"}"#,
        r#"{"role":"assistant","content":"","refusal":null,"tool_calls":[]}"#,
        r#"{"role":"assistant","content":null,"function_call":{ }}"#,
    ] {
        check_commits(delta, false);
    }
}

#[test]
fn ends_and_usage_are_read() {
    check(
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}"#,
        Chunk { finish_reason: Some("stop".into()), ..Chunk::default() },
    );
    let usage = Usage { prompt: Some(9), completion: Some(1), ..Usage::default() };
    check(
        r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#,
        Chunk { usage: Some(usage), usage_only: true, ..Chunk::default() },
    );
    check(
        r#"{"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#,
        Chunk { commits: true, usage: Some(usage), ..Chunk::default() },
    );
    check(r#"{"choices":[],"prompt_filter_results":[{}]}"#, Chunk::default());
    assert_eq!(inspect_chunk(b" [DONE]"), ChunkFacts::Done);
}

#[test]
fn odd_types_and_doubled_names_are_tolerated() {
    check(r#"{"choices":[{"delta":{"content":"x"},"finish_reason":7}]}"#, Chunk { commits: true, ..Chunk::default() });
    check(
        r#"{"model":1,"choices":[{"delta":{"content":"x"}}],"model":"m"}"#,
        Chunk { commits: true, model: Some("m".into()), ..Chunk::default() },
    );
    check(r#"{"type":"ping"}"#, Chunk::default());
}

#[test]
fn errors_are_errors_and_null_errors_are_not() {
    for data in [
        r#"{"error":{"message":"m","code":"c"}}"#,
        r#"{"choices":[],"error":{"message":"m","code":"c"}}"#,
        r#"{"object":"error","message":"m","code":"c"}"#,
        r#"{"type":"error","error":{"message":"m","code":"c"}}"#,
    ] {
        let ChunkFacts::Error(error) = inspect_chunk(data.as_bytes()) else { panic!("{data}") };
        assert_eq!((error.message.as_deref(), error.code.as_deref()), (Some("m"), Some("c")), "{data}");
    }
    for error in ["null", "{}", "\"\""] {
        check(
            &format!(r#"{{"choices":[{{"delta":{{"content":"x"}}}}],"error":{error}}}"#),
            Chunk { commits: true, ..Chunk::default() },
        );
    }
}

#[test]
fn what_is_no_json_object_is_malformed() {
    for data in ["", "{", "text", "[1]", "7", "{\"a\":1} x"] {
        assert_eq!(inspect_chunk(data.as_bytes()), ChunkFacts::Malformed, "{data}");
    }
    assert_eq!(inspect_chunk(b"{\"a\":\"\xff\"}"), ChunkFacts::Malformed);
}
