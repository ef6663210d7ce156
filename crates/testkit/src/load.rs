//! Requests at a fixed rate, each with a name that the upstream and the log see, and what became of each for its client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::front::Front;

/// Requests open at once; at that many the load waits.
const OPEN: usize = 400;
/// How long a client waits for all of its answer, unless it is impatient.
const PATIENCE: Duration = Duration::from_secs(60);
/// How much of an unexpected answer is kept.
const SHOWN: usize = 300;

/// One request to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Its name: unique in a fleet. It is its `user`, which upstreams see, and its `x-client-request-id`.
    pub name: String,
    /// Model.
    pub model: String,
    /// Whether a stream is wanted.
    pub stream: bool,
    /// After how long the client goes away, whatever it has got by then.
    pub patience: Option<Duration>,
}

/// What the client saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Saw {
    /// The whole answer; of a stream, to its `[DONE]`.
    Whole,
    /// An error status.
    Error {
        /// The status.
        status: u16,
        /// The public code.
        code: String,
    },
    /// A stream that ended with an error event.
    Interrupted,
    /// A connection that broke, or an answer that ended without its end.
    Broken {
        /// In words.
        why: String,
    },
    /// Nothing more: the client went away.
    Left,
    /// Nobody to send it to.
    Nobody,
}

/// One request that was sent, and what became of it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// What was asked.
    pub asked: Asked,
    /// The proxy it went to at last.
    pub backend: Option<String>,
    /// How often a connection was refused before.
    pub refused: usize,
    /// When it was sent.
    pub began: Instant,
    /// When the client was done with it.
    pub ended: Instant,
    /// The gateway's id, where an answer began.
    pub request: Option<String>,
    /// What the client saw.
    pub saw: Saw,
}

/// A running load.
#[derive(Debug)]
pub struct Load {
    stop: CancellationToken,
    sent: Arc<AtomicUsize>,
    task: JoinSet<Vec<Seen>>,
}

impl Load {
    /// Sends `mix(0)`, `mix(1)` … through a front, `rate` of them a second, with a client key.
    #[must_use]
    pub fn start(front: Arc<Front>, key: &str, rate: u32, mix: impl Fn(usize) -> Asked + Send + 'static) -> Self {
        let http = match reqwest::Client::builder().no_proxy().build() {
            Ok(http) => http,
            Err(error) => panic!("no HTTP client: {error}"),
        };
        let (stop, sent) = (CancellationToken::new(), Arc::<AtomicUsize>::default());
        let client = Client { http, front, key: key.to_owned() };
        let mut task = JoinSet::new();
        task.spawn(run(client, rate, mix, stop.clone(), Arc::clone(&sent)));
        Self { stop, sent, task }
    }

    /// How many were sent so far.
    #[must_use]
    pub fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    /// Sends no more, waits for what is open, and gives all.
    ///
    /// # Panics
    /// When the load itself has failed.
    pub async fn stop(self) -> Vec<Seen> {
        self.stop.cancel();
        self.task.join_all().await.into_iter().flatten().collect()
    }
}

async fn run(
    client: Client,
    rate: u32,
    mix: impl Fn(usize) -> Asked,
    stop: CancellationToken,
    sent: Arc<AtomicUsize>,
) -> Vec<Seen> {
    let mut every = tokio::time::interval(Duration::from_secs(1) / rate.max(1));
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (client, open) = (Arc::new(client), Arc::new(Semaphore::new(OPEN)));
    let (mut tasks, mut all) = (JoinSet::new(), Vec::new());
    while stop.run_until_cancelled(every.tick()).await.is_some() {
        let Ok(permit) = Arc::clone(&open).acquire_owned().await else { break };
        let asked = mix(sent.fetch_add(1, Ordering::Relaxed));
        let client = Arc::clone(&client);
        tasks.spawn(async move {
            let _held_while_open = permit;
            client.ask(asked).await
        });
        while let Some(done) = tasks.try_join_next() {
            all.extend(done);
        }
    }
    all.extend(tasks.join_all().await);
    all
}

struct Client {
    http: reqwest::Client,
    front: Arc<Front>,
    key: String,
}

/// An answer as far as it came.
#[derive(Default)]
struct Got {
    status: u16,
    body: Vec<u8>,
    broken: Option<String>,
}

/// A request on its way, as far as it got; what a client leaves behind is here, too.
#[derive(Default)]
struct Way {
    backend: Option<String>,
    refused_by: Vec<String>,
    request: Option<String>,
}

impl Client {
    async fn ask(&self, asked: Asked) -> Seen {
        let began = Instant::now();
        let mut way = Way::default();
        let patience = asked.patience.unwrap_or(PATIENCE);
        let passed = tokio::time::timeout(patience, self.pass(&asked, &mut way)).await;
        let saw = match passed {
            Ok(None) => Saw::Nobody,
            Ok(Some(Err(error))) => Saw::Broken { why: chain(&error) },
            Ok(Some(Ok(got))) => judge(got, asked.stream),
            Err(_) if asked.patience.is_some() => Saw::Left,
            Err(_) => Saw::Broken { why: format!("no end within {PATIENCE:?}") },
        };
        let Way { backend, refused_by, request } = way;
        Seen { asked, backend, refused: refused_by.len(), began, ended: Instant::now(), request, saw }
    }

    /// Sends it through the front; `None` where there is nobody to send it to.
    async fn pass(&self, asked: &Asked, way: &mut Way) -> Option<Result<Got, reqwest::Error>> {
        loop {
            let open = self.front.pick(&way.refused_by)?;
            way.backend = Some(open.name().to_owned());
            match self.send(open.url(), asked, &mut way.request).await {
                Err(error) if error.is_connect() => way.refused_by.push(open.name().to_owned()),
                answer => return Some(answer),
            }
        }
    }

    async fn send(&self, base: &str, asked: &Asked, id: &mut Option<String>) -> Result<Got, reqwest::Error> {
        let body = json!({
            "model": asked.model,
            "stream": asked.stream,
            "user": asked.name,
            "messages": [{"role": "user", "content": "Say something."}],
        });
        let request = self.http.post(format!("{base}/v1/chat/completions")).bearer_auth(&self.key).json(&body);
        let mut answer = request.header("x-client-request-id", &asked.name).send().await?;
        let header = answer.headers().get("x-request-id").and_then(|value| value.to_str().ok()).map(str::to_owned);
        *id = header;
        let mut got = Got { status: answer.status().as_u16(), ..Got::default() };
        loop {
            match answer.chunk().await {
                Ok(Some(bytes)) => got.body.extend_from_slice(&bytes),
                Ok(None) => return Ok(got),
                Err(error) => {
                    got.broken = Some(chain(&error));
                    return Ok(got);
                }
            }
        }
    }
}

fn judge(got: Got, stream: bool) -> Saw {
    let text = String::from_utf8_lossy(&got.body);
    let shown = || text.chars().take(SHOWN).collect::<String>();
    if let Some(why) = got.broken {
        return Saw::Broken { why };
    }
    if got.status != 200 {
        let told: Value = serde_json::from_slice(&got.body).unwrap_or_default();
        let code = told.pointer("/error/code").and_then(Value::as_str).map_or_else(shown, str::to_owned);
        return Saw::Error { status: got.status, code };
    }
    if text.contains("data: {\"error\"") {
        return Saw::Interrupted;
    }
    let whole = if stream {
        text.ends_with("data: [DONE]\n\n")
    } else {
        serde_json::from_slice::<Value>(&got.body).is_ok_and(|told| told.pointer("/choices/0/message").is_some())
    };
    if whole { Saw::Whole } else { Saw::Broken { why: format!("an answer without its end: {}", shown()) } }
}

/// An error with what caused it.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
