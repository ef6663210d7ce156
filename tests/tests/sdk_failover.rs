//! OpenAI's Python and Node SDKs against three replicas, while one channel answers 401, another 500, and another refuses
//! connections: every call succeeds, and the history of each names every attempt, its verdict and why the next source
//! was chosen, in the tables and in the log alike.

#![expect(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used, reason = "a suite fails by panicking")]

use std::collections::BTreeMap;

use serde_json::{Value, json};
use waybill_testkit::upstream::{Chat, Reply, Source};
use waybill_testkit::{Attempt, Story, refusing_url, sdk, source_text};
use waybill_tests::{Bench, channel_entry};

const KINDS: [&str; 4] = ["chat", "stream", "tools", "tools_stream"];
const SAID: &str = "Regen in Zürich, 7 °C – mitnehmen: ☂.";

/// One request as an SDK saw it.
struct Told {
    request: String,
    step: u64,
    case: Value,
}

async fn run(sdk: &str, bench: &Bench, cases: &[Value]) -> Vec<Told> {
    let cases = Value::from(cases.to_vec()).to_string();
    let env = [("WB_KEY", bench.key.as_str()), ("WB_CASES", cases.as_str())];
    let printed = match sdk {
        "python" => sdk::python("chat.py", &env).await,
        _ => sdk::node("chat.cjs", &env).await,
    };
    let told = printed.lines().map(|line| {
        let case: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let finish = case["finish"].as_str().unwrap_or_default().to_owned();
        let first_of_tools = case["kind"].as_str().unwrap().starts_with("tools") && case["step"] == 1;
        if first_of_tools {
            assert_eq!(finish, "tool_calls", "{case}");
            assert_eq!(case["calls"], json!([["get_weather", "{\"city\": \"Zürich\"}"]]), "{case}");
        } else {
            assert_eq!((finish.as_str(), case["text"].as_str()), ("stop", Some(SAID)), "{case}");
        }
        Told { request: case["request"].as_str().unwrap().to_owned(), step: case["step"].as_u64().unwrap(), case }
    });
    told.collect()
}

/// A bench where each of `models` has a channel of its own that answers 401, before the three that all share.
async fn bench(models: &BTreeMap<String, bool>) -> Bench {
    let bench = Bench::of(3).await;
    let named: Vec<&str> = models.keys().map(String::as_str).collect();
    bench.upstream.set_source("five-hundred", Source::default().then(Reply::error(500, "server_error")));
    bench.upstream.set_source("plain", Source::default().saying(SAID));
    let tools =
        Reply::chat(Chat { text: Some(SAID.into()), ..Chat::calling("get_weather", "{\"city\": \"Zürich\"}") });
    bench.upstream.set_source("tools", Source::default().then(tools));
    let mut channels = Vec::new();
    for model in &named {
        let name = format!("unauthorised-{model}");
        bench.upstream.set_source(&name, Source::default().with_key("another key than the channel's"));
        channels.push(channel_entry(&name, &bench.upstream.base_url(&name), &[model], 40));
    }
    channels.push(channel_entry("five-hundred", &bench.upstream.base_url("five-hundred"), &named, 30));
    channels.push(channel_entry("refusing", &refusing_url(), &named, 20));
    for (name, wants_tools) in [("plain", false), ("tools", true)] {
        let models: Vec<&str> =
            models.iter().filter(|(_, tools)| **tools == wants_tools).map(|(m, _)| m.as_str()).collect();
        channels.push(channel_entry(name, &bench.upstream.base_url(name), &models, 10));
    }
    bench.apply(json!({"channels": channels})).await;
    bench
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_is_served_and_every_failure_is_told() {
    // A model, and so an unauthorised channel, for each call: that channel is disabled by its first 401.
    let mut models = BTreeMap::new();
    let mut cases: BTreeMap<&str, Vec<(usize, String, &str)>> = BTreeMap::new();
    for sdk in ["python", "node"] {
        for proxy in 1..=3 {
            for kind in KINDS {
                let model = format!("{sdk}-{proxy}-{kind}");
                models.insert(model.clone(), kind.starts_with("tools"));
                cases.entry(sdk).or_default().push((proxy, model, kind));
            }
        }
    }
    let bench = bench(&models).await;
    // The other two shall fail at every call, so no breaker opens here.
    let never = json!({"min_outcomes": 0, "consecutive_fails": 0});
    bench.admin().policy(json!({"source_breaker": never, "model_breaker": never})).await;
    bench.configured().await;

    let mut told = Vec::new();
    for (sdk, cases) in &cases {
        let case = |(proxy, model, kind): &(usize, String, &str)| json!({"base": bench.fleet.proxy(*proxy), "model": model, "kind": kind});
        told.extend(run(sdk, &bench, &cases.iter().map(case).collect::<Vec<_>>()).await);
    }
    // Two requests for each case with tools.
    assert_eq!(told.len(), 2 * 3 * (2 + 2 * 2));

    let mut stories = Vec::new();
    for told in &told {
        let story = bench.admin().history(&told.request).await;
        check_story(told, &story);
        stories.push(story);
    }
    let replicas: Vec<&str> = stories.iter().map(|story| story["request"]["replica"].as_str().unwrap()).collect();
    for replica in ["proxy-1", "proxy-2", "proxy-3"] {
        assert!(replicas.contains(&replica), "{replica} served nothing: {replicas:?}");
    }
    check_log(&bench, &stories).await;
    bench.fleet.stop().await;
}

/// The whole way of a request is in its history.
fn check_story(told: &Told, story: &Story) {
    let model = told.case["model"].as_str().unwrap();
    let attempt = |source: &str, why: &str, kind: &str, rule: &str, next: &str| Attempt {
        source: source.to_owned(),
        why: why.to_owned(),
        kind: kind.to_owned(),
        rule: rule.to_owned(),
        next: next.to_owned(),
    };
    let unauthorised = format!("unauthorised-{model}");
    let last = if told.case["kind"].as_str().unwrap().starts_with("tools") { "tools" } else { "plain" };
    let mut expected = Vec::new();
    let first = if told.step == 1 {
        expected.push(attempt(&unauthorised, "first", "auth_invalid", "code/auth", "elsewhere"));
        "fail_over"
    } else {
        // The first step has disabled that channel; the table says so.
        let table = story["selection_table"]["detail"].to_string() + &story["selection_table"].to_string();
        assert!(table.contains("\"disabled\""), "why {unauthorised} wasn't asked: {:#}", **story);
        "first"
    };
    expected.push(attempt("five-hundred", first, "server_error", "code/server", "elsewhere"));
    expected.push(attempt("refusing", "fail_over", "network", "transport/no_connection", "elsewhere"));
    expected.push(attempt(last, "fail_over", "success", "local/success", ""));
    assert_eq!(story.attempts(), expected, "{:#}", **story);
    assert_eq!((story.state(), story.status(), story.served_by().as_str()), ("succeeded", 200, last), "{:#}", **story);
    // In words, too: each attempt begins and ends, each source is judged, and all of it has its place in the log.
    let lines = story.lines();
    assert_eq!(lines.len(), 2 + 3 * expected.len(), "{lines:#?}");
    let positions = story["lines"].as_array().unwrap().iter().filter(|line| line["position"].is_string()).count();
    assert_eq!(positions, lines.len(), "{:#}", story["lines"]);
}

/// What the log holds of a request is what the tables hold.
async fn check_log(bench: &Bench, stories: &[Story]) {
    let mut of_request: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for event in bench.fleet.events().await {
        if let Some(request) = event["request"].as_str() {
            of_request.entry(request.to_owned()).or_default().push(event);
        }
    }
    for story in stories {
        let request = story["request"]["request_id"].as_str().unwrap();
        let events = &of_request[request];
        let of_type = |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
        let rows = story["attempts"].as_array().unwrap();
        let (started, finished) = (of_type("attempt_started"), of_type("attempt_finished"));
        assert_eq!((started.len(), finished.len()), (rows.len(), rows.len()), "{events:#?}");
        for ((started, finished), row) in started.iter().zip(&finished).zip(rows) {
            assert_eq!(source_text(&started["source"]), source_text(&row["source"]));
            assert_eq!(started["position"], row["started_position"]);
            assert_eq!(finished["position"], row["finished_position"]);
            assert_eq!(started["data"]["why"], row["why"]);
            for field in ["kind", "rule", "status", "took_ms", "sent", "maybe_billed", "next"] {
                assert_eq!(finished["data"][field], row[field], "{field} of {finished:#} and {row:#}");
            }
        }
        // One outcome for each source asked, and one beginning and end of the request.
        assert_eq!(of_type("source_outcome").len(), rows.len(), "{events:#?}");
        let (admitted, ended) = (of_type("request_admitted"), of_type("request_finished"));
        assert_eq!((admitted.len(), ended.len()), (1, 1), "{events:#?}");
        assert_eq!(ended[0]["data"]["state"], story["request"]["state"]);
        assert_eq!(ended[0]["position"], story["request"]["finished_position"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_breakers_in_force_the_dead_ones_are_passed_over_and_calls_go_on() {
    let models = BTreeMap::from([("chat-model".to_owned(), false), ("tool-model".to_owned(), true)]);
    let bench = bench(&models).await;
    bench.configured().await;
    let mut cases = Vec::new();
    for round in 0..4 {
        for (index, kind) in KINDS.iter().enumerate() {
            let model = if kind.starts_with("tools") { "tool-model" } else { "chat-model" };
            let base = bench.fleet.proxy((round + index) % 3 + 1);
            cases.push(json!({"base": base, "model": model, "kind": kind}));
        }
    }
    let (python, node) = tokio::join!(run("python", &bench, &cases), run("node", &bench, &cases));
    let mut asked: BTreeMap<String, usize> = BTreeMap::new();
    let mut last = None;
    for told in python.iter().chain(&node) {
        let story = bench.admin().history(&told.request).await;
        assert_eq!(story.state(), "succeeded", "{:#}", *story);
        for source in story.asked() {
            *asked.entry(source).or_default() += 1;
        }
        last = Some(story);
    }
    // All three failed for somebody, and none of them went on being asked by all.
    let requests = python.len() + node.len();
    for dead in ["five-hundred", "refusing", "unauthorised-chat-model"] {
        let times = asked.get(dead).copied().unwrap_or_default();
        assert!((1..requests).contains(&times), "{dead} was asked {times} times by {requests} requests: {asked:?}");
    }
    let last = last.unwrap();
    let table = last["selection_table"].to_string();
    assert!(table.contains("disabled") && table.contains("breaker_open"), "{table}");
    bench.fleet.stop().await;
}
