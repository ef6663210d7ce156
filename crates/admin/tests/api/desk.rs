//! An administrator's desk: a running admin role, and a way to ask it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;
use waybill_admin::{Parts, Reads, SharedReads, State, bootstrap};
use waybill_domain::history::{
    CauseAttempt, ConfigHistoryRow, ConfigRows, Placed, RequestRow, TrafficRows, TransitionRow, lines,
};
use waybill_event::selection::Skip;
use waybill_event::{FailureKind, LogTime, Position, RequestId, Source, decode_batch, decode_one};
use waybill_journal::memory::Memory;
use waybill_journal::{Journal, Log, Stream};
use waybill_read_model::StoreError;
use waybill_read_model::read::{
    ConfigHistoryQuery, Ended, History, Move, ProjectionPosition, RequestQuery, ShadowDifference, ShadowReport,
};
use waybill_secret::{ExposeSecret as _, KeyRing, Peppers, Vault};
use waybill_upstream::{DispatchConfig, Dispatcher};

/// Rows folded from the log at each question, by the very folds that fill Postgres.
#[derive(Clone)]
pub(crate) struct FoldedRows {
    log: Arc<dyn Log>,
    away: Arc<AtomicBool>,
    lagging: Arc<AtomicBool>,
}

impl FoldedRows {
    fn new(log: Arc<dyn Log>) -> Self {
        Self { log, away: Arc::default(), lagging: Arc::default() }
    }

    fn reach(&self) -> Result<(), StoreError> {
        if self.away.load(Ordering::SeqCst) {
            return Err(StoreError::Deadline { what: "anything", deadline: Duration::ZERO });
        }
        Ok(())
    }

    async fn config(&self) -> (ConfigRows, u64) {
        let mut rows = ConfigRows::default();
        let messages = self.log.read(Stream::Config, 1, 10_000).await.unwrap();
        for message in &messages {
            let event = decode_one(&message.payload).unwrap();
            let position = Position::new(message.sequence, 0);
            rows.apply(&Placed { event, position, stored_at: message.stored_at }).unwrap();
        }
        (rows, messages.last().map_or(0, |message| message.sequence))
    }

    async fn traffic(&self) -> TrafficRows {
        let mut rows = TrafficRows::default();
        for message in self.log.read(Stream::Traffic, 1, 10_000).await.unwrap() {
            for (index, event) in (0..).zip(decode_batch(&message.payload).unwrap()) {
                let position = Position::new(message.sequence, index);
                rows.apply(&Placed { event: event.unwrap(), position, stored_at: message.stored_at });
            }
        }
        rows
    }
}

#[async_trait]
impl Reads for FoldedRows {
    async fn projections(&self) -> Result<Vec<ProjectionPosition>, StoreError> {
        self.reach()?;
        let position = if self.lagging.load(Ordering::SeqCst) { 0 } else { self.config().await.1 };
        Ok(vec![ProjectionPosition {
            projection: "config".to_owned(),
            version: 1,
            epoch: 1,
            position,
            stored_at: None,
            unprojectable: 0,
        }])
    }

    async fn requests(&self, query: &RequestQuery) -> Result<Vec<RequestRow>, StoreError> {
        self.reach()?;
        let rows = self.traffic().await.requests.into_values().rev();
        let rows = rows.filter(|row| query.after.is_none_or(|after| row.request_id < after));
        let rows = rows.filter(|row| query.state.is_none_or(|state| row.state == state));
        Ok(rows.take(query.limit as usize).collect())
    }

    async fn history(&self, id: RequestId) -> Result<Option<History>, StoreError> {
        self.reach()?;
        let rows = self.traffic().await;
        let Some(request) = rows.requests.get(&id).cloned() else { return Ok(None) };
        let attempts: Vec<_> = rows.attempts.into_values().filter(|row| row.request_id == id).collect();
        let outcomes: Vec<_> = rows.outcomes.into_values().filter(|row| row.request_id == id).collect();
        let lines = lines(&request, &attempts, &outcomes);
        Ok(Some(History { request, attempts, outcomes, selection_table: None, names: Default::default(), lines }))
    }

    async fn edits(&self, query: &ConfigHistoryQuery) -> Result<Vec<ConfigHistoryRow>, StoreError> {
        self.reach()?;
        let rows = self.config().await.0.history.into_values().rev();
        let rows = rows.filter(|row| query.entity.as_ref().is_none_or(|entity| *entity == row.entity));
        let rows = rows.filter(|row| query.entity_id.as_ref().is_none_or(|id| *id == row.entity_id));
        let rows = rows.filter(|row| query.before.is_none_or(|before| row.position < before));
        Ok(rows.take(query.limit as usize).collect())
    }

    async fn shadows(&self, _: LogTime, _: u32) -> Result<ShadowReport, StoreError> {
        self.reach()?;
        let attempts = self.traffic().await.attempts;
        let failed = attempts.values().filter(|row| row.kind.is_some_and(|kind| kind != FailureKind::Success));
        let differences = attempts.values().filter_map(|row| {
            let shadow = row.shadow.clone()?;
            Some(ShadowDifference {
                rule: row.rule.clone()?,
                kind: row.kind?.to_string(),
                candidate_rule: shadow.rule,
                candidate_kind: shadow.kind.to_string(),
                differs: shadow.differs,
                attempts: 1,
                request: row.request_id,
            })
        });
        Ok(ShadowReport { failures: failed.count() as u64, differences: differences.collect() })
    }

    async fn transitions(
        &self,
        source: Source,
        _: Option<LogTime>,
        limit: u32,
    ) -> Result<Vec<TransitionRow>, StoreError> {
        self.reach()?;
        let rows = self.traffic().await.transitions.into_values();
        Ok(rows.filter(|row| row.source == source).take(limit as usize).collect())
    }

    async fn causes(&self, _: Source, _: &[TransitionRow]) -> Result<BTreeMap<String, CauseAttempt>, StoreError> {
        self.reach()?;
        Ok(BTreeMap::new())
    }

    async fn moves(&self, sources: &[Source], since: LogTime, limit: u32) -> Result<Vec<Move>, StoreError> {
        self.reach()?;
        let mut moves: BTreeMap<_, Move> = BTreeMap::new();
        for row in self.traffic().await.requests.into_values().rev() {
            let wanted = |skip: &&Skip| sources.contains(&skip.source) && row.request_id.admitted_at() >= since;
            for skip in row.skips.iter().chain(&row.last_skips).filter(wanted) {
                let moved = moves.entry((skip.source, skip.why)).or_insert_with(|| Move {
                    source: skip.source,
                    group: row.group_id,
                    why: skip.why.as_str().to_owned(),
                    requests: 0,
                    last: Vec::new(),
                });
                moved.requests += 1;
                moved.last.push(row.request_id);
            }
        }
        Ok(moves.into_values().take(limit as usize).collect())
    }

    async fn ended(&self, _: &[Source], _: LogTime, _: u32) -> Result<BTreeMap<Source, Vec<Ended>>, StoreError> {
        self.reach()?;
        Ok(BTreeMap::new())
    }
}

/// What the API answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    /// The code of a problem.
    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    /// The body, if the status is the one that was expected.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{:#}", self.body);
        self.body
    }

    /// The problem's code, if the status is the one that was expected.
    #[track_caller]
    pub(crate) fn refused(self, status: u16, code: &str) -> Value {
        assert_eq!((self.status.as_u16(), self.code()), (status, code), "{:#}", self.body);
        assert!(self.body["request_id"].is_string(), "{:#}", self.body);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        self.body
    }
}

/// The desk. Its tasks end when it is dropped.
pub(crate) struct Desk {
    pub(crate) memory: Memory,
    pub(crate) rows: FoldedRows,
    pub(crate) token: String,
    router: Router,
    stop: CancellationToken,
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(crate) fn now() -> LogTime {
    "2026-11-29T12:00:00Z".parse().unwrap()
}

impl Desk {
    /// A desk over a fresh log, with one admin token.
    pub(crate) async fn new() -> Self {
        let memory = Memory::started_at(now());
        let journal = memory.journal();
        Self::over(memory, journal).await
    }

    /// A desk that reaches the log through `journal`, which may misbehave once the desk stands.
    pub(crate) async fn over(memory: Memory, journal: Journal) -> Self {
        let _first_wins = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let peppers = Arc::new(Peppers::generate().unwrap());
        let token = bootstrap(&memory.journal(), &peppers, "ann", false).await.unwrap();
        let rows = FoldedRows::new(memory.journal().log);
        let clock = memory.clone();
        let parts = Parts {
            journal,
            vault: Arc::new(Vault::new(KeyRing::generate().unwrap())),
            peppers,
            reads: SharedReads::new(rows.clone()),
            dispatcher: Dispatcher::new(&DispatchConfig::default()).unwrap(),
            producer: "admin-1".parse().unwrap(),
            clock: Arc::new(move || clock.now()),
        };
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let state = State::start(parts, &tasks, stop.clone());
        state.fold().loaded(Duration::from_secs(5)).await.unwrap();
        Self { memory, rows, token: token.expose_secret().to_owned(), router: waybill_admin::router(state), stop }
    }

    pub(crate) fn postgres_away(&self, away: bool) {
        self.rows.away.store(away, Ordering::SeqCst);
    }

    pub(crate) fn projector_behind(&self, behind: bool) {
        self.rows.lagging.store(behind, Ordering::SeqCst);
    }

    /// The raw answer.
    pub(crate) async fn raw(&self, request: Request<Body>) -> http::Response<Body> {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(crate) fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Request<Body> {
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/v1{path}"))
            .header("authorization", format!("Bearer {}", self.token));
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        request.body(body).unwrap()
    }

    pub(crate) async fn ask(&self, request: Request<Body>) -> Answer {
        let response = self.raw(request).await;
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Answer { status, headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(self.request(Method::GET, path, None)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.ask(self.request(Method::POST, path, Some(&body))).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Answer {
        self.ask(self.request(Method::PATCH, path, Some(&body))).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.ask(self.request(Method::PUT, path, Some(&body))).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.ask(self.request(Method::DELETE, path, None)).await
    }

    /// Everything that the log holds, as text.
    pub(crate) async fn everything(&self) -> String {
        let mut all = String::new();
        for stream in Stream::ALL {
            for message in self.memory.journal().log.read(stream, 1, 10_000).await.unwrap() {
                all.push_str(&String::from_utf8_lossy(&message.payload));
                all.push('\n');
            }
        }
        all
    }

    /// Sequence of the last edit.
    pub(crate) async fn last_edit(&self) -> u64 {
        self.memory.journal().log.bounds(Stream::Config).await.unwrap().last
    }
}
