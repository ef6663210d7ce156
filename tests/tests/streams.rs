//! Answers byte for byte: streams and whole bodies that must pass untouched, failures before the first content that must
//! not be seen, cuts that must never look complete, and clients that leave.

use std::io::Read;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use waybill_testkit::upstream::{After, Body, Chat, Chunking, Framing, Reply, Source, Then};
use waybill_testkit::{RawClient, until, wait_until};
use waybill_tests::{Bench, channel_entry};

const STREAM: &str = "text/event-stream; charset=utf-8";

/// A reply of these bytes, cut as `chunking` says.
fn bytes(content_type: &str, text: &str, chunking: Chunking) -> Reply {
    let body = Body::Bytes { content_type: content_type.to_owned(), bytes: text.as_bytes().to_vec() };
    Reply { body, ..Reply::default() }.framing(Framing::Chunked).chunking(chunking)
}

/// A stream with everything that a careless relay would change.
fn odd_stream(end: &str, space: &str) -> String {
    let chunk = |delta: &str, more: &str| {
        format!("data:{space}{{\"choices\":[{{\"index\":0,\"delta\":{delta}}}],  \"id\" : \"x\"{more}}}{end}{end}")
    };
    let mut text = format!(": a comment{end}{end}");
    text += &chunk(r#"{"role":"assistant","content":""}"#, "");
    text += &format!("id: 7{end}retry: 3000{end}");
    text += &chunk(r#"{"content":"Grüße, 世界! 👩‍👩‍👧"}"#, r#","big":123456789012345678901234567890,"f":1.10e+02"#);
    text += &chunk(r#"{"reasoning_content":"hm","unknown":{"z":1,"a":[1,2,{"deep":null}]}}"#, "");
    text += &format!(":{end}{end}");
    text += &chunk(r#"{"content":"\u00e9\ud83d\ude00 \/ end"}"#, r#","model":"model-of-the-upstream""#);
    text +=
        &format!("data:{space}{{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}{end}{end}");
    text += &format!("data:{space}[DONE]{end}{end}");
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_pass_untouched() {
    let bench = Bench::of(1).await;
    let mut cases: Vec<(String, Reply, String)> = Vec::new();
    for (end_name, end) in [("lf", "\n"), ("crlf", "\r\n"), ("cr", "\r")] {
        for (cut_name, chunking) in [
            ("utf8", Chunking::SplitUtf8),
            ("one", Chunking::Bytes(1)),
            ("seven", Chunking::Bytes(7)),
            ("whole", Chunking::Whole),
        ] {
            let space = if cut_name == "seven" { "" } else { " " };
            let text = odd_stream(end, space);
            cases.push((format!("{end_name}-{cut_name}"), bytes(STREAM, &text, chunking), text));
        }
    }
    let whole = "{ \"id\":\"x\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"h\\u00e9 👍\",\
                 \"extra\":12345678901234567890123},\"finish_reason\":\"stop\"}],\n\t\"usage\":{\"prompt_tokens\":3,\
                 \"completion_tokens\":2,\"total_tokens\":5}, \"z\":1, \"a\":2.50 }\n";
    cases.push(("whole-body".to_owned(), bytes("application/json", whole, Chunking::SplitUtf8), whole.to_owned()));
    let channels: Vec<Value> = cases
        .iter()
        .map(|(name, reply, _)| {
            bench.upstream.set_source(name, Source::default().then(reply.clone()));
            channel_entry(name, &bench.upstream.base_url(name), &[name], 0)
        })
        .collect();
    bench.apply(json!({"channels": channels})).await;
    bench.configured().await;
    for (name, _, expected) in &cases {
        let chat = bench.chat(1, name);
        let chat = if name == "whole-body" { chat } else { chat.streamed() };
        let answer = chat.send().await;
        // Of a CRLF cut in two behind the last event, the LF may be left out: nothing comes after it.
        let expected = if name == "crlf-one" { expected.trim_end_matches('\n') } else { expected };
        assert_eq!((answer.status, answer.text()), (200, expected.to_owned()), "{name}");
        let story = bench.admin().history(answer.request()).await;
        assert_eq!(story.state(), "succeeded", "{name}: {:#}", *story);
    }
    let story = bench.admin().history(bench.chat(1, "whole-body").send().await.request()).await;
    let row = &story["request"];
    assert_eq!(
        (&row["usage_from"], &row["prompt_tokens"], &row["completion_tokens"]),
        (&json!("reported"), &json!(3), &json!(2))
    );
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_reach_the_upstream_as_they_were_sent_but_for_the_model() {
    let bench = Bench::of(1).await;
    bench.upstream.set_source("a", Source::default());
    let spec = bench.spec("a").with("models", json!([{"name": "asked", "upstream": "sent/name \"quoted\""}]));
    bench.admin().channel(spec).await;
    bench.configured().await;
    let sent = "{\"z\": 12345678901234567890123, \"messages\" :[ {\"role\":\"user\",\"content\":\"h\\u00e9 \\ud83d\\ude00 \
                {\\\"model\\\":\\\"asked\\\"}\"} ],\n\t\"model\"  :  \"as\\u006bed\", \"metadata\":{\"model\":\"asked\"},\
                \"temperature\":1.50,\"unknown\":[null,{}] }";
    let mut client = RawClient::connect(bench.fleet.proxy(1)).await;
    client.chat(&bench.key, sent.as_bytes()).await;
    let reply = client.reply().await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let call = bench.upstream.calls_of("a").pop().expect("a call");
    let expected = sent.replace("\"as\\u006bed\"", "\"sent/name \\\"quoted\\\"\"");
    assert_eq!(String::from_utf8_lossy(&call.body), expected);
    assert_eq!(reply.header("x-waybill-model"), Some("asked"), "{:?}", reply.headers);
    assert_eq!(serde_json::from_slice::<Value>(&reply.body()).unwrap()["model"], "sent/name \"quoted\"");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_are_forwarded_as_they_come_and_closed_as_they_must() {
    let bench = Bench::of(1).await;
    let hang = Reply::chat(Chat::words(5)).fault(After::Frames(3), Then::Hang);
    bench.channel("hangs", &["hangs"], 0, Source::default().then(hang)).await;
    bench
        .channel(
            "unclosed",
            &["unclosed"],
            0,
            Source::default().then(Reply::chat(Chat { no_done: true, ..Chat::words(3) })),
        )
        .await;
    let usage =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4,\"total_tokens\":13}}\n\n";
    let told = odd_stream("\n", " ").replace("data: [DONE]", &format!("{usage}data: [DONE]"));
    bench.channel("usage", &["usage"], 0, Source::default().then(bytes(STREAM, &told, Chunking::Frames))).await;
    bench.channel("gzip", &["gzip"], 5, Source::default().then(Reply::chat(Chat::words(3)).gzip())).await;
    bench.channel("backup", &["gzip"], 0, Source::default().saying("from the backup")).await;
    bench.configured().await;

    // What has come is forwarded, whatever comes later.
    let mut client = RawClient::connect(bench.fleet.proxy(1)).await;
    client.chat(&bench.key, br#"{"model":"hangs","stream":true,"messages":[{"role":"user","content":"x"}]}"#).await;
    let seen = client.see("word2").await;
    assert!(seen.starts_with("HTTP/1.1 200") && seen.contains("word1") && !seen.contains("word3"), "{seen}");
    assert!(bench.upstream.calls_of("hangs").iter().all(|call| call.ended.is_none()), "it was still under way");
    client.leave();

    // Complete, but for its sentinel.
    let answer = bench.chat(1, "unclosed").streamed().served().await;
    assert_eq!(answer.events().last().map(String::as_str), Some("[DONE]"), "{}", answer.text());
    assert_eq!(answer.said(), "word1 word2 word3");
    assert_eq!(bench.admin().history(answer.request()).await.state(), "succeeded");

    // Usage without choices is for those only who asked for it; it is read either way.
    let asked = bench.chat(1, "usage").streamed().with("stream_options", json!({"include_usage": true})).served().await;
    assert_eq!(asked.text(), told);
    let unasked = bench.chat(1, "usage").streamed().served().await;
    assert_eq!(unasked.text(), told.replace(usage, ""));
    for answer in [asked, unasked] {
        let story = bench.admin().history(answer.request()).await;
        assert_eq!(story["request"]["prompt_tokens"], 9, "{:#}", *story);
    }

    // Compressed although nobody asked for it: a whole answer passes as it is, with its encoding named.
    let answer = bench.chat(1, "gzip").send().await;
    assert_eq!((answer.status, answer.header("content-encoding")), (200, Some("gzip")), "{:?}", answer.headers);
    let mut text = String::new();
    flate2::read::GzDecoder::new(&answer.body[..]).read_to_string(&mut text).expect("a gzip member");
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["choices"][0]["message"]["content"], "word1 word2 word3");
    // A compressed stream can't be followed, so another source answers.
    let answer = bench.chat(1, "gzip").streamed().served().await;
    assert_eq!(answer.said(), "from the backup", "{}", answer.text());
    bench.fleet.stop().await;
}

/// A case of [`failures_before_content_are_not_seen`]: its name, what the first source replies, whether a stream is
/// asked for, and what the failure is called.
type Early = (&'static str, Reply, bool, &'static str);

fn early_failures() -> Vec<Early> {
    let role = r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#;
    let failed = r#"data: {"error":{"message":"boom","type":"server_error","param":null,"code":"server_error"}}"#;
    let finish = r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    let done = "data: [DONE]";
    let text = |content_type: &str, text: &str| Reply {
        body: Body::Text { content_type: content_type.to_owned(), text: text.to_owned() },
        ..Reply::default()
    };
    let error = json!({"error": {"message": "boom", "type": "server_error", "param": null, "code": "server_error"}});
    let empty =
        json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}]});
    vec![
        ("error-first", Reply::frames([failed]), true, "server_error"),
        ("error-after-role", Reply::frames([role, failed]), true, "server_error"),
        ("named-error-event", Reply::frames([role, &format!("event: error\n{failed}")]), true, "server_error"),
        ("role-then-done", Reply::frames([role, done]), true, "empty_output"),
        ("role-then-finish", Reply::frames([role, finish, done]), true, "empty_output"),
        ("role-then-end", Reply::frames([role]), true, "network"),
        ("done-only", Reply::frames([done]), true, "empty_output"),
        ("comments-only", Reply::frames([": one", ": two"]), true, "network"),
        ("broken-event", Reply::frames([role, "data: {broken"]), true, "malformed_response"),
        ("cut-in-headers", Reply::chat(Chat::words(3)).fault(After::Bytes(0), Then::Cut), true, "network"),
        ("reset-after-role", Reply::chat(Chat::words(3)).fault(After::Frames(1), Then::Reset), true, "network"),
        ("html-stream", Reply::html(200), true, "malformed_response"),
        ("empty-stream", Reply::empty(200), true, "malformed_response"),
        ("error-for-stream", Reply::json(200, error.clone()), true, "server_error"),
        ("whole-for-stream", Reply::chat(Chat { stream: Some(false), ..Chat::words(3) }), true, "malformed_response"),
        ("html", Reply::html(200), false, "malformed_response"),
        ("empty", Reply::empty(200), false, "malformed_response"),
        ("null", Reply::json(200, Value::Null), false, "malformed_response"),
        ("error-in-200", Reply::json(200, error), false, "server_error"),
        ("silent", Reply::json(200, empty), false, "empty_output"),
        ("broken-json", text("application/json", "{\"choices\":[{\"mess"), false, "malformed_response"),
        ("banner", text("text/plain", "You have used up your free quota."), false, "malformed_response"),
        ("reset", Reply::chat(Chat::words(3)).fault(After::Bytes(20), Then::Reset), false, "network"),
        ("cut", Reply::chat(Chat::words(3)).fault(After::Bytes(20), Then::Cut), false, "network"),
        ("not-http", Reply::wire("SSH-2.0-OpenSSH_9.9\r\n"), false, "malformed_response"),
        ("html-500", Reply::html(500), false, "edge_error"),
        ("html-502", Reply::html(502), true, "edge_error"),
        ("limited", Reply::error(429, "rate_limit_exceeded"), false, "rate_limited"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_before_content_are_not_seen() {
    let bench = Bench::of(1).await;
    let cases = early_failures();
    let mut channels: Vec<Value> = cases
        .iter()
        .map(|(name, reply, ..)| {
            bench.upstream.set_source(name, Source::default().then(reply.clone()));
            channel_entry(name, &bench.upstream.base_url(name), &[name], 10)
        })
        .collect();
    let models: Vec<&str> = cases.iter().map(|(name, ..)| *name).collect();
    bench.upstream.set_source("backup", Source::default().saying("from the backup"));
    channels.push(channel_entry("backup", &bench.upstream.base_url("backup"), &models, 0));
    bench.apply(json!({"channels": channels})).await;
    bench.configured().await;
    let mut wrong = Vec::new();
    for (name, _, streamed, kind) in &cases {
        let chat = bench.chat(1, name);
        let answer = if *streamed { chat.streamed().send().await } else { chat.send().await };
        let story = bench.admin().history(answer.request()).await;
        let seen = (answer.status, answer.said(), story.asked(), story.kinds());
        let asked = vec![(*name).to_owned(), "backup".to_owned()];
        let expected = (200, "from the backup".to_owned(), asked, vec![(*kind).to_owned(), "success".to_owned()]);
        if seen != expected {
            wrong.push(format!("{name}: {seen:?} instead of {kind}\n{:#}", story["attempts"]));
        }
        assert_eq!(answer.header("x-waybill-attempts"), Some("2"), "{name}: {:?}", answer.headers);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    bench.fleet.stop().await;
}

/// Streams that break after their first content: name, reply, public code of the error that ends them.
fn late_failures() -> Vec<(&'static str, Reply, &'static str)> {
    let words = || Chat::words(6);
    let failed = r#"data: {"error":{"message":"boom","type":"server_error","param":null,"code":"server_error"}}"#;
    vec![
        ("cut", Reply::chat(words()).fault(After::Frames(3), Then::Cut), "stream_interrupted"),
        ("cut-in-an-event", Reply::chat(words()).fault(After::Bytes(900), Then::Cut), "stream_interrupted"),
        ("reset", Reply::chat(words()).fault(After::Frames(3), Then::Reset), "stream_interrupted"),
        ("ends-early", Reply::chat(Chat { no_finish: true, no_done: true, ..words() }), "stream_interrupted"),
        (
            "closes-early",
            {
                let ends = Chat { no_finish: true, no_done: true, ..words() };
                Reply::chat(ends).framing(Framing::Close)
            },
            "stream_interrupted",
        ),
        ("broken-event", Reply::chat(words().insert(4, "data: {\"choices\":[{broken")), "stream_interrupted"),
        ("error-event", Reply::chat(words().insert(4, failed)), "stream_interrupted"),
        ("stalls", Reply::chat(words()).fault(After::Frames(3), Then::Hang), "deadline_exceeded"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_never_looks_complete() {
    let bench = Bench::of(1).await;
    let cases = late_failures();
    let mut channels: Vec<Value> = cases
        .iter()
        .map(|(name, reply, _)| {
            bench.upstream.set_source(name, Source::default().then(reply.clone()));
            channel_entry(name, &bench.upstream.base_url(name), &[name], 10)
        })
        .collect();
    // It would answer, but what the client has can't be taken back.
    let models: Vec<&str> = cases.iter().map(|(name, ..)| *name).collect();
    channels.push(channel_entry("backup", &bench.upstream.base_url("backup"), &models, 0));
    bench.apply(json!({"channels": channels})).await;
    bench.configured().await;
    for (name, _, code) in &cases {
        let chat = bench.chat(1, name).streamed();
        // Nothing is sent any more, so the request's own deadline has to end it.
        let chat = if *name == "stalls" { chat.header("x-waybill-deadline-ms", "1500") } else { chat };
        let answer = chat.send().await;
        let text = answer.text();
        assert_eq!(answer.status, 200, "{name}: {text}");
        assert!(text.contains("word1") && !text.contains("[DONE]") && !text.contains("\"stop\""), "{name}: {text}");
        let events = answer.events();
        let read =
            |event: &String| serde_json::from_str::<Value>(event).unwrap_or_else(|e| panic!("{name}: {e}: {event}"));
        let events: Vec<Value> = events.iter().map(read).collect();
        let error = &events.last().expect("events")["error"];
        assert_eq!(error["code"], *code, "{name}: {text}");
        assert!(error["message"].is_string() && error["type"].is_string(), "{name}: {text}");
        assert!(!text.contains("boom") && !text.contains("{broken"), "{name}: {text}");
        assert!(text.ends_with("\n\n"), "{name}: {text:?}");
        let story = bench.admin().history(answer.request()).await;
        assert_eq!(
            (story.state(), story.status(), story.asked()),
            ("partial", 200, vec![(*name).to_owned()]),
            "{:#}",
            *story
        );
        assert_eq!(story["request"]["error"], *code, "{:#}", *story);
    }
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_ends_the_upstreams_work() {
    let bench = Bench::of(1).await;
    let slow = || Reply::chat(Chat::words(3)).delay_head(30_000);
    let hangs = Reply::chat(Chat::words(6)).fault(After::Frames(3), Then::Hang);
    bench.channel("slow", &["whole", "before-headers"], 0, Source::default().then(slow())).await;
    bench.channel("hangs", &["mid-stream"], 0, Source::default().then(hangs)).await;
    bench.channel("fails", &["second-attempt"], 10, Source::default().then(Reply::error(500, "server_error"))).await;
    bench.channel("then-slow", &["second-attempt"], 0, Source::default().then(slow())).await;
    bench.configured().await;
    let cases = [
        ("whole", "slow", false),
        ("before-headers", "slow", true),
        ("mid-stream", "hangs", true),
        ("second-attempt", "then-slow", false),
    ];
    for (model, source, streamed) in cases {
        bench.upstream.forget_calls();
        let body =
            json!({"model": model, "stream": streamed, "messages": [{"role": "user", "content": "x"}]}).to_string();
        let (bearer, id) = (format!("authorization: Bearer {}", bench.key), format!("x-client-request-id: {model}"));
        let mut client = RawClient::connect(bench.fleet.proxy(1)).await;
        client.request("POST", "/v1/chat/completions", &[&bearer, &id], body.as_bytes()).await;
        wait_until(Duration::from_secs(10), format_args!("{source} is asked"), async || {
            until(bench.upstream.in_flight(source) == 1, || format!("{:?}", bench.upstream.calls()))
        })
        .await;
        if model == "mid-stream" {
            client.see("word1").await;
        }
        let left = Instant::now();
        client.leave();
        let gone =
            wait_until(Duration::from_secs(5), format_args!("{source} sees that {model} has left"), async || {
                let calls = bench.upstream.calls_of(source);
                calls.last().and_then(|call| call.client_gone()).ok_or_else(|| format!("{calls:?}"))
            })
            .await;
        let took = gone.saturating_duration_since(left);
        assert!(took < Duration::from_secs(1), "{model}: the upstream learnt it after {took:?}");
        let story = bench.story_of_client_id(model).await;
        let status = if model == "mid-stream" { 200 } else { 499 };
        assert_eq!((story.state(), story.status()), ("cancelled", status), "{model}: {:#}", *story);
        // A client that leaves says nothing about the source.
        let source = story["outcomes"].as_array().unwrap().iter().find(|o| o["kind"] == "client_cancelled").cloned();
        assert!(source.is_none_or(|outcome| outcome["source_health"] == "none"), "{model}: {:#}", *story);
    }
    bench.fleet.stop().await;
}
