//! Measures how fast a fleet of three replicas learns: a channel edit, with Postgres and without; a breaker that one of
//! them has opened, also right after another one was restarted. Ends with an error where a 99th percentile is 100 ms or
//! more. `cargo xtask propagation` builds the binary and runs this.

#![expect(clippy::print_stdout, reason = "a table is this program's output")]
#![expect(clippy::panic, reason = "a fleet that can't be measured ends the measurement")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use waybill_testkit::upstream::{Reply, Source};
use waybill_testkit::{until, wait_until};
use waybill_tests::Bench;

const REPLICAS: usize = 3;
const EDITS: usize = 200;
const ROUNDS: usize = 51;
const RESTARTS: usize = 9;
/// What a 99th percentile must stay below.
const LIMIT: Duration = Duration::from_millis(100);
/// Pause between two looks at a replica.
const LOOK_AGAIN: Duration = Duration::from_micros(500);
/// How long anything may take before it counts as never.
const NEVER: Duration = Duration::from_secs(10);

/// What one replica was seen to know, and when first.
#[derive(Debug, Default)]
struct Seen {
    /// Positions of the configuration.
    config: Vec<(Instant, u64)>,
    /// Sources whose breaker is open.
    open: BTreeMap<String, Instant>,
}

/// Looks at all replicas all the time.
struct Watch {
    seen: Vec<Arc<Mutex<Seen>>>,
    /// Ends the looking when it is dropped.
    _tasks: JoinSet<()>,
}

impl Watch {
    fn start(bench: &Bench) -> Self {
        let (mut seen, mut tasks) = (Vec::new(), JoinSet::new());
        for number in 1..=REPLICAS {
            let one = Arc::new(Mutex::new(Seen::default()));
            let url = format!("{}/state", bench.fleet.ops_url(&format!("proxy-{number}")));
            tasks.spawn(look(bench.fleet.http().clone(), url, one.clone()));
            seen.push(one);
        }
        Self { seen, _tasks: tasks }
    }

    /// Reads what a replica (from 1) was seen to know.
    fn of<T>(&self, replica: usize, read: impl FnOnce(&Seen) -> T) -> T {
        match self.seen.get(replica - 1) {
            Some(seen) => read(&seen.lock().unwrap_or_else(PoisonError::into_inner)),
            None => panic!("there is no replica {replica}"),
        }
    }

    /// When a replica was first seen to know this.
    async fn first(&self, replica: usize, what: &str, find: impl Fn(&Seen) -> Option<Instant>) -> Instant {
        wait_until(NEVER, format_args!("replica {replica} knows {what}"), async || {
            self.of(replica, &find).ok_or("not yet")
        })
        .await
    }
}

async fn look(http: reqwest::Client, url: String, seen: Arc<Mutex<Seen>>) {
    loop {
        let asked = async { http.get(&url).send().await?.json::<Value>().await };
        if let Ok(state) = asked.await {
            let now = Instant::now();
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let config = state.get("config").and_then(Value::as_u64).unwrap_or_default();
            if seen.config.last().is_none_or(|(_, last)| *last < config) {
                seen.config.push((now, config));
            }
            for source in state.get("sources").and_then(Value::as_array).into_iter().flatten() {
                let open = source.get("breaker").and_then(Value::as_str) == Some("open");
                if let Some(name) = source.get("source").and_then(Value::as_str).filter(|_| open) {
                    seen.open.entry(name.to_owned()).or_insert(now);
                }
            }
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Edits a channel again and again; for each edit, the time from its being sent until the last replica has it.
async fn edits(bench: &Bench, watch: &Watch) -> Vec<Duration> {
    let mut times = Vec::with_capacity(EDITS);
    for n in 0..EDITS {
        let version = bench.admin().get("/channels/edited").await.get("version").cloned().unwrap_or_default();
        let patch = json!({"expected_version": version, "weight": n % 7 + 1});
        let sent = Instant::now();
        let answer = bench.admin().patch("/channels/edited", patch).await;
        let Some(position) = answer.get("position").and_then(Value::as_u64) else { panic!("no position in {answer}") };
        let mut last = sent;
        for replica in 1..=REPLICAS {
            let has = |seen: &Seen| seen.config.iter().find(|(_, config)| *config >= position).map(|(at, _)| *at);
            last = last.max(watch.first(replica, "the edit", has).await);
        }
        times.push(last.saturating_duration_since(sent));
    }
    times
}

/// Lets one replica open a breaker; for each of the others, the time until it has it open. `others` says which count.
async fn breaker(bench: &Bench, watch: &Watch, round: usize, opener: usize, others: &[usize]) -> Vec<Duration> {
    let model = format!("model-{round}");
    let failing = Source::default().then(Reply::error(500, "server_error"));
    let source = bench.channel(&model, &[&model], 10, failing).await;
    bench.admin().edit_channel("backup", json!({"models": [&model]})).await;
    bench.configured().await;
    let mut times = Vec::new();
    while watch.of(opener, |seen| !seen.open.contains_key(&source)) {
        bench.chat(opener, &model).served().await;
        if bench.upstream.calls_of(&model).len() >= 4 {
            break;
        }
    }
    let open = |seen: &Seen| seen.open.get(&source).copied();
    let opened = watch.first(opener, "its own opening", open).await;
    for other in others {
        times.push(watch.first(*other, "the opening", open).await.saturating_duration_since(opened));
    }
    bench.admin().delete(&format!("/channels/{model}")).await;
    times
}

async fn breakers(bench: &Bench, watch: &Watch) -> Vec<Duration> {
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let opener = round % REPLICAS + 1;
        let others: Vec<usize> = (1..=REPLICAS).filter(|other| *other != opener).collect();
        times.extend(breaker(bench, watch, round, opener, &others).await);
    }
    times
}

/// The same, where the replica that has to learn it has only just become ready.
async fn breakers_after_restarts(bench: &Bench, watch: &Watch) -> Vec<Duration> {
    let mut times = Vec::new();
    for round in 0..RESTARTS {
        let (opener, restarted) = (round % REPLICAS + 1, (round + 1) % REPLICAS + 1);
        let name = format!("proxy-{restarted}");
        let before = bench.fleet.kill9(&name);
        bench.fleet.restarted(&name, before).await;
        times.extend(breaker(bench, watch, ROUNDS + round, opener, &[restarted]).await);
    }
    times
}

/// Prints a line of the table; whether its 99th percentile holds.
fn told(what: &str, mut times: Vec<Duration>) -> bool {
    times.sort_unstable();
    // The nearest rank: the smallest value that so many are not above.
    let rank =
        |percent: usize| times.get((times.len() * percent).div_ceil(100).max(1) - 1).copied().unwrap_or_default();
    let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1_000.0);
    let holds = rank(99) < LIMIT;
    let verdict = if holds { "" } else { "  too slow" };
    println!("{what:<56} {:>5} {:>8} {:>8} {:>8}{verdict}", times.len(), ms(rank(50)), ms(rank(99)), ms(rank(100)));
    holds
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let bench = Bench::of(REPLICAS as u16).await;
    let breaker = json!({"min_outcomes": 4, "max_fail_milli": 500, "open_ms": 600_000, "open_max_ms": 600_000});
    bench.admin().policy(json!({"source_breaker": breaker, "model_breaker": {"consecutive_fails": 0}})).await;
    bench.channel("edited", &["edited"], 0, Source::default()).await;
    bench.channel("backup", &["backup"], 0, Source::default()).await;
    bench.configured().await;
    let watch = Watch::start(&bench);
    println!("{:<56} {:>5} {:>8} {:>8} {:>8}", "from … to …", "n", "p50 ms", "p99 ms", "max ms");
    let mut holds = told("channel edit sent → all three replicas have it", edits(&bench, &watch).await);
    holds &= told("breaker open at one replica → at each other one", breakers(&bench, &watch).await);
    holds &= told("… → at one that was only just started", breakers_after_restarts(&bench, &watch).await);
    bench.fleet.take_away("postgres");
    wait_until(NEVER, "the tables are out of reach", async || {
        let reply = bench.admin().ask(reqwest::Method::GET, "/requests?limit=1", None).await;
        until(reply.status == 503, || reply.text)
    })
    .await;
    holds &= told("channel edit sent → all have it, Postgres stopped", edits(&bench, &watch).await);
    drop(watch);
    bench.fleet.stop().await;
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
