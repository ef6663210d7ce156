use super::*;
use crate::peek::peek;

fn check(body: &str, model: &str, want_usage: bool, expected: &str) {
    let bytes = Bytes::copy_from_slice(body.as_bytes());
    let layout = peek(&bytes).unwrap().layout;
    let out = rewrite(&bytes, &layout, model, want_usage);
    assert_eq!(std::str::from_utf8(&out).unwrap(), expected);
    let again = peek(&out).unwrap();
    assert_eq!(again.model, model);
    assert!(!want_usage || again.include_usage || matches!(layout.stream_options, StreamOptions::Other));
}

#[test]
fn only_the_model_changes() {
    check(
        r#"{ "z":1e3, "model" :"a", "messages":[], "big":12345678901234567890123, "a":0.10 }"#,
        "b\"é",
        false,
        r#"{ "z":1e3, "model" :"b\"é", "messages":[], "big":12345678901234567890123, "a":0.10 }"#,
    );
}

#[test]
fn the_usage_wish_is_put_where_it_belongs() {
    for (options, expected) in [
        (r#","stream_options":null"#, r#"{"model":"m","messages":[],"stream_options":{"include_usage":true}}"#),
        (r#","stream_options":{}"#, r#"{"model":"m","messages":[],"stream_options":{"include_usage":true}}"#),
        (
            r#","stream_options":{ "x":1}"#,
            r#"{"model":"m","messages":[],"stream_options":{"include_usage":true, "x":1}}"#,
        ),
        (
            r#","stream_options":{"include_usage":false}"#,
            r#"{"model":"m","messages":[],"stream_options":{"include_usage":true}}"#,
        ),
        (
            r#","stream_options":{"include_usage":null}"#,
            r#"{"model":"m","messages":[],"stream_options":{"include_usage":true}}"#,
        ),
        (r#","stream_options":7"#, r#"{"model":"m","messages":[],"stream_options":7}"#),
        ("", r#"{"stream_options":{"include_usage":true},"model":"m","messages":[]}"#),
    ] {
        check(&format!(r#"{{"model":"x","messages":[]{options}}}"#), "m", true, expected);
    }
}

#[test]
fn both_edits_at_once_keep_their_places() {
    check(
        r#"{"stream_options":{"include_usage":false},"messages":[],"model":"long-name"}"#,
        "s",
        true,
        r#"{"stream_options":{"include_usage":true},"messages":[],"model":"s"}"#,
    );
}

#[test]
fn nothing_to_change_gives_the_same_buffer() {
    let body = Bytes::from_static(br#"{"model":"m","messages":[]}"#);
    let span = peek(&body).unwrap().model_span;
    let out = splice_model(&body, span.clone(), "m");
    assert_eq!(out.as_ptr(), body.as_ptr());
    assert_eq!(splice_model(&body, span, "n"), r#"{"model":"n","messages":[]}"#);
}
