//! How fast the projector folds what is in the log, and what a burst does to it and to clients.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::Value;
use waybill_event::{Body, decode_batch};
use waybill_projector::read_models::verify;
use waybill_read_model::Projection;
use waybill_testkit::upstream::{Reply, Source};
use waybill_testkit::{Descendants, Stream, until, wait_until};

use crate::Bench;
use crate::traffic::{Histories, Load, Replicas, Written};

/// The process that folds.
const PROJECTOR: &str = "projector-1";
/// The two folds of the traffic stream, as readiness names them.
const SELECTOR: &str = "selector";
const TRAFFIC: &str = "read_model_traffic";
/// Channels, and models that each of them serves with its neighbour.
const CHANNELS: usize = 20;
/// How long folding everything may take.
const FOLDED: Duration = Duration::from_secs(900);
/// Between two looks at the folds.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Between two requests of the clients that ask during a burst.
const CLIENT_PAUSE: Duration = Duration::from_millis(20);

/// How fast a fold was.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// Events folded.
    pub events: u64,
    /// In this time.
    pub took: Duration,
}

impl Rate {
    /// Events a second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.events as f64 / self.took.as_secs_f64()
    }
}

/// What it took to fold all that waited.
#[derive(Debug)]
pub struct Folds {
    /// What waited.
    pub written: Written,
    /// The selector's fold.
    pub selector: Rate,
    /// The fold into Postgres.
    pub traffic: Rate,
    /// CPU time that each process used for it.
    pub cpu: Vec<(&'static str, Duration)>,
}

/// Channels, and requests of all kinds through the proxies: what volume is made of. Each channel fails now and then, two
/// serve each model.
///
/// # Panics
/// When a request isn't answered.
pub async fn prepared(bench: &Bench) {
    for number in 0..CHANNELS {
        let models = [format!("model-{number}"), format!("model-{}", (number + 1) % CHANNELS)];
        let failing = Source::default()
            .times(7, &Reply::default())
            .then(Reply::error(500, "server_error"))
            .times(9, &Reply::default())
            .then(Reply::error(429, "rate_limit_exceeded"))
            .times(5, &Reply::default());
        bench.channel(&format!("channel-{number}"), &models.each_ref().map(String::as_str), 0, failing).await;
    }
    bench.configured().await;
    for number in 0..CHANNELS * 12 {
        let proxy = number % bench.fleet.proxies().len() + 1;
        let chat = bench.chat(proxy, &format!("model-{}", number % CHANNELS));
        if number % 3 == 0 {
            chat.streamed().served().await
        } else {
            chat.served().await
        };
    }
}

/// Takes the projector away, lets `load` be written, gives the projector back, and measures until both folds of the
/// traffic stream are at its end: each from the first time it was seen to move.
///
/// # Panics
/// When something of it can't be had, or isn't folded within 15 minutes.
pub async fn catch_up(bench: &Bench, replicas: &mut Replicas, histories: &Histories, load: Load) -> Folds {
    let log = bench.fleet.log("operator").await;
    let end = async || match log.journal().log.bounds(Stream::Traffic).await {
        Ok(bounds) => bounds.last,
        Err(error) => panic!("the log's end: {error}"),
    };
    let start = end().await;
    wait_until(FOLDED, "what was there is folded", async || {
        let at = positions(bench).await;
        until(at.iter().all(|at| *at >= start), || format!("{at:?}"))
    })
    .await;
    bench.fleet.take_away(PROJECTOR);
    let before = end().await;
    let written = replicas.write(histories, load).await;
    let last = end().await;
    let used_before = used(bench, &["nats-server", "postgres"]);
    bench.fleet.give_back();

    let mut seen: [Option<(Instant, u64)>; 2] = [None, None];
    let mut done: [Option<Instant>; 2] = [None, None];
    let began = Instant::now();
    while done.iter().any(Option::is_none) {
        assert!(began.elapsed() < FOLDED, "not folded within {FOLDED:?}: {seen:?}");
        tokio::time::sleep(LOOK_AGAIN).await;
        let (at, now) = (positions(bench).await, Instant::now());
        for ((at, seen), done) in at.into_iter().zip(&mut seen).zip(&mut done) {
            if at > before && seen.is_none() {
                *seen = Some((now, at));
            }
            if at >= last && done.is_none() {
                *done = Some(now);
            }
        }
    }
    let used_after = used(bench, &["nats-server", "postgres", PROJECTOR]);
    let rate = async |fold: usize| {
        let (Some(Some((from, at))), Some(Some(to))) = (seen.get(fold), done.get(fold)) else {
            panic!("a fold wasn't seen")
        };
        let events = events_between(bench, *at + 1, last).await;
        Rate { events, took: to.saturating_duration_since(*from) }
    };
    let (selector, traffic) = (rate(0).await, rate(1).await);
    log.close().await;
    let before_of = |name: &str| used_before.iter().find(|(of, _)| *of == name).map(|(_, used)| *used);
    let cpu = used_after.into_iter().map(|(name, after)| (name, after - before_of(name).unwrap_or_default()));
    Folds { written, selector, traffic, cpu: cpu.collect() }
}

/// Positions of both folds of the traffic stream; 0 while they aren't told.
async fn positions(bench: &Bench) -> [u64; 2] {
    let Some((_, readiness)) = bench.fleet.readiness(PROJECTOR).await else { return [0; 2] };
    [SELECTOR, TRAFFIC].map(|fold| {
        let position = of_fold(&readiness, fold).and_then(|fold| fold.get("position")?.as_str()?.parse().ok());
        position.unwrap_or_default()
    })
}

fn of_fold<'a>(readiness: &'a Value, fold: &str) -> Option<&'a Value> {
    let all = readiness.get("dependencies")?.as_array()?;
    all.iter().find(|dependency| dependency.get("name").and_then(Value::as_str) == Some(fold))
}

fn used(bench: &Bench, names: &[&'static str]) -> Vec<(&'static str, Duration)> {
    names.iter().map(|name| (*name, Descendants::of(bench.fleet.process(name).pid).cpu_time())).collect()
}

/// Events of the traffic stream's messages from one to another.
async fn events_between(bench: &Bench, first: u64, last: u64) -> u64 {
    let mut events = 0;
    for message in bench.fleet.messages(Stream::Traffic).await {
        if (first..=last).contains(&message.sequence) {
            events += decode_batch(&message.payload).map_or(0, |events| events.len() as u64);
        }
    }
    events
}

/// What a burst did.
#[derive(Debug, Default)]
pub struct Burst {
    /// What was written.
    pub written: Written,
    /// The longest that a message had waited for either fold.
    pub longest_lag: Duration,
    /// From the end of the burst until both folds were at the log's end.
    pub caught_up_after: Duration,
    /// Requests of clients that were served meanwhile.
    pub served: u64,
    /// And those that weren't.
    pub refused: u64,
    /// How long clients waited, shortest first: before the burst, and during it.
    pub waited: [Vec<Duration>; 2],
}

impl Burst {
    fn answered(&mut self, when: usize, served: bool, after: Duration) {
        self.served += u64::from(served);
        self.refused += u64::from(!served);
        if let Some(waited) = self.waited.get_mut(when) {
            waited.push(after);
        }
    }
}

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { written, longest_lag, caught_up_after, served, refused, waited } = self;
        let ms = |waited: &[Duration], percent: usize| {
            let place = (waited.len() * percent / 100).min(waited.len().saturating_sub(1));
            waited.get(place).copied().unwrap_or_default().as_secs_f64() * 1e3
        };
        let [quiet, burst] = waited;
        write!(
            f,
            "{} events in {:.1} s; lag at most {:.1} s, caught up {:.1} s after; {served} requests of clients served, \
             {refused} not, in {:.1} ms (p99 {:.1}), before the burst in {:.1} ms (p99 {:.1})",
            written.events,
            written.took.as_secs_f64(),
            longest_lag.as_secs_f64(),
            caught_up_after.as_secs_f64(),
            ms(burst, 50),
            ms(burst, 99),
            ms(quiet, 50),
            ms(quiet, 99),
        )
    }
}

/// Lets `load` be written while the projector folds and clients ask, until all of it is folded.
///
/// # Panics
/// When it isn't folded within 15 minutes, or the log can't be asked.
pub async fn burst(bench: &Bench, replicas: &mut Replicas, histories: &Histories, load: Load) -> Burst {
    let told = RefCell::new(Burst::default());
    let (bursting, over) = (Cell::new(0_usize), Cell::new(false));
    let clients = async {
        let mut number = 0;
        while !over.get() {
            number += 1;
            let proxy = number % bench.fleet.proxies().len() + 1;
            let (when, began) = (bursting.get(), Instant::now());
            let answer = bench.chat(proxy, &format!("model-{}", number % CHANNELS)).try_send().await;
            let served = answer.is_ok_and(|answer| answer.status == 200);
            told.borrow_mut().answered(when, served, began.elapsed());
            tokio::time::sleep(CLIENT_PAUSE).await;
        }
    };
    let lag = async {
        while !over.get() {
            if let Some((_, readiness)) = bench.fleet.readiness(PROJECTOR).await {
                let lag = |fold| of_fold(&readiness, fold).and_then(|fold| fold.get("lag_ms")?.as_u64());
                let lag = [SELECTOR, TRAFFIC].into_iter().filter_map(lag).max().unwrap_or_default();
                let mut told = told.borrow_mut();
                told.longest_lag = told.longest_lag.max(Duration::from_millis(lag));
            }
            tokio::time::sleep(CLIENT_PAUSE).await;
        }
    };
    let writing = async {
        tokio::time::sleep(Duration::from_secs(4)).await;
        bursting.set(1);
        let written = replicas.write(histories, load).await;
        let ended = Instant::now();
        caught_up(bench).await;
        over.set(true);
        let mut told = told.borrow_mut();
        told.written = written;
        told.caught_up_after = ended.elapsed();
    };
    tokio::join!(clients, lag, writing);
    let mut told = told.into_inner();
    told.waited.iter_mut().for_each(|waited| waited.sort_unstable());
    told
}

/// Waits until both folds have what is in the log now; returns its last sequence.
async fn caught_up(bench: &Bench) -> u64 {
    let log = bench.fleet.log("operator").await;
    let last = match log.journal().log.bounds(Stream::Traffic).await {
        Ok(bounds) => bounds.last,
        Err(error) => panic!("the log's end: {error}"),
    };
    log.close().await;
    wait_until(FOLDED, "everything is folded", async || {
        let at = positions(bench).await;
        until(at.iter().all(|at| *at >= last), || format!("{at:?} of {last}"))
    })
    .await;
    last
}

/// Once nothing more is written: compares the tables with a fold of the log from scratch, and counts the requests that
/// have ended in it. `None` when nothing is missing, out of at least `requests`.
///
/// # Panics
/// When the log or the tables can't be read.
pub async fn missing(bench: &Bench, requests: u64) -> Option<String> {
    let (log, tables) = (bench.fleet.log("operator").await, bench.fleet.tables());
    let mut last = caught_up(bench).await;
    let compared = loop {
        let compared = verify(&*log.journal().log, &tables, Projection::Traffic, last).await;
        // What the fold still had to announce isn't missing: it came after the position that was folded to.
        let end = caught_up(bench).await;
        if end == last {
            break compared;
        }
        last = end;
    };
    tables.close().await;
    log.close().await;
    let (mut open, mut ended) = (BTreeSet::new(), 0_u64);
    for message in bench.fleet.messages(Stream::Traffic).await {
        for event in decode_batch(&message.payload).unwrap_or_default().into_iter().flatten() {
            match (event.draft.request, &event.draft.body) {
                (Some((id, _)), Body::RequestAdmitted(_)) => drop(open.insert(id)),
                (Some((id, _)), Body::RequestFinished(_)) => ended += u64::from(open.remove(&id)),
                _ => {}
            }
        }
    }
    match compared {
        Err(error) => Some(error.to_string()),
        Ok(found) if found.different > 0 => {
            Some(format!("{} of {} rows: {:?}", found.different, found.same, found.first))
        }
        Ok(_) if !open.is_empty() => Some(format!("{} requests have no end", open.len())),
        Ok(_) if ended < requests => Some(format!("{ended} requests have ended, of {requests}")),
        Ok(_) => None,
    }
}
