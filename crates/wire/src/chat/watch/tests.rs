use bytes::Bytes;

use super::*;
use crate::sse::Splitter;

fn follow(text: &str) -> (StreamWatch, Vec<Seen>) {
    let mut splitter = Splitter::new(1 << 16);
    splitter.push(&Bytes::copy_from_slice(text.as_bytes()));
    let mut watch = StreamWatch::new();
    let mut seen = Vec::new();
    while let Some(frame) = splitter.next_frame().unwrap() {
        seen.push(watch.take(&frame));
    }
    if let Some(frame) = splitter.finish() {
        seen.push(watch.take(&frame));
    }
    (watch, seen)
}

fn check(text: &str, seen: &[Seen], end: StreamEnd) -> StreamWatch {
    let (watch, was) = follow(text);
    assert_eq!(was, seen, "{text}");
    assert_eq!(watch.end(), end, "{text}");
    watch
}

const ROLE: &str = "data: {\"model\":\"m\",\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
const TEXT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"h\"}}]}\n\n";
const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const ERROR: &str = "data: {\"error\":{\"message\":\"m\",\"code\":\"c\"}}\n\n";

#[test]
fn a_whole_stream() {
    use Seen::{Content, Done, Silent, UsageOnly};
    let watch = check(
        &[": ping\n\n", ROLE, TEXT, STOP, USAGE, DONE].concat(),
        &[Silent, Silent, Content, Silent, UsageOnly, Done],
        StreamEnd::Complete,
    );
    assert!(watch.committed() && watch.done() && watch.ended());
    assert_eq!((watch.finish_reason(), watch.model(), watch.events()), (Some("stop"), Some("m"), 5));
    assert_eq!(watch.usage().unwrap().completion, Some(2));
}

#[test]
fn either_end_signal_is_enough() {
    check(&[TEXT, STOP].concat(), &[Seen::Content, Seen::Silent], StreamEnd::Complete);
    check(&[TEXT, DONE].concat(), &[Seen::Content, Seen::Done], StreamEnd::Complete);
    check(&[TEXT, "data: [DONE]"].concat(), &[Seen::Content, Seen::Done], StreamEnd::Complete);
}

#[test]
fn cuts_are_cuts() {
    check("", &[], StreamEnd::Cut);
    check(": ping\n\n", &[Seen::Silent], StreamEnd::Cut);
    check(&[ROLE, TEXT].concat(), &[Seen::Silent, Seen::Content], StreamEnd::Cut);
    check(&[TEXT, "data: {\"cho"].concat(), &[Seen::Content, Seen::Malformed], StreamEnd::Cut);
}

#[test]
fn silence_needs_a_reason() {
    check(&[ROLE, STOP, DONE].concat(), &[Seen::Silent, Seen::Silent, Seen::Done], StreamEnd::Empty);
    check(DONE, &[Seen::Done], StreamEnd::Empty);
    check(&[USAGE, DONE].concat(), &[Seen::UsageOnly, Seen::Done], StreamEnd::Empty);
    check(&[ROLE, &STOP.replace("stop", "length")].concat(), &[Seen::Silent, Seen::Silent], StreamEnd::Complete);
}

#[test]
fn errors_within_the_stream() {
    let watch = check(&[ROLE, ERROR].concat(), &[Seen::Silent, Seen::Error], StreamEnd::Failed);
    assert!(!watch.committed());
    assert_eq!(watch.error().unwrap().code.as_deref(), Some("c"));
    let watch = check(&[TEXT, ERROR, DONE].concat(), &[Seen::Content, Seen::Error, Seen::Done], StreamEnd::Failed);
    assert!(watch.committed());
    let watch = check("event: error\ndata: the model crashed\n\n", &[Seen::Error], StreamEnd::Failed);
    assert_eq!(watch.error().unwrap().message.as_deref(), Some("the model crashed"));
    let watch =
        check(&[TEXT, &STOP.replace("stop", "error")].concat(), &[Seen::Content, Seen::Error], StreamEnd::Failed);
    assert_eq!(watch.error().unwrap().code.as_deref(), Some("error"));
    check("data: {oops\n\n", &[Seen::Malformed], StreamEnd::Failed);
}

#[test]
fn usage_is_a_running_total() {
    let text = [
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}],\"usage\":{\"completion_tokens\":2}}\n\n",
    ];
    let usage = follow(&text.concat()).0.usage().unwrap();
    assert_eq!((usage.prompt, usage.completion), (Some(9), Some(2)));
}
