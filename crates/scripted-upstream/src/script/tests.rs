use super::*;

#[track_caller]
fn check(json: &str, expected: &Script) {
    let script: Script = serde_json::from_str(json).unwrap();
    assert_eq!(&script, expected);
    let again: Script = serde_json::from_str(&serde_json::to_string(expected).unwrap()).unwrap();
    assert_eq!(&again, expected, "through its own JSON");
}

#[test]
fn an_empty_script_is_a_script() {
    check("{}", &Script::new());
}

#[test]
fn scripts_are_read_from_json() {
    check(
        r#"{"sources": {"a": {"own_port": true, "calls": [
            {"status": 429, "headers": [["retry-after", "3"]], "body": {"error": {"kind": "rate_limit_exceeded"}}},
            {"body": {"chat": {"words": 3, "insert": [{"before": 1, "frame": "data: {bro"}]}},
             "delay_per_chunk_ms": 20, "fault": {"after": {"frames": 2}, "then": "reset"}}
        ]}}}"#,
        &Script::new().source(
            "a",
            Source::default()
                .on_own_port()
                .then(Reply::error(429, "rate_limit_exceeded").header("retry-after", "3"))
                .then(
                    Reply::chat(Chat::words(3).insert(1, "data: {bro"))
                        .delay_per_chunk(20)
                        .fault(After::Frames(2), Then::Reset),
                ),
        ),
    );
}

#[test]
fn every_body_has_a_json_form() {
    let bodies = [
        Reply::html(502),
        Reply::empty(204),
        Reply::redirect(307, "http://elsewhere/"),
        Reply::wire("SSH-2.0-OpenSSH\r\n"),
        Reply::frames(["data: 1"]).chunking(Chunking::SplitUtf8).framing(Framing::Close),
        Reply::json(200, serde_json::json!({"error": {"message": "x"}})).gzip().drip(1, 2),
        Reply::chat(Chat::calling("f", "{}")).fault(After::Request, Then::Stall { ms: 5 }),
        Reply { body: Body::Bytes { content_type: "x/y".into(), bytes: vec![0, 255] }, ..Reply::default() },
    ];
    for reply in bodies {
        let json = serde_json::to_string(&reply).unwrap();
        assert_eq!(serde_json::from_str::<Reply>(&json).unwrap(), reply, "{json}");
    }
}

#[test]
fn a_misspelt_setting_is_refused() {
    assert!(serde_json::from_str::<Script>(r#"{"sources": {"a": {"call": []}}}"#).is_err());
    assert!(serde_json::from_str::<Reply>(r#"{"delay_ms": 3}"#).is_err());
}
