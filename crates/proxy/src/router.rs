//! The paths that clients use, and the answers to those that don't exist: errors in the client's protocol, too.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::{get, post};
use http::header::CONNECTION;
use http::{HeaderValue, Response};
use tracing::Instrument;
use waybill_domain::verdict::PublicCode;

use crate::answer::{Ids, Refusal};
use crate::inbound::{Wishes, discard_refused};
use crate::replica::Replica;
use crate::{chat, models};

/// All routes of the data plane.
pub fn router(replica: Arc<Replica>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat::chat))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*model}", get(models::one))
        .route("/", get(|| async { "Waybill\n" }))
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .layer(from_fn_with_state(replica.clone(), around))
        .with_state(replica)
}

/// One span per request, for those who look closely: what is logged of a request otherwise names it itself. And a
/// replica on its way out asks for its connections to be closed.
async fn around(State(replica): State<Arc<Replica>>, request: Request, next: Next) -> Response<Body> {
    let span = tracing::debug_span!("request", path = request.uri().path(), request_id = tracing::field::Empty);
    let mut response = next.run(request).instrument(span.clone()).await;
    if !span.is_disabled()
        && let Some(Ok(id)) = response.headers().get("x-request-id").map(|id| id.to_str())
    {
        span.record("request_id", id);
        span.in_scope(|| tracing::debug!(status = response.status().as_u16(), "answered"));
    }
    if replica.is_draining() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn not_found(State(replica): State<Arc<Replica>>, request: Request) -> Response<Body> {
    let message = format!("There is nothing at {} {}.", request.method(), request.uri().path());
    refuse(&replica, request, PublicCode::NotFound, message).await
}

async fn not_allowed(State(replica): State<Arc<Replica>>, request: Request) -> Response<Body> {
    let message = format!("{} doesn't take {}.", request.uri().path(), request.method());
    refuse(&replica, request, PublicCode::MethodNotAllowed, message).await
}

async fn refuse(replica: &Replica, request: Request, code: PublicCode, message: String) -> Response<Body> {
    let now = (replica.clock)().unwrap_or_default();
    let client = Wishes::of(request.headers()).client_id;
    discard_refused(request.into_body()).await;
    let ids = Ids { request: replica.new_request(now), client };
    replica.metrics.refused(code.as_str());
    Refusal::saying(code, message).response(&ids)
}
