//! Reports on streams: what commits, what is a cut, what ends them, and who is told when somebody leaves.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use waybill_testkit::upstream::{After, Chat, Chunking, Framing, Outcome, Reply, Source, Then, Usage};
use waybill_testkit::{until, wait_until};

use super::Script;
use super::replies::{
    always, bad_key, done, error, fault, ill, piece, role, slow_down, stop, stream, stream_of, turns, well,
};
use super::script::{ask, script};
use super::stage::{SOON, Stage, brief};

const INTERRUPTED: &str = "stream_interrupted";

pub(super) fn scripts() -> Vec<Script> {
    let all = [before_content(), cuts(), silence(), shapes(), leaving(), usage()];
    all.into_iter().flatten().collect()
}

/// C15, C16: nothing is sent before the first content, so everything before it fails over.
fn before_content() -> Vec<Script> {
    let overloaded = error("overloaded_error", "server_is_overloaded", "try later");
    let empty = "data: {\"choices\":[{\"delta\":{\"content\":\"\"},\"index\":0}]}";
    let pings: Vec<String> = std::iter::repeat_n(": ping".to_owned(), 100).collect();
    let by_b = |kind| ask(1).counted().served_by("b").usage(10, 5).walked(&[("a", kind), ("b", "success")]);
    let with_b = |name, reply| script(name).source("a", 10, always(reply)).source("b", 5, well());
    vec![
        with_b("c15", Reply::frames([fault(&overloaded)]))
            .ask(by_b("overloaded").hides("try later").health("a", "none", "busy").fallback("upstream_5xx"))
            .never_opens("a"),
        // The error is the second source's, and typed by its content; the third serves.
        script("c15-second")
            .source("a", 10, always(ill(500)))
            .source(
                "b",
                7,
                always(Reply::frames([format!("event: error\n{}", fault(&error("x", "invalid_api_key", "k")))])),
            )
            .source("c", 5, well())
            .ask(
                ask(2)
                    .streamed()
                    .served_by("c")
                    .walked(&[("a", "server_error"), ("b", "auth_invalid"), ("c", "success")])
                    .health("b", "none", "none")
                    .fallback("upstream_5xx"),
            )
            .logs("source_disabled", "b", 1),
        with_b("c16", Reply::frames([role(), fault(&overloaded)]).delay_per_chunk(200))
            .ask(by_b("overloaded").hides("try later"))
            .then(|stage| Box::pin(one_role(stage))),
        // All sorts of nothing, and then an orderly end.
        with_b("c16-silent", Reply::frames([": hello".to_owned(), role(), empty.to_owned(), stop(), done()]))
            .ask(by_b("empty_output").health("a", "ok", "fail")),
        // Pings hold no first content off: who only pings is left for another.
        with_b("c16-pings", Reply::frames(pings.into_iter().chain([piece("late")])).delay_per_chunk(50))
            .request(json!({"first_content_ms": 700}))
            .ask(by_b("timeout").health("a", "fail", "fail").fallback("timeout")),
    ]
}

/// Exactly one role chunk, from the source that served.
async fn one_role(stage: &Stage<'_>) {
    let answer = stage.chat(3).streamed().served().await;
    let roles = answer.events().iter().filter(|data| data.contains("\"role\"")).count();
    assert_eq!(roles, 1, "{}", answer.text());
}

/// C18, C19: a cut stream is told as one, and nobody goes on with it.
fn cuts() -> Vec<Script> {
    let hel = || Reply::frames([piece("hel"), piece("lo")]).fault(After::Frames(1), Then::Reset);
    let tool = json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "t", "type": "function",
        "function": {"name": "f", "arguments": "{\"a"}}]}}]});
    let finished = json!({"choices": [{"delta": {}, "finish_reason": "length", "index": 0}]});
    let half = Reply::chat(Chat::words(40)).fault(After::Bytes(150), Then::Cut);
    vec![
        script("c18").source("a", 10, always(hel())).source("b", 5, well()).ask(
            ask(1)
                .streamed()
                .broken("hel", INTERRUPTED)
                .walked(&[("a", "network")])
                .health("a", "fail", "none")
                .maybe_billed(true),
        ),
        // In the second attempt, and with a piece of a tool call as the only content.
        script("c18-second-tool")
            .source("a", 10, always(ill(502)))
            .source("b", 7, always(Reply::frames([format!("data: {tool}")])))
            .source("c", 5, well())
            .ask(
                ask(2)
                    .streamed()
                    .broken("", INTERRUPTED)
                    .says("{\\\"a")
                    .walked(&[("a", "edge_error"), ("b", "network")]),
            ),
        script("c19").source("a", 10, always(Reply::frames([piece("par")]))).ask(
            ask(3)
                .streamed()
                .broken("par", INTERRUPTED)
                .walked(&[("a", "network")])
                .health("a", "fail", "none")
                .maybe_billed(true),
        ),
        // Complete but for its sentinel: it is closed properly, with the reason that it has.
        script("c19-no-sentinel")
            .source("a", 10, always(Reply::frames([piece("all"), format!("data: {finished}")])))
            .ask(ask(1).streamed().answered("all").says("\"length\"").walked(&[("a", "success")])),
        // Not streamed, nothing has gone out yet: another source gives the whole answer.
        script("c19-whole")
            .source("a", 10, always(half))
            .source("b", 5, well())
            .ask(ask(2).served_by("b").walked(&[("a", "network"), ("b", "success")]).health("a", "fail", "none")),
    ]
}

/// C21: a limit on silence, not on the whole.
fn silence() -> Vec<Script> {
    let idle = json!({"idle_ms": 2_500});
    let hangs = Reply::frames([piece("x"), piece("y")]).fault(After::Frames(1), Then::Hang);
    let slow = Reply::chat(Chat::words(10)).delay_per_chunk(400);
    let pings: Vec<String> = std::iter::repeat_n(": ping".to_owned(), 10).collect();
    let pinged: Vec<String> = [piece("x")].into_iter().chain(pings).chain([piece("y"), stop(), done()]).collect();
    vec![
        script("c21").source("a", 10, always(hangs)).request(idle.clone()).then(|stage| Box::pin(silence_ends(stage))),
        script("c21-slow")
            .source("a", 10, always(slow))
            .request(idle.clone())
            .ask(ask(2).streamed().answered("word1 word2 word3 word4 word5 word6 word7 word8 word9 word10")),
        script("c21-pings")
            .source("a", 10, always(Reply::frames(pinged).delay_per_chunk(300)))
            .request(idle)
            .ask(ask(3).streamed().answered("xy")),
    ]
}

async fn silence_ends(stage: &Stage<'_>) {
    let begun = Instant::now();
    let answer = stage.chat(1).streamed().send().await;
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(2_400) && took < Duration::from_secs(30), "after {took:?}");
    let events = answer.events();
    assert_eq!((answer.said().as_str(), events.len()), ("x", 2), "{}", answer.text());
    assert!(events.last().is_some_and(|data| data.contains(INTERRUPTED)), "{}", answer.text());
    stage.freed("a").await;
    let gone = stage.calls("a").first().and_then(waybill_testkit::upstream::Call::client_gone);
    assert!(gone.is_some(), "its connection was closed: {:?}", stage.calls("a"));
    let story = stage.story(&answer).await;
    assert_eq!((story.state(), story.kinds()), ("partial", vec!["timeout".to_owned()]), "{}", brief(&story));
    assert_eq!(
        super::expected::health(stage, &story, "a"),
        [("fail".to_owned(), "fail".to_owned())],
        "{}",
        brief(&story)
    );
}

/// C22, C24: whatever the events are wrapped in, and wherever they are cut.
fn shapes() -> Vec<Script> {
    let comments =
        [": UPSTREAM PROCESSING".to_owned(), ": UPSTREAM PROCESSING".to_owned(), piece("ok"), stop(), done()];
    let usual = format!("{}\n\n{}\n\n{}\n\n", piece("ok"), stop(), done());
    let unnamed = usual.replace("data: ", "data:");
    let named = usual.replace("data: {", "event: chunk\ndata: {");
    let two_lines = usual.replace("\"index\":0", "\ndata: \"index\":0");
    let mut marked = b"\xef\xbb\xbf".to_vec();
    marked.extend_from_slice(usual.as_bytes());
    let counted = || ask(2).counted().answered("ok").usage(10, 5).walked(&[("a", "success")]);
    let of = |name, reply| script(name).source("a", 10, always(reply));
    vec![
        of("c22", Reply::frames(comments).delay_per_chunk(150))
            .ask(counted())
            .then(|stage| Box::pin(content_stops_the_clock(stage))),
        of("c22-crlf", stream(&usual.replace('\n', "\r\n"))).ask(counted()),
        of("c22-no-space", stream(&unnamed)).ask(counted()),
        of("c22-named", stream(&named)).ask(counted()),
        of("c22-two-lines", stream(&two_lines)).ask(counted()),
        of("c22-mark", stream_of(marked)).then(|stage| Box::pin(a_mark_is_no_content(stage))),
        of("c24", stream(&greeting()).chunking(Chunking::SplitUtf8)).then(|stage| Box::pin(bytes_as_they_came(stage))),
        of("c24-everywhere", stream(&greeting())).then(|stage| Box::pin(cut_everywhere(stage))),
    ]
}

async fn content_stops_the_clock(stage: &Stage<'_>) {
    let answer = stage.chat(1).streamed().served().await;
    let story = stage.story(&answer).await;
    let first = story.pointer("/attempts/0/first_content_ms").and_then(Value::as_u64);
    assert!(first >= Some(250), "first content after two comments: {}", brief(&story));
}

async fn a_mark_is_no_content(stage: &Stage<'_>) {
    let answer = stage.chat(1).with("stream_options", json!({"include_usage": true})).streamed().served().await;
    let text = answer.text();
    let unmarked = text.trim_start_matches('\u{feff}').as_bytes().to_vec();
    assert!(text.ends_with("data: [DONE]\n\n") && text.contains("\"ok\""), "{text}");
    assert_eq!(waybill_testkit::sse_data(&unmarked).len(), 3, "{text}");
    let story = stage.story(&answer).await;
    let usage = story.pointer("/request/completion_tokens").and_then(Value::as_u64);
    assert_eq!((story.state(), usage), ("succeeded", Some(5)), "{}", brief(&story));
}

/// Two characters of three bytes and one of four, then the closing sentinel alone.
fn greeting() -> String {
    format!("{}\n\n{}\n\n", piece("你好🌍"), done())
}

async fn bytes_as_they_came(stage: &Stage<'_>) {
    let answer = stage.chat(2).streamed().served().await;
    assert_eq!((answer.text(), answer.said()), (greeting(), "你好🌍".to_owned()));
}

async fn cut_everywhere(stage: &Stage<'_>) {
    for size in 1..=greeting().len() {
        let cut = stream(&greeting()).framing(Framing::Chunked).chunking(Chunking::Bytes(size));
        stage.now("a", always(cut));
        let answer = stage.chat(size % 3 + 1).streamed().served().await;
        assert_eq!(answer.text(), greeting(), "in pieces of {size} bytes");
    }
}

/// C26, C30, C39: whoever leaves is seen to leave, in every phase.
fn leaving() -> Vec<Script> {
    let never = || Reply::default().delay_head(60_000);
    let endless = || Reply::chat(Chat::words(300)).delay_per_chunk(100);
    let short = || Reply::chat(Chat::words(3));
    vec![
        script("c26")
            .source("a", 10, always(never()))
            .source("b", 5, well())
            .then(|stage| Box::pin(leaves_before_content(stage, true)))
            .untouched("a"),
        script("c26-whole")
            .source("a", 10, always(never()))
            .source("b", 5, well())
            .then(|stage| Box::pin(leaves_before_content(stage, false)))
            .untouched("a"),
        // While the only source's hint is waited out: it isn't asked again.
        script("c26-waiting")
            .source("a", 10, turns([slow_down().header("retry-after", "3"), super::replies::ok()]))
            .then(|stage| Box::pin(leaves_while_waiting(stage)))
            .never_opens("a"),
        script("c39")
            .source("a", 10, Source { calls: vec![endless()], ..Source::default() })
            .then(|stage| Box::pin(leave_and_leave(stage, true)))
            .untouched("a"),
        script("c39-whole")
            .source("a", 10, turns(std::iter::repeat_with(never).take(20).chain([short()])))
            .then(|stage| Box::pin(leave_and_leave(stage, false)))
            .untouched("a"),
    ]
}

/// The history of the one request that a client called so, once it has ended; it was cancelled.
async fn cancelled(stage: &Stage<'_>, id: &str) -> waybill_testkit::Story {
    let request = wait_until(SOON, format_args!("{id} has ended"), async || {
        let told = stage.told_of(id).await;
        let ended = told.pointer("/request/finished_position").is_some_and(|at| !at.is_null());
        let id = told.pointer("/request/request_id").and_then(Value::as_str).filter(|_| ended);
        id.map(str::to_owned).ok_or_else(|| told.to_string())
    })
    .await;
    let story = stage.bench.admin().history(&request).await;
    assert_eq!(story.state(), "cancelled", "{}", brief(&story));
    story
}

async fn leaves_before_content(stage: &Stage<'_>, streamed: bool) {
    let id = format!("{}-leaves", stage.script.name);
    let client = stage.raw(1, &id, &stage.body(streamed)).await;
    stage.under_way("a", 1).await;
    client.leave();
    stage.freed("a").await;
    assert_eq!(stage.calls("a").first().and_then(|call| call.outcome()), Some(Outcome::ClientGone));
    let story = cancelled(stage, &id).await;
    assert_eq!(stage.walked(&story), [("a".to_owned(), "client_cancelled".to_owned())], "{}", brief(&story));
    assert_eq!(
        super::expected::health(stage, &story, "a"),
        [("none".to_owned(), "none".to_owned())],
        "{}",
        brief(&story)
    );
    assert!(story.pointer("/outcomes/0/latency_ms").is_none_or(Value::is_null), "{}", brief(&story));
    assert!(stage.calls("b").is_empty(), "{:?}", stage.calls("b"));
}

async fn leaves_while_waiting(stage: &Stage<'_>) {
    let client = stage.raw(2, "c26-waits", &stage.body(true)).await;
    // The end of the first attempt is written when the wait begins.
    wait_until(SOON, "the hint is being waited out", async || {
        let told = stage.told_of("c26-waits").await;
        let kind = told.pointer("/attempts/0/kind").cloned().unwrap_or_default();
        until(kind == "rate_limited", || told.to_string())
    })
    .await;
    client.leave();
    let story = cancelled(stage, "c26-waits").await;
    assert_eq!(stage.walked(&story), [("a".to_owned(), "rate_limited".to_owned())], "{}", brief(&story));
    assert_eq!(stage.calls("a").len(), 1, "it isn't asked for nobody");
}

/// Twenty clients leave, one after the other and at all replicas; the next one is served as if nothing had been.
async fn leave_and_leave(stage: &Stage<'_>, streamed: bool) {
    for n in 0..20 {
        let id = format!("{}-{n}", stage.script.name);
        let mut client = stage.raw(n % 3 + 1, &id, &stage.body(streamed)).await;
        stage.under_way("a", 1).await;
        if streamed {
            client.see("word2").await;
        }
        client.leave();
        stage.under_way("a", 0).await;
    }
    stage.freed("a").await;
    for n in [0, 19] {
        cancelled(stage, &format!("{}-{n}", stage.script.name)).await;
    }
    stage.now("a", well());
    let begun = Instant::now();
    assert_eq!(stage.chat(3).served().await.said(), "from a");
    assert!(begun.elapsed() < SOON, "after {:?}", begun.elapsed());
    assert_eq!(stage.bench.upstream.most_in_flight(&stage.script.channel("a")), 1);
}

/// C29, C30: usage is what the upstream reports, told to those who ask, and never made from an error's text.
fn usage() -> Vec<Script> {
    let reported = Usage { prompt_tokens: 10, completion_tokens: 5, ..Usage::default() };
    let chunk = json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}});
    let told = |end: &str| {
        let usage = json!({"choices": [{"delta": {"content": "ok"}, "index": 0}], "usage": null});
        let stop = json!({"choices": [{"delta": {}, "finish_reason": "stop", "index": 0}]});
        Reply::frames([format!("data: {usage}"), format!("data: {stop}"), format!("data: {chunk}"), end.to_owned()])
    };
    let long = "a very long upstream error text that must never be billed";
    let breaks =
        || Reply::frames([piece("one two three"), fault(&json!({"error": {"message": long}}))]).delay_per_chunk(200);
    let counted_cut = Reply::frames([piece("one"), format!("data: {chunk}"), fault(&error("server_error", "x", long))]);
    let whole = Reply::chat(Chat { usage: Some(reported), ..Chat::saying("ok") });
    vec![
        script("c29")
            .source("a", 10, always(told("data: [DONE]")))
            .ask(ask(1).streamed().answered("ok").usage(10, 5).hides("\"completion_tokens\""))
            .ask(ask(2).counted().answered("ok").usage(10, 5).says("\"completion_tokens\":5")),
        // Not streamed, the usage is a part of the answer for everybody.
        script("c29-whole")
            .source("a", 10, always(whole))
            .ask(ask(3).answered("ok").usage(10, 5).says("\"completion_tokens\":5")),
        script("c30")
            .source("a", 10, always(breaks()))
            .ask(ask(1).streamed().broken("one two three", INTERRUPTED).hides("never be billed").maybe_billed(true))
            .then(|stage| Box::pin(leaves_after_content(stage))),
        // What was reported before the end is kept, although the stream broke off.
        script("c30-reported").source("a", 10, always(counted_cut)).source("b", 5, always(bad_key())).ask(
            ask(3)
                .counted()
                .broken("one", INTERRUPTED)
                .usage(10, 5)
                .walked(&[("a", "server_error")])
                .maybe_billed(true),
        ),
    ]
}

async fn leaves_after_content(stage: &Stage<'_>) {
    stage.now("a", always(Reply::chat(Chat::words(300)).delay_per_chunk(100)));
    let mut client = stage.raw(2, "c30-leaves", &stage.body(true)).await;
    client.see("word2").await;
    client.leave();
    let story = cancelled(stage, "c30-leaves").await;
    let row = |field: &str| story.pointer(&format!("/request/{field}")).cloned().unwrap_or_default();
    assert_eq!((row("status"), row("maybe_billed")), (json!(200), json!(true)), "{}", brief(&story));
    assert!(row("completion_tokens").is_null(), "nothing was reported: {}", brief(&story));
    stage.freed("a").await;
}
