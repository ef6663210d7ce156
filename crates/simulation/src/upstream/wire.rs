//! The wire between one process and the upstreams: hands its requests over, and keeps what was called when. At each
//! call of a replica the replica's own view is asked whether the source could be picked at all.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use http::Request;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use waybill_domain::observation::{Fault, Phase, TransportFault};
use waybill_domain::selector::table::Row;
use waybill_event::failure::Sent;
use waybill_event::selection::SkipReason;
use waybill_event::{LogTime, Source, SourceKind};
use waybill_proxy::Replica;
use waybill_upstream::Exchange;
use waybill_upstream::exchange::Pieces;

use super::Upstreams;
use super::answer::{Answer, Kind, Reply};
use crate::ground::Ground;

/// One call of an upstream.
#[derive(Debug, Clone)]
pub struct Call {
    /// Who called.
    pub who: String,
    /// The client's request; `None` for what upkeep asks.
    pub client: Option<u64>,
    /// Whom.
    pub source: Source,
    /// For which model, by the upstream's name.
    pub model: String,
    /// When it began.
    pub begun: Instant,
    /// The same by the store's clock.
    pub at: LogTime,
    /// When its first content went out, or when it was over before.
    pub decided: Option<Instant>,
    /// Why the caller's own view would not have picked it now.
    pub unpicked: Option<SkipReason>,
}

/// All calls, in the order in which they began.
pub type Calls = Mutex<Vec<Call>>;

/// One process's way to the upstreams.
pub struct Wire {
    ground: Arc<Ground>,
    upstreams: Arc<Upstreams>,
    calls: Arc<Calls>,
    who: String,
    replica: OnceLock<Weak<Replica>>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("who", &self.who).finish_non_exhaustive()
    }
}

impl Wire {
    /// The wire of one process.
    #[must_use]
    pub fn new(ground: &Arc<Ground>, upstreams: &Arc<Upstreams>, calls: &Arc<Calls>, who: &str) -> Arc<Self> {
        Arc::new(Self {
            ground: Arc::clone(ground),
            upstreams: Arc::clone(upstreams),
            calls: Arc::clone(calls),
            who: who.to_owned(),
            replica: OnceLock::new(),
        })
    }

    /// The replica whose views are asked at each call.
    pub fn belongs_to(&self, replica: &Arc<Replica>) {
        let set = self.replica.set(Arc::downgrade(replica));
        debug_assert!(set.is_ok(), "a wire belongs to one replica");
    }

    fn row(&self, source: Source, upstream_model: &str) -> Option<Row> {
        let replica = self.replica.get()?.upgrade()?;
        let now = replica.serving_since_now()?;
        let snapshot = replica.snapshot();
        let abilities = snapshot.index().iter().flat_map(|(_, _, abilities)| abilities.iter());
        let ability = abilities.into_iter().find(|a| a.source == source && *a.upstream_model == *upstream_model)?;
        Some(replica.views().judge(snapshot.catalog(), ability, now))
    }

    fn begin(self: &Arc<Self>, request: &Request<Bytes>) -> (Answer, Under) {
        #[derive(serde::Deserialize)]
        struct Asked {
            model: String,
            #[serde(default)]
            stream: bool,
        }
        let host = request.uri().host().unwrap_or_default();
        let channel = host.split(['.', '-']).next().and_then(|c| c.strip_prefix('c')).and_then(|c| c.parse().ok());
        let source = Source { kind: SourceKind::Channel, id: channel.unwrap_or(0) };
        let text = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let credential = text(AUTHORIZATION.as_str()).and_then(|a| a.strip_prefix("Bearer ")).unwrap_or_default();
        let client = text("idempotency-key").and_then(|key| key.parse().ok());
        let asked: Asked = serde_json::from_slice(request.body()).expect("the product sends what a client sent");
        let unpicked = client.and_then(|_| self.row(source, &asked.model)).and_then(|row| row.skip);
        let begun = Instant::now();
        let who = self.who.clone();
        let answer = self.upstreams.answer(source.id, credential, asked.stream, &asked.model);
        let shown = match &answer.kind {
            Kind::Reply(reply) => format!("{} {:?}", reply.status.as_u16(), reply.end),
            other => format!("{other:?}"),
        };
        self.ground
            .trace
            .note(format_args!("{who} calls {source} for {client:?} with {credential}: {shown} {unpicked:?}"));
        let mut calls = self.calls.lock();
        let number = calls.len();
        let at = self.ground.memory.now();
        let model = asked.model;
        calls.push(Call { who, client, source, model, begun, at, decided: None, unpicked });
        (answer, Under { calls: Arc::clone(&self.calls), number })
    }
}

/// A call under way; it is decided at the latest when it is dropped.
struct Under {
    calls: Arc<Calls>,
    number: usize,
}

impl Under {
    fn decided(&self) {
        if let Some(call) = self.calls.lock().get_mut(self.number) {
            call.decided.get_or_insert_with(Instant::now);
        }
    }
}

impl Drop for Under {
    fn drop(&mut self) {
        self.decided();
    }
}

impl Exchange for Shared {
    fn exchange(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<http::Response<Pieces>, TransportFault>> {
        let (answer, under) = self.0.begin(&request);
        async move {
            sleep(answer.after).await;
            let fault = |phase, fault, sent| {
                Err(TransportFault { phase, fault, sent, received: 0, detail: "simulated".to_owned() })
            };
            match answer.kind {
                Kind::Refused => fault(Phase::Connect, Fault::Refused, Sent::Nothing),
                Kind::Reset => fault(Phase::Head, Fault::Reset, Sent::Request),
                Kind::Silence => {
                    // It is the caller who gives up; what was called stays open until then.
                    let _held = under;
                    std::future::pending().await
                }
                Kind::Reply(reply) => Ok(respond(reply, under)),
            }
        }
        .boxed()
    }
}

/// A wire as a dispatcher holds it.
#[derive(Debug, Clone)]
pub struct Shared(pub Arc<Wire>);

fn respond(reply: Reply, under: Under) -> http::Response<Pieces> {
    let Reply { status, headers, pieces, end } = reply;
    let begun = (pieces.into_iter(), under, Some(end));
    let body = stream::unfold(begun, |(mut pieces, under, end)| async move {
        if let Some((before, piece)) = pieces.next() {
            if !before.is_zero() {
                sleep(before).await;
            }
            if piece.windows(4).any(|word| word == b"word") {
                under.decided();
            }
            return Some((Ok(piece), (pieces, under, end)));
        }
        match end? {
            super::answer::End::Silent => std::future::pending().await,
            end => end.error().map(|error| (Err(error), (pieces, under, None))),
        }
    });
    let mut response = http::Response::new(body.boxed());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
