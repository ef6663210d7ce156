//! The bundled failures of chat upstreams, end to end: what the rules say of a recorded failure is what the proxy makes of
//! the same bytes from an upstream, streamed and not. Who is asked next, what the client sees, what is taken out, and
//! what the history keeps.

#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a suite fails by panicking")]

use serde_json::{Value, json};
use waybill_domain::observation::{Ending, Observation};
use waybill_domain::verdict::rule::{Place, RecordedCase};
use waybill_domain::verdict::{Elsewhere, RuleSet, Verdict, classify};
use waybill_event::failure::{BlockVerdict, Strength};
use waybill_testkit::upstream::{After, Body, Fault, Framing, Reply, Source, Then};
use waybill_testkit::{Answer, Story, refusing_url};
use waybill_tests::{Bench, channel_entry};
use waybill_upstream::cases::{BundledCase, bundled};
use waybill_upstream::observe::recorded;

/// Cases that end otherwise on the wire than on paper, and why.
const OTHERWISE: [(&str, &str); 2] = [
    ("net-stream-asked-json-answer", "the proxy can't make a stream of a whole answer: docs/gaps.md"),
    ("net-first-event-timeout", "a limit of time, tested where limits are short"),
];

/// One case as it is played: streamed or not, at a channel and a model of its own.
struct Play {
    case: &'static BundledCase,
    stream: bool,
    name: String,
}

fn plays() -> Vec<Play> {
    let mut plays = Vec::new();
    for (n, case) in bundled().iter().enumerate() {
        let known = OTHERWISE.iter().any(|(id, _)| *id == case.id);
        if case.given.protocol != "openai-chat" || case.given.status.is_none() || known {
            continue;
        }
        let modes: &[bool] = match case.given.place {
            Some(Place::Status) => &[false, true],
            Some(Place::Body200) => &[false],
            Some(Place::SseFirst | Place::SseMid) => &[true],
            Some(Place::Transport) | None => &[],
        };
        for stream in modes {
            let name = format!("c{n}{}", if *stream { "-streamed" } else { "" });
            plays.push(Play { case, stream: *stream, name });
        }
    }
    plays
}

/// The recorded answer, byte for byte but for its length.
fn reply(case: &BundledCase) -> Reply {
    let given = &case.given;
    let header = |name: &str| given.headers.get(name).and_then(Value::as_str);
    let rest = given.headers.iter().filter(|(name, _)| {
        !["content-type", "content-length", "transfer-encoding", "connection"].contains(&name.as_str())
    });
    let headers =
        rest.map(|(name, value)| (name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
    let text = match &given.body {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        tree => tree.to_string(),
    };
    let content_type = header("content-type").unwrap_or("application/json").to_owned();
    let body = if text.is_empty() { Body::Empty } else { Body::Text { content_type, text } };
    // A recorded stream ended where its text ends.
    let framing = matches!(given.place, Some(Place::SseFirst | Place::SseMid)).then_some(Framing::Chunked);
    Reply { status: given.status.unwrap(), headers: headers.collect(), body, framing, ..Reply::default() }
}

fn expected(play: &Play) -> (Verdict, Observation) {
    // Times that are told as a moment count from now on the wire.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let given = RecordedCase { observed_at: i64::try_from(now).unwrap(), ..play.case.given.clone() };
    let seen = recorded(&given);
    (classify(RuleSet::builtin(), &seen), seen)
}

fn block_of(block: Option<&BlockVerdict>) -> String {
    match block {
        None => "nothing".to_owned(),
        Some(BlockVerdict::Disable { recovery }) => format!("disabled until {recovery:?}").to_lowercase(),
        Some(BlockVerdict::Block { strength, model_only, .. }) => {
            let strength = match strength {
                Strength::Soft => "soft",
                Strength::Hint => "hint",
                Strength::Hard => "hard",
            };
            format!("{strength} block of the {}", if *model_only { "model" } else { "source" })
        }
    }
}

/// What of a played case isn't as the rules say.
fn wrong(play: &Play, answer: &Answer, story: &Story) -> Vec<String> {
    let (verdict, seen) = expected(play);
    // A refusal that came as an answer goes to the client as it came: no failure of the attempt.
    if seen.ending == Ending::Success {
        let served = answer.status == 200 && story["attempts"].as_array().is_some_and(|attempts| attempts.len() == 1);
        return if served { Vec::new() } else { vec![format!("not passed on: {}", answer.text())] };
    }
    let mut wrong = Vec::new();
    let mut check = |what: &str, told: String, expected: String| {
        if told != expected {
            wrong.push(format!("{what} is {told}, not {expected}"));
        }
    };
    let attempt = &story["attempts"][0];
    let outcome =
        &story["outcomes"].as_array().and_then(|all| all.iter().find(|o| o["source"] == attempt["source"])).cloned();
    let outcome = outcome.clone().unwrap_or_default();
    check("the kind", attempt["kind"].as_str().unwrap_or("-").to_owned(), verdict.kind.to_string());
    check("the rule", attempt["rule"].as_str().unwrap_or("-").to_owned(), verdict.rule.to_string());
    let block: Option<BlockVerdict> = serde_json::from_value(outcome["block"].clone()).unwrap();
    check("what is taken out", block_of(block.as_ref()), block_of(verdict.block.as_ref()));
    let health = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    check("the source's health", health(&outcome["source_health"]), health(&json!(verdict.source_health)));
    check("the model's health", health(&outcome["model_health"]), health(&json!(verdict.model_health)));
    let asked = story["attempts"].as_array().unwrap().len();
    let last = story["attempts"].as_array().unwrap().last().unwrap()["source"].clone();
    let left = last != attempt["source"];
    if seen.committed {
        check("the status", answer.status.to_string(), "200".to_owned());
        check(
            "whether the stream tells of an error",
            answer.text().contains("\"error\"").to_string(),
            "true".to_owned(),
        );
        check("whether somebody else is asked", left.to_string(), "false".to_owned());
    } else if verdict.retry_elsewhere == Elsewhere::Anyone {
        check("who serves", answer.said(), "from the backup".to_owned());
        check("whether somebody else is asked", left.to_string(), "true".to_owned());
    } else {
        let client = verdict.client.unwrap();
        check("the status", answer.status.to_string(), client.status.to_string());
        check(
            "the type",
            answer.json()["error"]["type"].as_str().unwrap_or("-").to_owned(),
            client.code.kind().to_owned(),
        );
        check("how many are asked", asked.to_string(), "1".to_owned());
    }
    let evidence = &attempt["evidence"];
    check("whether there is evidence", evidence.is_object().to_string(), "true".to_owned());
    let leaks = evidence.to_string().contains("sk-of-");
    check("whether the evidence leaks", leaks.to_string(), "false".to_owned());
    wrong
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_proxy_makes_of_a_failure_what_the_rules_say() {
    let bench = Bench::of(3).await;
    let plays = plays();
    assert!(plays.len() >= 300, "{} plays", plays.len());
    let mut channels = Vec::new();
    for play in &plays {
        bench.upstream.set_source(&play.name, Source::default().then(reply(play.case)));
        let mut entry = channel_entry(&play.name, &bench.upstream.base_url(&play.name), &[&play.name], 10);
        let provider =
            if play.case.given.provider_hint.is_empty() { "generic" } else { &play.case.given.provider_hint };
        entry["provider"] = provider.into();
        channels.push(entry);
    }
    let models: Vec<&str> = plays.iter().map(|play| play.name.as_str()).collect();
    bench.upstream.set_source("backup", Source::default().saying("from the backup"));
    channels.push(channel_entry("backup", &bench.upstream.base_url("backup"), &models, 0));
    bench.apply(json!({ "channels": channels })).await;
    bench.configured().await;

    let mut answers = Vec::new();
    for (n, play) in plays.iter().enumerate() {
        let chat = bench.chat(n % 3 + 1, &play.name);
        answers.push(if play.stream { chat.streamed() } else { chat }.send().await);
    }
    let mut faults = Vec::new();
    for (play, answer) in plays.iter().zip(&answers) {
        let story = bench.admin().history(answer.request()).await;
        let wrong = wrong(play, answer, &story);
        if !wrong.is_empty() {
            faults.push(format!(
                "{} ({}): {}",
                play.case.id,
                if play.stream { "streamed" } else { "whole" },
                wrong.join("; ")
            ));
        }
    }
    assert!(faults.is_empty(), "{} of {} plays:\n{}", faults.len(), plays.len(), faults.join("\n"));
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_fails_is_judged_by_how_far_it_had_come() {
    let bench = Bench::of(1).await;
    let cut = |after, then| Reply { fault: Some(Fault { after, then }), ..Reply::default() };
    let faults = [
        ("reset-before-head", cut(After::Request, Then::Reset), "transport/broken@v1", "network"),
        ("closed-before-head", cut(After::Request, Then::Cut), "transport/broken@v1", "network"),
        ("cut-in-body", cut(After::Bytes(10), Then::Cut), "transport/broken@v1", "network"),
        (
            "no-http",
            Reply { body: Body::Wire("hello\r\n\r\n".to_owned()), ..Reply::default() },
            "transport/not_http@v1",
            "malformed_response",
        ),
    ];
    let elsewhere = [
        ("refused", refusing_url(), "transport/no_connection@v1", "network"),
        ("no-name", "http://nowhere.invalid/v1".to_owned(), "transport/no_connection@v1", "network"),
    ];
    let mut channels = Vec::new();
    let mut models = Vec::new();
    for (name, reply, ..) in &faults {
        bench.upstream.set_source(name, Source::default().then(reply.clone()));
        channels.push(channel_entry(name, &bench.upstream.base_url(name), &[name], 10));
        models.push(*name);
    }
    for (name, url, ..) in &elsewhere {
        channels.push(channel_entry(name, url, &[name], 10));
        models.push(*name);
    }
    bench.upstream.set_source("backup", Source::default().saying("from the backup"));
    channels.push(channel_entry("backup", &bench.upstream.base_url("backup"), &models, 0));
    bench.apply(json!({ "channels": channels })).await;
    bench.configured().await;
    let told = faults.iter().map(|(name, _, rule, kind)| (*name, *rule, *kind));
    let told: Vec<_> = told.chain(elsewhere.iter().map(|(name, _, rule, kind)| (*name, *rule, *kind))).collect();
    for stream in [false, true] {
        for (name, rule, kind) in &told {
            let chat = bench.chat(1, name);
            let answer = if stream { chat.streamed() } else { chat }.served().await;
            assert_eq!(answer.said(), "from the backup", "{name}");
            if stream {
                continue;
            }
            let story = bench.admin().history(answer.request()).await;
            let attempt = &story["attempts"][0];
            let by = attempt["rule"].as_str().unwrap();
            assert!(by.starts_with(rule) && attempt["kind"] == *kind, "{name}: {attempt:#}");
            assert!(attempt["evidence"]["message"].is_string(), "{name}: {attempt:#}");
        }
    }
    bench.fleet.stop().await;
}
