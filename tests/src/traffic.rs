//! Traffic in volume: the histories that the fleet's own proxies wrote, written again and again under new ids, as
//! replicas write them: each through an outbox of its own, with many requests open at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tempfile::TempDir;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_event::{Body, Boot, Draft, LogTime, RequestId, decode_batch};
use waybill_journal::outbox::{Outbox, OutboxConfig};
use waybill_journal_nats::Connection;
use waybill_testkit::{Fleet, Stream};

/// How long what is written may take to reach the log after its last event.
const SETTLED: Duration = Duration::from_secs(120);
/// How often a replica writes what is due.
const TICK: Duration = Duration::from_millis(2);

/// What was asked lately, as the proxies wrote it down: of each request, what went to the outbox at a time.
#[derive(Debug, Clone)]
pub struct Histories(Vec<Vec<Vec<Draft>>>);

impl Histories {
    /// Reads what requests left in the log. Only those that have ended.
    ///
    /// # Panics
    /// When there are none, or the log can't be read.
    pub async fn recorded(fleet: &Fleet) -> Self {
        let mut all: BTreeMap<RequestId, BTreeMap<u32, Draft>> = BTreeMap::new();
        for message in fleet.messages(Stream::Traffic).await {
            for event in decode_batch(&message.payload).unwrap_or_default().into_iter().flatten() {
                if let Some((id, rn)) = event.draft.request {
                    all.entry(id).or_default().insert(rn, event.draft);
                }
            }
        }
        all.retain(|_, events| {
            let ended = events.values().any(|draft| matches!(draft.body, Body::RequestFinished(_)));
            ended && events.values().next().is_some_and(|draft| matches!(draft.body, Body::RequestAdmitted(_)))
        });
        assert!(!all.is_empty(), "no request was recorded");
        Self(all.into_values().map(|events| appends(events.into_values())).collect())
    }

    /// Events of a request, on average.
    #[must_use]
    pub fn events_per_request(&self) -> f64 {
        let events: usize = self.0.iter().flatten().map(Vec::len).sum();
        events as f64 / self.0.len() as f64
    }

    fn of(&self, number: u64) -> &[Vec<Draft>] {
        let place = usize::try_from(number.wrapping_mul(7_919)).unwrap_or_default() % self.0.len();
        self.0.get(place).map_or(&[], Vec::as_slice)
    }
}

/// An attempt's end and all that follows from it are written at a time; so is what comes before it.
fn appends(events: impl Iterator<Item = Draft>) -> Vec<Vec<Draft>> {
    let mut appends: Vec<Vec<Draft>> = Vec::new();
    for draft in events {
        match appends.last_mut() {
            Some(last) if !matches!(draft.body, Body::AttemptFinished(_)) => last.push(draft),
            Some(_) | None => appends.push(vec![draft]),
        }
    }
    appends
}

/// What is to be written.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Requests, over all replicas.
    pub requests: u64,
    /// Requests a second, over all replicas.
    pub rate: u64,
    /// Requests that each replica has open at a time: so many others are admitted until one goes on.
    pub open: u64,
}

/// What was written.
#[derive(Debug, Clone, Copy, Default)]
pub struct Written {
    /// Requests, each of which has ended.
    pub requests: u64,
    /// Their events.
    pub events: u64,
    /// How long it took, from the first event until the log had the last one.
    pub took: Duration,
}

/// Writers that do with the log what proxies do.
pub struct Replicas {
    replicas: Vec<Replica>,
    tasks: TaskTracker,
    stop: CancellationToken,
    _folder: TempDir,
}

struct Replica {
    outbox: Outbox,
    connection: Connection,
    /// Requests that were admitted.
    admitted: u64,
    /// Requests that are open: when they go on, and with what.
    open: VecDeque<Open>,
}

struct Open {
    /// When so many were admitted.
    due: u64,
    id: RequestId,
    history: u64,
    /// What of it comes next.
    append: usize,
    rn: u32,
}

impl Replicas {
    /// So many of them, `fill-1` and so on.
    ///
    /// # Panics
    /// When the log can't be reached or an outbox can't be opened.
    pub async fn start(fleet: &Fleet, count: usize) -> Self {
        let Ok(folder) = tempfile::tempdir() else { panic!("no folder for outboxes") };
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let mut replicas = Vec::new();
        for number in 1..=count {
            let name = format!("fill-{number}");
            let Ok(producer) = name.parse() else { panic!("{name} is no producer") };
            let config = OutboxConfig::new(folder.path().join(name), producer, "wb.traffic.0.proxy", Arc::new(now));
            let connection = fleet.log("proxy").await;
            let (outbox, publisher) = match Outbox::open(config, Boot::new(now(), rand::random())) {
                Ok(opened) => opened,
                Err(error) => panic!("an outbox can't be opened: {error}"),
            };
            tasks.spawn(publisher.run(connection.journal().log.clone(), stop.clone()));
            replicas.push(Replica { outbox, connection, admitted: 0, open: VecDeque::new() });
        }
        Self { replicas, tasks, stop, _folder: folder }
    }

    /// Writes requests from their admission to their end, at a steady rate, and waits until the log has them all.
    ///
    /// # Panics
    /// When an outbox refuses, or the log doesn't take it in two minutes.
    pub async fn write(&mut self, histories: &Histories, load: Load) -> Written {
        let began = Instant::now();
        let mut written = Written::default();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while written.requests < load.requests {
            ticks.tick().await;
            let due = began.elapsed().as_micros() * u128::from(load.rate) / 1_000_000;
            let due = u64::try_from(due).unwrap_or(u64::MAX).min(load.requests);
            while written.requests < due {
                let turn = usize::try_from(written.requests).unwrap_or_default() % self.replicas.len();
                if let Some(replica) = self.replicas.get_mut(turn) {
                    written.events += replica.admit(histories, written.requests, load.open);
                }
                written.requests += 1;
            }
        }
        for replica in &mut self.replicas {
            while !replica.open.is_empty() {
                replica.admitted += 1;
                written.events += replica.go_on(histories, load.open);
            }
        }
        for replica in &self.replicas {
            let reached = replica.outbox.wait_acknowledged(replica.outbox.status().appended);
            assert!(timeout(SETTLED, reached).await == Ok(true), "the log doesn't take the events");
        }
        written.took = began.elapsed();
        written
    }

    /// Ends them in good order: their outboxes say that they are drained.
    ///
    /// # Panics
    /// When something is left in an outbox.
    pub async fn close(self) {
        for replica in &self.replicas {
            assert!(replica.outbox.close(SETTLED).await.drained, "an outbox isn't drained");
        }
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        for replica in self.replicas {
            replica.connection.close().await;
        }
    }
}

impl Replica {
    /// Admits one more request, after what others have to say by then; returns how many events that were.
    fn admit(&mut self, histories: &Histories, history: u64, open: u64) -> u64 {
        self.admitted += 1;
        let written = self.go_on(histories, open);
        let request = Open { due: 0, id: RequestId::from_parts(now(), rand::random()), history, append: 0, rn: 0 };
        written + self.say(request, histories, open)
    }

    fn go_on(&mut self, histories: &Histories, open: u64) -> u64 {
        let mut written = 0;
        while self.open.front().is_some_and(|request| request.due <= self.admitted)
            && let Some(request) = self.open.pop_front()
        {
            written += self.say(request, histories, open);
        }
        written
    }

    fn say(&mut self, mut request: Open, histories: &Histories, open: u64) -> u64 {
        let history = histories.of(request.history);
        let mut encoded = Vec::new();
        for draft in history.get(request.append).into_iter().flatten() {
            request.rn += 1;
            let draft = Draft { at: now(), request: Some((request.id, request.rn)), ..draft.clone() };
            match draft.encode() {
                Ok(event) => encoded.push(event),
                Err(error) => panic!("an event can't be encoded: {error}"),
            }
        }
        if let Err(error) = self.outbox.append(&encoded) {
            panic!("the outbox refuses: {error}");
        }
        request.append += 1;
        if request.append < history.len() {
            request.due = self.admitted + open;
            self.open.push_back(request);
        }
        encoded.len() as u64
    }
}

fn now() -> LogTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    LogTime::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
