use super::*;
use crate::chat::StreamEnd;

fn whole(body: &str) -> String {
    match read_answer(body.as_bytes()) {
        Ok(finish) => finish.unwrap_or_else(|| "answer".to_owned()),
        Err(ShapeFault::EmptyOutput(_)) => "empty".to_owned(),
        Err(ShapeFault::ErrorObject(facts)) => format!("error {}", facts.code.unwrap_or_default()),
        Err(fault) => format!("{fault:?}"),
    }
}

#[test]
fn whole_answers_of_all_protocols() {
    for (body, expected) in [
        (r#"{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}"#, "stop"),
        (r#"{"choices":[{"message":{"content":null,"refusal":"no"},"finish_reason":"stop"}]}"#, "refusal"),
        (r#"{"type":"message","content":[{"type":"text","text":"x"}],"stop_reason":"pause_turn"}"#, "pause_turn"),
        (r#"{"type":"message","content":[],"stop_reason":"end_turn"}"#, "empty"),
        (r#"{"type":"message","content":[],"stop_reason":"refusal"}"#, "refusal"),
        (r#"{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{}}"#, "error SAFETY"),
        (r#"{"candidates":[{"finishReason":"RECITATION"}]}"#, "RECITATION"),
        (r#"{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL","content":{}}]}"#, "empty"),
        (r#"{"candidates":[{"finishReason":"STOP","content":{"parts":[{"text":"x"}]}}]}"#, "STOP"),
        (r#"{"object":"response","status":"completed","output":[{"type":"message"}]}"#, "completed"),
        (
            r#"{"object":"response","status":"incomplete","incomplete_details":{"reason":"content_filter"},"output":[]}"#,
            "content_filter",
        ),
        (
            r#"{"object":"response","status":"failed","error":{"code":"server_error","message":"m"},"output":[]}"#,
            "error server_error",
        ),
        (
            r#"{"output":{"message":{"content":[{"text":"x"}]}},"stopReason":"guardrail_intervened"}"#,
            "guardrail_intervened",
        ),
        (r#"{"model":"m","message":{"role":"assistant","content":"x"},"done":true,"done_reason":"stop"}"#, "stop"),
        (r#"{"result":"no","need_clear_history":true}"#, "need_clear_history"),
        (r#"{"base_resp":{"status_code":1002,"status_msg":"m"},"choices":null}"#, "error 1002"),
        (r#"{"what":"is this"}"#, "WrongShape"),
    ] {
        assert_eq!(whole(body), expected, "{body}");
    }
}

fn stream(protocol: &str, body: &str, end: StreamEnd, committed: bool, finish: Option<&str>) {
    let seen = read_stream(protocol, body.as_bytes()).unwrap();
    assert_eq!((seen.end, seen.committed, seen.finish.as_deref()), (end, committed, finish), "{body}");
}

#[test]
fn streams_of_other_protocols() {
    let text = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"x\"}}\n\n";
    let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\"}}\n\n";
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n";
    let stop = "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n";
    stream("anthropic-messages", &format!("{start}{text}"), StreamEnd::Cut, true, None);
    stream("anthropic-messages", &format!("{start}{text}{stop}"), StreamEnd::Complete, true, Some("end_turn"));
    stream("anthropic-messages", &format!("{start}{stop}"), StreamEnd::Empty, false, Some("end_turn"));
    stream("anthropic-messages", &format!("{start}{error}"), StreamEnd::Failed, false, None);
    let created = "data: {\"type\":\"response.created\",\"response\":{\"id\":\"r\"}}\n\n";
    let delta = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"x\"}\n\n";
    let failed = "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"c\"}}}\n\n";
    stream("openai-responses", &format!("{created}{failed}"), StreamEnd::Failed, false, None);
    stream("openai-responses", &format!("{created}{delta}{failed}"), StreamEnd::Failed, true, None);
    let part = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"x\"}]}}]}\n\n";
    let safety = "data: {\"candidates\":[{\"finishReason\":\"SAFETY\"}]}\n\n";
    stream("gemini-generate", &format!("{part}{safety}"), StreamEnd::Complete, true, Some("SAFETY"));
    let frames = r#"[{"headers":{":event-type":"contentBlockDelta"},"payload":{"delta":{"text":"x"}}},
        {"headers":{":message-type":"exception",":exception-type":"modelStreamErrorException"},"payload":{"message":"m"}}]"#;
    stream("bedrock-eventstream", frames, StreamEnd::Failed, true, None);
    let lines = "{\"message\":{\"content\":\"x\"},\"done\":false}\n{\"error\":\"m\"}\n";
    stream("ollama-native", lines, StreamEnd::Failed, true, None);
    let chunk = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n";
    let filtered = "data: {\"base_resp\":{\"status_code\":1027,\"status_msg\":\"m\"},\"choices\":[]}\n\n";
    stream("minimax-native", &format!("{chunk}{filtered}"), StreamEnd::Failed, true, None);
}
