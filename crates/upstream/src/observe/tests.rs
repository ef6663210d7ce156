use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use waybill_domain::verdict::{RuleSet, classify};
use waybill_wire::chat::inspect_answer;
use waybill_wire::sse::Splitter;

use super::*;

fn limited() -> HeaderMap {
    HeaderMap::from_iter([(http::header::RETRY_AFTER, HeaderValue::from_static("7"))])
}

#[test]
fn a_status_carries_its_error_and_its_wait() {
    let seen = status("openai", 429, &limited(), br#"{"error":{"message":"m","code":"rate_limit_exceeded"}}"#, 0);
    assert_eq!(seen.ending, Ending::Status { status: 429, shape: Shape::Error });
    assert_eq!(seen.error.code.as_deref(), Some("rate_limit_exceeded"));
    assert_eq!(seen.headers.get("retry-after"), Some("7"));
    let seen = status("openai", 502, &HeaderMap::new(), b"<html>x</html>", 0);
    assert_eq!(seen.ending, Ending::Status { status: 502, shape: Shape::Html });
    let seen = status(
        "openai",
        503,
        &HeaderMap::new(),
        br#"{"error":"Model x is currently loading","estimated_time":20.0}"#,
        0,
    );
    assert_eq!(classify(RuleSet::builtin(), &seen).wait, Some(Duration::from_secs(20)));
    let seen = status("openai", 500, &HeaderMap::new(), b"{}", 0);
    assert_eq!(seen.ending, Ending::Status { status: 500, shape: Shape::UnknownJson });
}

#[test]
fn wrong_answers_keep_their_shape() {
    for (body, shape) in [
        ("", Shape::Empty),
        ("<html></html>", Shape::Html),
        ("oops", Shape::Text),
        ("{}", Shape::UnknownJson),
        (r#"{"choices":[]}"#, Shape::EmptyOutput),
        (r#"{"error":{"message":"m"}}"#, Shape::Error),
    ] {
        let fault = inspect_answer(body.as_bytes()).unwrap_err();
        let seen = wrong_answer("openai", 200, &HeaderMap::new(), &fault, 0);
        assert_eq!(seen.ending, Ending::Wrong2xx { status: 200, shape }, "{body}");
    }
}

fn check_stream(text: &str, ending: Ending, committed: bool) {
    let mut splitter = Splitter::new(1 << 16);
    splitter.push(&Bytes::copy_from_slice(text.as_bytes()));
    let mut watch = StreamWatch::new();
    while let Some(frame) = splitter.next_frame().unwrap() {
        watch.take(&frame);
    }
    let seen = stream("openai", 200, &HeaderMap::new(), &watch, 0);
    assert_eq!((seen.ending, seen.committed), (ending, committed), "{text}");
}

#[test]
fn streams_end_in_different_ways() {
    let wrong = |shape| Ending::Wrong2xx { status: 200, shape };
    let text = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n";
    check_stream(&format!("{text}data: [DONE]\n\n"), Ending::Success, true);
    check_stream(text, wrong(Shape::Cut), true);
    check_stream("data: [DONE]\n\n", wrong(Shape::EmptyOutput), false);
    check_stream("data: {\"error\":{\"message\":\"m\"}}\n\n", wrong(Shape::Error), false);
    check_stream("data: {oops\n\n", wrong(Shape::BrokenEvent), false);
}
