//! Reports on the fleet itself: replicas that start late, die or are stopped, a database that is away, folders that are
//! killed. They share a fleet of their own and run one after the other, since they do things to its processes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use waybill_projector::read_models::verify;
use waybill_read_model::Projection;
use waybill_testkit::upstream::{Chat as Words, Reply, Source};
use waybill_testkit::{Answer, Asked, Chat, FleetOptions, Front, Load, RawClient, Saw, Story, until, wait_until};

use super::replies::{always, bad_key, ill, ok, slow_down, turns, well};
use super::stage::brief;
use crate::Bench;

/// How long a fleet may take to be itself again on a busy machine.
const RECOVERED: Duration = Duration::from_secs(60);
/// Time open requests get at a stop.
pub const GRACE: Duration = Duration::from_secs(8);

/// The fleet that these reports want.
#[must_use]
pub fn options() -> FleetOptions {
    FleetOptions {
        projectors: 2,
        probe_interval: Duration::from_secs(3_600),
        drain_delay: Duration::from_millis(300),
        grace: GRACE,
        ..FleetOptions::default()
    }
}

/// A report's channels; each says `from NAME`, and their names begin with the report's.
async fn channels(bench: &Bench, report: &str, sources: Vec<(&str, i32, u32, Source)>) -> BTreeMap<String, String> {
    let model = format!("{report}/m");
    let (mut entries, mut own) = (Vec::new(), Vec::new());
    for (name, priority, weight, source) in sources {
        let full = format!("{report}-{name}");
        let text = source.text.clone().unwrap_or_else(|| format!("from {name}"));
        bench.upstream.set_source(&full, Source { text: Some(text), ..source });
        let mut entry = crate::channel_entry(&full, &bench.upstream.base_url(&full), &[&model], priority);
        if let Some(fields) = entry.as_object_mut() {
            fields.insert("weight".to_owned(), weight.into());
        }
        entries.push(entry);
        own.push((name.to_owned(), full));
    }
    bench.apply(json!({"channels": entries})).await;
    bench.configured().await;
    let listed = super::sources(bench).await;
    own.into_iter().filter_map(|(name, full)| Some((name, listed.get(&full)?.clone()))).collect()
}

fn chat(bench: &Bench, proxy: usize, report: &str) -> Chat {
    bench.chat(proxy, &format!("{report}/m"))
}

async fn everywhere(bench: &Bench, source: &str, what: &str, holds: impl Fn(&Value) -> bool) {
    for number in 1..=bench.fleet.proxies().len() {
        let proxy = format!("proxy-{number}");
        wait_until(RECOVERED, format_args!("{proxy} has {source} {what}"), async || {
            let state = bench.fleet.source_state(&proxy, source).await;
            until(holds(&state), || state.to_string())
        })
        .await;
    }
}

/// C46: a replica that starts after a block knows it before it serves: of a dead key, and of a hint.
pub async fn late_replicas_know_what_is_blocked(bench: &Bench) {
    let limited = turns([slow_down().header("retry-after", "3600"), ok()]);
    let sources = vec![("dead", 10, 1, always(bad_key())), ("limited", 7, 1, limited), ("well", 5, 1, well())];
    let channels = channels(bench, "c46-late", sources).await;
    let served = async |proxy: usize, asked: &[&str]| {
        let answer = chat(bench, proxy, "c46-late").served().await;
        assert_eq!(answer.said(), "from well", "proxy-{proxy}");
        let story = bench.admin().history(answer.request()).await;
        let asked: Vec<String> = asked.iter().map(|name| format!("c46-late-{name}")).collect();
        assert_eq!(story.asked(), asked, "{}", brief(&story));
    };
    served(1, &["dead", "limited", "well"]).await;
    everywhere(bench, &channels["dead"], "disabled", |state| state["disabled"] == true).await;
    for (number, stop) in [(3, true), (2, false)] {
        let name = format!("proxy-{number}");
        let before = if stop { bench.fleet.terminate(&name) } else { bench.fleet.kill9(&name) };
        bench.fleet.restarted(&name, before).await;
        for _ in 0..3 {
            served(number, &["well"]).await;
        }
    }
    for name in ["dead", "limited"] {
        assert_eq!(bench.upstream.calls_of(&format!("c46-late-{name}")).len(), 1, "{name} was asked once");
    }
}

/// C66: shares follow the weights also at a replica that has just started, and at one whose weights were changed.
pub async fn shares_survive_a_restart(bench: &Bench) {
    let even = json!({"bands": {"latency_ms": [600_000, 700_000, 800_000]}});
    channels(bench, "c66-restart", vec![("a", 10, 1, well()), ("b", 10, 3, well())]).await;
    let scopes = ["a", "b"].map(|name| json!({"scope": format!("channel:c66-restart-{name}"), "selector": even}));
    bench.apply(json!({"policies": scopes})).await;
    let before = bench.fleet.kill9("proxy-1");
    bench.fleet.restarted("proxy-1", before).await;
    bench.configured().await;
    for (a, b) in [(10, 30), (20, 20)] {
        let mut shares: BTreeMap<String, usize> = BTreeMap::new();
        for _ in 0..40 {
            *shares.entry(chat(bench, 1, "c66-restart").served().await.said()).or_default() += 1;
        }
        assert_eq!(shares, BTreeMap::from([("from a".to_owned(), a), ("from b".to_owned(), b)]));
        bench.admin().edit_channel("c66-restart-b", json!({"weight": 1})).await;
        bench.configured().await;
    }
}

/// C90: after the fact the record says what was asked, why it went on, and how it ended; also of a request whose replica
/// was killed, and of one that nobody was asked for.
pub async fn histories_tell_everything(bench: &Bench) {
    let slowly = Reply::chat(Words::words(100)).delay_per_chunk(100);
    channels(bench, "c90", vec![("a", 10, 1, turns([ill(503), ill(503)])), ("b", 5, 1, well())]).await;
    let counted = chat(bench, 2, "c90").streamed().with("stream_options", json!({"include_usage": true}));
    let answer = counted.served().await;
    let story = bench.admin().history(answer.request()).await;
    assert_eq!((story.asked(), story.kinds()), two("c90", "server_error"), "{}", brief(&story));
    let row = |field: &str| story.pointer(&format!("/request/{field}")).cloned().unwrap_or_default();
    assert_eq!((row("prompt_tokens"), row("completion_tokens")), (json!(10), json!(5)), "{}", brief(&story));
    assert_eq!((row("fallback"), row("replica")), (json!("upstream_5xx"), json!("proxy-2")), "{}", brief(&story));
    assert!(row("config").is_u64() || row("config").is_string(), "{}", brief(&story));
    assert!(story["selection_table"].to_string().contains("factors"), "{}", brief(&story));
    assert!(row("first_content_ms").is_u64(), "{}", brief(&story));

    bench.upstream.set_source("c90-b", Source { text: Some("from b".to_owned()), ..always(slowly) });
    let mut client = RawClient::connect(bench.fleet.proxy(2)).await;
    let body = json!({"model": "c90/m", "stream": true, "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let bearer = format!("authorization: Bearer {}", bench.key);
    let headers = [bearer.as_str(), "x-client-request-id: c90-lost", "content-type: application/json"];
    client.request("POST", "/v1/chat/completions", &headers, body.as_bytes()).await;
    client.see("word2").await;
    let before = bench.fleet.kill9("proxy-2");
    bench.fleet.restarted("proxy-2", before).await;
    let lost = wait_until(RECOVERED, "the request is told as lost", async || {
        let path = "/requests?client_request_id=c90-lost";
        let found = bench.admin().ask(reqwest::Method::GET, path, None).await.json();
        let row = found["requests"][0].clone();
        let id = row["request_id"].as_str().filter(|_| row["state"] == "owner_lost");
        id.map(str::to_owned).ok_or_else(|| found.to_string())
    })
    .await;
    let told = bench.admin().get(&format!("/requests/{lost}")).await;
    let attempts = told["attempts"].as_array().cloned().unwrap_or_default();
    assert_eq!(attempts.len(), 2, "its attempts are known: {told:#}");
    assert_eq!((&attempts[0]["kind"], &attempts[1]["kind"]), (&json!("server_error"), &Value::Null), "{told:#}");

    // Nobody was asked, and the record says why.
    for name in ["c90-a", "c90-b"] {
        bench.admin().post(&format!("/channels/{name}/disable"), json!({})).await;
    }
    bench.configured().await;
    let answer = chat(bench, 3, "c90").send().await;
    assert_eq!((answer.status, answer.code().as_deref()), (503, Some("no_source_available")), "{}", answer.text());
    let story = bench.admin().history(answer.request()).await;
    assert_eq!(story.asked(), Vec::<String>::new(), "{}", brief(&story));
    assert!(story.to_string().contains("\"disabled\""), "{}", brief(&story));
    for number in 1..=3 {
        let metrics = bench.fleet.metrics(&format!("proxy-{number}")).await;
        assert!(
            !metrics.contains("c90/m") && !metrics.contains("channel:"),
            "no label names a model or a source: {metrics}"
        );
    }
}

fn two(report: &str, first: &str) -> (Vec<String>, Vec<String>) {
    let names = ["a", "b"].map(|name| format!("{report}-{name}"));
    (names.to_vec(), vec![first.to_owned(), "success".to_owned()])
}

/// C86: a replica that is stopped finishes what is open, within its grace period, and nobody is refused meanwhile.
pub async fn stops_drain(bench: &Bench) {
    let two_seconds = Reply::chat(Words::words(20)).delay_per_chunk(100);
    let minutes = Reply::chat(Words::words(3_000)).delay_per_chunk(100);
    channels(bench, "c86", vec![("a", 10, 1, always(two_seconds))]).await;
    channels(bench, "c86-grace", vec![("a", 10, 1, always(minutes))]).await;
    channels(bench, "c86-whole", vec![("a", 10, 1, always(Reply::default().delay_head(60_000)))]).await;
    channels(bench, "c86-load", vec![("a", 10, 1, well())]).await;
    let front = Arc::new(Front::of(&bench.fleet));
    let mix = |n: usize| Asked {
        name: format!("c86-{n}"),
        model: "c86-load/m".to_owned(),
        stream: n.is_multiple_of(2),
        patience: None,
    };
    let load = Load::start(Arc::clone(&front), &bench.key, 20, mix);
    let (kept, cut) = (chat(bench, 2, "c86").streamed(), chat(bench, 3, "c86-grace").streamed());
    let whole = chat(bench, 3, "c86-whole");
    let ((kept, _), (cut, took), (whole, _), ()) = tokio::join!(timed(&kept), timed(&cut), timed(&whole), async {
        for (number, sources) in [(2, &["c86-a"][..]), (3, &["c86-grace-a", "c86-whole-a"])] {
            let name = format!("proxy-{number}");
            wait_until(RECOVERED, format_args!("what {name} shall end is under way"), async || {
                until(sources.iter().all(|source| bench.upstream.in_flight(source) == 1), || "not yet")
            })
            .await;
            let before = bench.fleet.terminate(&name);
            wait_until(RECOVERED, format_args!("{name} isn't ready"), async || {
                let readiness = bench.fleet.readiness(&name).await;
                until(readiness.as_ref().is_none_or(|(status, _)| *status == 503), || format!("{readiness:?}"))
            })
            .await;
            bench.fleet.restarted(&name, before).await;
        }
    });
    // The one that fits the grace period is whole; the other is told as cut, not left hanging and not ended as if it were whole.
    let said: Vec<String> = (1..=20).map(|n| format!("word{n}")).collect();
    assert_eq!((kept.said(), kept.events().last().map(String::as_str)), (said.join(" "), Some("[DONE]")));
    let story = bench.admin().history(kept.request()).await;
    assert_eq!(story.state(), "succeeded", "{}", brief(&story));
    assert!(cut.text().contains("\"error\"") && !cut.text().contains("[DONE]"), "{}", tail(&cut));
    assert!(took >= GRACE && took < RECOVERED, "after {took:?}");
    let story = bench.admin().history(cut.request()).await;
    assert_eq!((story.state(), story.kinds()), ("partial", vec!["local_failure".to_owned()]), "{}", brief(&story));
    assert_eq!((whole.status, whole.code().as_deref()), (503, Some("gateway_not_ready")), "{}", whole.text());

    let all = load.stop().await;
    let refused: Vec<_> = all.iter().filter(|seen| !matches!(seen.saw, Saw::Whole)).collect();
    assert!(all.len() > 50 && refused.is_empty(), "{} of {}: {refused:?}", refused.len(), all.len());
    // The exit code tells whether anything was left behind.
    for (name, status) in [("proxy-2", "exit status: 0"), ("proxy-3", "exit status: 3")] {
        let ends = bench.fleet.ends_of(name);
        assert_eq!(ends.last().map(String::as_str), Some(status), "{name}: {ends:?}");
    }
    let drained: BTreeSet<String> = bench.fleet.events().await.iter().filter_map(drained_by).collect();
    assert!(drained.contains("proxy-2") && drained.contains("proxy-3"), "{drained:?}");
}

fn drained_by(event: &Value) -> Option<String> {
    let is = event.get("type")?.as_str()? == "outbox_drained";
    is.then(|| event.get("producer")?.as_str().map(str::to_owned))?
}

fn tail(answer: &Answer) -> String {
    let text = answer.text();
    let from = text.len().saturating_sub(600);
    text.get(from..).unwrap_or(&text).to_owned()
}

async fn timed(chat: &Chat) -> (Answer, Duration) {
    let begun = Instant::now();
    (chat.send().await, begun.elapsed())
}

/// C83: without a database clients are served, by replicas that start meanwhile, too; nothing of it is lost.
pub async fn nobody_waits_for_the_database(bench: &Bench) {
    channels(bench, "c83", vec![("a", 10, 1, well())]).await;
    let mut served = Vec::new();
    for dead in [false, true] {
        let before = bench.fleet.process("postgres").pid;
        if dead {
            bench.fleet.kill9("postgres");
        } else {
            bench.fleet.sigstop("postgres");
            let cold = bench.fleet.kill9("proxy-3");
            bench.fleet.restarted("proxy-3", cold).await;
        }
        for n in 0..12 {
            let answer = chat(bench, n % 3 + 1, "c83").with("stream", n % 2 == 0).served().await;
            served.push(answer.request().to_owned());
        }
        let stranger = Chat::new(bench.fleet.http(), bench.fleet.proxy(3), "wb-key-nobody", "c83/m").send().await;
        assert_eq!(
            (stranger.status, stranger.code().as_deref()),
            (401, Some("invalid_api_key")),
            "{}",
            stranger.text()
        );
        for number in 1..=3 {
            let readiness = bench.fleet.readiness(&format!("proxy-{number}")).await;
            assert!(readiness.as_ref().is_some_and(|(status, _)| *status == 200), "{readiness:?}");
        }
        if dead {
            wait_until(RECOVERED, "Postgres is started again", async || {
                let now = bench.fleet.process("postgres").pid;
                until(now != before, || now.to_string())
            })
            .await;
        } else {
            bench.fleet.sigcont("postgres");
        }
    }
    readable(bench).await;
    for request in &served {
        let story: Story = bench.admin().history(request).await;
        assert_eq!(story.state(), "succeeded", "{}", brief(&story));
    }
    let found = bench.admin().requests("model=c83%2Fm&limit=500").await;
    assert_eq!(found.len(), served.len(), "each request once");
}

async fn readable(bench: &Bench) {
    wait_until(RECOVERED, "the tables can be asked", async || {
        let reply = bench.admin().ask(reqwest::Method::GET, "/requests?limit=1", None).await;
        until(reply.status == 200, || format!("{} {}", reply.status, reply.text))
    })
    .await;
}

/// C84, and what C34 says of usage: whatever dies or overlaps, each request counts once, in the tables and anew.
pub async fn numbers_are_neither_doubled_nor_lost(bench: &Bench) {
    let count = 120;
    channels(bench, "c84", vec![("a", 10, 1, well())]).await;
    for n in 0..count {
        let counted = json!({"include_usage": true});
        let chat = chat(bench, n % 3 + 1, "c84");
        let chat = if n % 2 == 0 { chat.streamed().with("stream_options", counted) } else { chat };
        chat.served().await;
        if n % 20 == 10 {
            bench.fleet.kill9(if n % 40 == 10 { "projector-1" } else { "projector-2" });
        }
    }
    // A leader that is frozen while another one takes over, and then goes on.
    let leader =
        wait_until(RECOVERED, "somebody folds", async || bench.fleet.fold_leader("traffic").await.ok_or("nobody"))
            .await;
    bench.fleet.sigstop(&leader);
    for n in 0..count / 4 {
        chat(bench, n % 3 + 1, "c84").served().await;
    }
    wait_until(RECOVERED, "another one folds", async || {
        let now = bench.fleet.fold_leader("traffic").await;
        until(now.as_ref().is_some_and(|now| *now != leader), || format!("{now:?}"))
    })
    .await;
    bench.fleet.sigcont(&leader);

    let asked = bench.upstream.calls_of("c84-a").len();
    assert_eq!(asked, count + count / 4, "the upstream's own count");
    let rows = wait_until(RECOVERED, "every request has its row", async || {
        let answer = bench.admin().ask(reqwest::Method::GET, "/requests?model=c84%2Fm&limit=500", None).await.json();
        let rows = answer["requests"].as_array().cloned().unwrap_or_default();
        let ended = rows.iter().filter(|row| row["state"] == "succeeded").count();
        if ended == asked { Ok(rows) } else { Err(format!("{ended} of {asked}")) }
    })
    .await;
    let tokens = |field: &str| rows.iter().filter_map(|row| row[field].as_u64()).sum::<u64>();
    let each = u64::try_from(asked).unwrap_or_default();
    assert_eq!((tokens("prompt_tokens"), tokens("completion_tokens")), (10 * each, 5 * each));
    folded_anew(bench).await;
}

/// The tables, standing still, are what a fold from nothing gives.
async fn folded_anew(bench: &Bench) {
    for name in ["projector-1", "projector-2"] {
        bench.fleet.sigstop(name);
    }
    let (tables, connection) = (bench.fleet.tables(), bench.fleet.log("operator").await);
    let positions = match tables.projections().await {
        Ok(positions) => positions,
        Err(error) => panic!("no positions: {error}"),
    };
    for projection in [Projection::Traffic, Projection::Config] {
        let Some(held) = positions.iter().find(|held| held.projection == projection.as_str()) else {
            panic!("no position of {projection:?}")
        };
        match verify(connection.journal().log.as_ref(), &tables, projection, held.position).await {
            Ok(found) => assert_eq!(found.different, 0, "{projection:?}: {:?}", found.first.map(|one| one.to_string())),
            Err(error) => panic!("{projection:?} can't be compared: {error}"),
        }
    }
    tables.close().await;
    connection.close().await;
    for name in ["projector-1", "projector-2"] {
        bench.fleet.sigcont(name);
    }
}
