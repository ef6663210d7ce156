use super::*;

fn request() -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "hello"}]})
}

/// Data of the frames, without `data: ` and blank lines.
fn stream(chat: &Chat, include_usage: bool) -> Vec<String> {
    let frames = Answer::new(chat, &request(), "said", "a-1").frames(chat, include_usage);
    frames.iter().map(|frame| frame.trim_end().trim_start_matches("data: ").to_owned()).collect()
}

fn deltas(chat: &Chat) -> Vec<Value> {
    let events = stream(chat, false);
    let chunks = events.iter().filter_map(|event| serde_json::from_str::<Value>(event).ok());
    chunks.map(|chunk| chunk["choices"][0]["delta"].clone()).collect()
}

#[test]
fn an_object_echoes_the_model_and_counts() {
    let object = Answer::new(&Chat::words(3), &request(), "said", "a-1").object();
    assert_eq!(object["model"], "m");
    assert_eq!(object["choices"][0]["message"]["content"], "word1 word2 word3");
    assert_eq!(object["usage"]["completion_tokens"], 3);
    assert_eq!(object["choices"][0]["finish_reason"], "stop");
}

#[test]
fn a_stream_begins_with_the_role_and_ends_with_done() {
    assert_eq!(
        deltas(&Chat::saying("two words")),
        [
            json!({"role": "assistant", "content": ""}),
            json!({"content": "two"}),
            json!({"content": " words"}),
            json!({})
        ]
    );
    assert_eq!(stream(&Chat::words(1), false).last().unwrap(), "[DONE]");
}

#[test]
fn the_usage_chunk_comes_only_when_asked_for() {
    assert!(!stream(&Chat::words(1), false).iter().any(|event| event.contains("usage")));
    let events = stream(&Chat::words(1), true);
    let chunk: Value = serde_json::from_str(&events[events.len() - 2]).unwrap();
    assert_eq!((&chunk["choices"], &chunk["usage"]["completion_tokens"]), (&json!([]), &json!(1)));
}

#[test]
fn tool_calls_are_streamed_in_pieces_that_make_up_the_arguments() {
    let chat = Chat::calling("weather", r#"{"city":"Zürich","days":3}"#);
    let calls: Vec<Value> = deltas(&chat)
        .iter()
        .filter(|delta| !delta["tool_calls"].is_null())
        .map(|d| d["tool_calls"][0].clone())
        .collect();
    assert_eq!((&calls[0]["function"]["name"], &calls[0]["index"]), (&json!("weather"), &json!(0)));
    assert_eq!(calls[0]["id"], "call_a-1_0");
    assert!(calls.len() > 3);
    let arguments: String = calls.iter().map(|call| call["function"]["arguments"].as_str().unwrap()).collect();
    assert_eq!(arguments, chat.tool_calls[0].arguments);
    let object = Answer::new(&chat, &request(), "said", "a-1").object();
    assert_eq!(object["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(object["choices"][0]["message"]["content"], Value::Null);
}

#[test]
fn after_a_tools_result_it_says_its_text() {
    let request = json!({"model": "m", "messages": [{"role": "tool", "content": "sunny"}]});
    let object = Answer::new(&Chat::calling("weather", "{}"), &request, "said", "a-1").object();
    assert_eq!(object["choices"][0]["message"]["content"], "said");
    assert_eq!(object["choices"][0]["finish_reason"], "stop");
}

#[test]
fn inserts_stand_where_they_are_told() {
    let chat = Chat::words(1).insert(0, "data: first").insert(99, "data: last");
    let events = stream(&chat, false);
    assert_eq!((events[0].as_str(), events[events.len() - 1].as_str()), ("first", "last"));
    assert_eq!(events.len(), stream(&Chat::words(1), false).len() + 2);
}

#[test]
fn a_stream_may_lack_its_end() {
    let chat = Chat { no_done: true, no_finish: true, ..Chat::words(1) };
    let events = stream(&chat, false);
    assert_eq!(events.len(), 2);
    assert!(events[1].contains("word1"));
}

#[test]
fn lines_may_end_in_crlf_and_have_no_space() {
    let chat = Chat { crlf: true, no_space: true, ..Chat::words(1) };
    let frames = Answer::new(&chat, &request(), "said", "a-1").frames(&chat, false);
    assert!(frames.iter().all(|frame| frame.ends_with("\r\n\r\n") && !frame.starts_with("data: ")));
}

#[test]
fn words_make_up_the_text_again() {
    for text in ["", "one", " leading", "two  spaces", "línea\nnueva", "trailing "] {
        assert_eq!(words(text).concat(), text);
    }
    assert_eq!(words("a b c"), ["a", " b", " c"]);
}
