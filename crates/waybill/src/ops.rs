//! Health: alive, ready, and how far behind, asked apart; and the metrics. Served on its own address, so that none of
//! it is reachable where clients are.

use std::sync::Arc;

use async_trait::async_trait;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;

/// One thing a role depends on.
#[derive(Debug, Clone, Serialize)]
pub struct Dependency {
    /// Its name: `log`, `catalogue`, `selector_state`, `clock`, `outbox`, `postgres` …
    pub name: &'static str,
    /// Whether the role may serve with it as it is.
    pub ready: bool,
    /// Its state in a word or two.
    pub state: String,
    /// How far behind it is, in milliseconds, where that can be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_ms: Option<u64>,
    /// How many positions are missing to the log's end, where that can be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// The position reached, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
}

impl Dependency {
    /// A dependency that is as it should be, or isn't.
    pub fn new(name: &'static str, ready: bool, state: impl Into<String>) -> Self {
        Self { name, ready, state: state.into(), lag_ms: None, behind: None, position: None }
    }
}

/// What a role tells of itself.
#[async_trait]
pub trait Role: Send + Sync + 'static {
    /// The role's name.
    fn name(&self) -> &str;
    /// Everything it depends on, with state and lag.
    async fn dependencies(&self) -> Vec<Dependency>;
    /// Whether it is on its way out: then it isn't ready, whatever it depends on.
    fn draining(&self) -> bool;
    /// Its metrics, in the text form of OpenMetrics.
    fn metrics(&self) -> String;
    /// Further facts for people, as JSON: `/state`.
    fn state(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// Whether a role is ready, and why.
#[derive(Debug, Clone, Serialize)]
pub struct Readiness {
    /// The role's name.
    pub role: String,
    /// Whether it may be sent work.
    pub ready: bool,
    /// Whether it is on its way out.
    pub draining: bool,
    /// Everything it depends on.
    pub dependencies: Vec<Dependency>,
}

impl Readiness {
    /// Asks a role.
    pub async fn of(role: &dyn Role) -> Self {
        let dependencies = role.dependencies().await;
        let draining = role.draining();
        let ready = !draining && dependencies.iter().all(|d| d.ready);
        Self { role: role.name().to_owned(), ready, draining, dependencies }
    }
}

/// The routes `/healthz`, `/readyz`, `/metrics` and `/state` of a role.
pub fn router(role: Arc<dyn Role>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/state", get(state))
        .with_state(role)
}

async fn ready(State(role): State<Arc<dyn Role>>) -> Response {
    let readiness = Readiness::of(role.as_ref()).await;
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(readiness)).into_response()
}

async fn metrics(State(role): State<Arc<dyn Role>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], role.metrics()).into_response()
}

async fn state(State(role): State<Arc<dyn Role>>) -> Response {
    Json(role.state()).into_response()
}
