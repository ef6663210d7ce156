use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::Value;
use waybill_scripted_upstream::{Body, Chat, Chunking, Framing, Outcome, Reply, Usage};

use super::client::{End, one};

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

#[tokio::test]
async fn a_chat_is_answered_as_one_object() {
    let (seen, call) = one(Reply::chat(Chat::saying("Hello.")), false).await;
    assert!(seen.head().starts_with("HTTP/1.1 200 OK\r\ncontent-type: application/json"), "{}", seen.head());
    let object = json(&seen.raw_body());
    assert_eq!((&object["model"], &object["choices"][0]["message"]["content"]), (&"m1".into(), &"Hello.".into()));
    assert_eq!((call.outcome(), call.sent_bytes), (Some(Outcome::Sent), seen.raw_body().len()));
    assert_eq!((call.header("authorization"), &call.json()["model"]), (Some("Bearer k"), &"m1".into()));
}

#[tokio::test]
async fn a_stream_has_a_chunk_for_each_event() {
    let usage = Usage { prompt_tokens: 7, completion_tokens: 2, cached_tokens: 3, reasoning_tokens: 1 };
    let chat = Chat { usage: Some(usage), reasoning: Some("hm".into()), ..Chat::words(2) };
    let (seen, _) = one(Reply::chat(chat), true).await;
    assert!(seen.head().contains("content-type: text/event-stream"));
    let (chunks, complete) = seen.chunks();
    // Role, reasoning, two words, finish, usage, done.
    assert_eq!((chunks.len(), complete), (7, true));
    assert!(chunks.iter().all(|chunk| chunk.starts_with(b"data: ") && chunk.ends_with(b"\n\n")));
    let with_usage = json(&chunks[5]["data: ".len()..]);
    assert_eq!(with_usage["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
    assert_eq!(with_usage["usage"]["total_tokens"], 9);
    assert_eq!(chunks[6], b"data: [DONE]\n\n");
}

#[tokio::test]
async fn errors_pages_and_nothing_come_as_they_are() {
    let (seen, _) = one(Reply::error(429, "rate_limit_exceeded").header("retry-after", "3"), false).await;
    assert!(seen.head().starts_with("HTTP/1.1 429 ") && seen.head().contains("retry-after: 3"));
    assert_eq!(json(&seen.raw_body())["error"]["code"], "rate_limit_exceeded");
    let (seen, _) = one(Reply::html(502), true).await;
    assert!(seen.head().contains("content-type: text/html") && seen.text().contains("<html>"));
    let (seen, _) = one(Reply::empty(200), false).await;
    assert!(seen.head().contains("content-length: 0") && seen.raw_body().is_empty());
    let (seen, _) = one(Reply::json(200, serde_json::json!({"error": {"message": "no"}})), false).await;
    assert_eq!(json(&seen.raw_body())["error"]["message"], "no");
    let (seen, _) = one(Reply::redirect(307, "http://127.0.0.1:1/"), false).await;
    assert!(seen.head().starts_with("HTTP/1.1 307 ") && seen.head().contains("location: http://127.0.0.1:1/"));
    let (seen, _) = one(Reply { early_hints: true, ..Reply::default() }, false).await;
    assert!(seen.text().starts_with("HTTP/1.1 103 ") && seen.text().contains("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn bytes_that_are_no_http_are_sent_as_they_are() {
    let (seen, call) = one(Reply::wire("HTTP/9 banana\r\n\x07\r\n\r\n"), false).await;
    assert_eq!((seen.text().as_str(), seen.end), ("HTTP/9 banana\r\n\x07\r\n\r\n", End::Closed));
    assert_eq!(call.outcome(), Some(Outcome::Sent));
}

#[tokio::test]
async fn a_broken_stream_is_broken_where_the_script_says() {
    let broken = Chat::words(2).insert(2, "data: {\"id\":").insert(3, ": comment");
    let (seen, _) = one(Reply::chat(broken), true).await;
    let (chunks, _) = seen.chunks();
    assert_eq!((&chunks[2][..], &chunks[4][..]), (&b"data: {\"id\":\n\n"[..], &b": comment\n\n"[..]));
    let endless = Chat { no_done: true, no_finish: true, ..Chat::words(1) };
    let (seen, _) = one(Reply::chat(endless), true).await;
    assert!(!seen.text().contains("[DONE]") && !seen.text().contains("\"stop\""));
    let error = Reply::frames([r#"data: {"error":{"message":"overloaded"}}"#]);
    let (seen, _) = one(error, true).await;
    assert_eq!(seen.chunks().0, [b"data: {\"error\":{\"message\":\"overloaded\"}}\n\n"]);
}

#[tokio::test]
async fn the_end_of_a_body_can_be_told_in_three_ways() {
    let reply = || Reply::chat(Chat::saying("x"));
    let (seen, _) = one(reply().framing(Framing::Close), false).await;
    assert!(!seen.head().contains("content-length") && !seen.head().contains("transfer-encoding"));
    json(&seen.raw_body());
    let (seen, _) = one(reply().framing(Framing::Chunked), false).await;
    assert!(seen.chunks().1 && !seen.head().contains("content-length"));
    let (seen, _) = one(reply().framing(Framing::Length), true).await;
    assert!(seen.head().contains(&format!("content-length: {}", seen.raw_body().len())));
}

#[tokio::test]
async fn a_compressed_stream_can_be_read_event_by_event() {
    let (seen, _) = one(Reply::chat(Chat::words(3)).gzip(), true).await;
    assert!(seen.head().contains("content-encoding: gzip"));
    let (chunks, complete) = seen.chunks();
    let mut text = String::new();
    GzDecoder::new(&chunks.concat()[..]).read_to_string(&mut text).unwrap();
    assert!(complete && chunks.len() > 5 && text.ends_with("data: [DONE]\n\n"));
    // The first chunk alone holds the whole first event.
    let mut first = vec![0; "data: {".len()];
    GzDecoder::new(&chunks[0][..]).read_exact(&mut first).unwrap();
    assert_eq!(first, b"data: {");
}

#[tokio::test]
async fn pieces_can_be_cut_inside_a_character() {
    let (seen, _) = one(Reply::chat(Chat::saying("añb€c")).chunking(Chunking::SplitUtf8), true).await;
    let (chunks, _) = seen.chunks();
    assert_eq!(chunks.iter().filter(|chunk| std::str::from_utf8(chunk).is_err()).count(), 3);
    assert!(String::from_utf8(chunks.concat()).unwrap().contains("añb€c"));
    let (seen, _) = one(Reply::chat(Chat::words(2)).chunking(Chunking::Whole), true).await;
    assert_eq!(seen.chunks().0.len(), 1);
    let (seen, _) = one(Reply::chat(Chat::words(2)).chunking(Chunking::Bytes(5)), true).await;
    assert!(seen.chunks().0.iter().rev().skip(1).all(|chunk| chunk.len() == 5));
}

#[tokio::test]
async fn tools_are_called_streamed_and_not() {
    let chat = || Chat::calling("weather", r#"{"city":"Zürich"}"#);
    let (seen, _) = one(Reply::chat(chat()), false).await;
    let object = json(&seen.raw_body());
    assert_eq!(object["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], r#"{"city":"Zürich"}"#);
    let (seen, _) = one(Reply::chat(chat()), true).await;
    assert!(seen.text().contains(r#""name":"weather""#) && seen.text().contains(r#""finish_reason":"tool_calls""#));
}

#[tokio::test]
async fn any_bytes_of_any_type_can_be_a_body() {
    let body = Body::Bytes { content_type: "application/octet-stream".into(), bytes: vec![0, 255, 7] };
    let (seen, _) = one(Reply { body, ..Reply::default() }, false).await;
    assert_eq!(seen.raw_body(), [0, 255, 7]);
}
