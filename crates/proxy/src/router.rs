//! The paths that clients use, and the answers to those that don't exist: errors in the client's protocol, too.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::{get, post};
use http::header::CONNECTION;
use http::{HeaderValue, Method, Response};
use tower::ServiceExt as _;
use tracing::{Instrument as _, Span};
use waybill_domain::verdict::PublicCode;

use crate::answer::{Ids, Refusal};
use crate::inbound::{Wishes, discard_refused};
use crate::replica::Replica;
use crate::{chat, models};

const CHAT: &str = "/v1/chat/completions";

/// All routes of the data plane.
pub fn router(replica: Arc<Replica>) -> Router {
    Router::new()
        .route(CHAT, post(chat::chat))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*model}", get(models::one))
        .route("/", get(|| async { "Waybill\n" }))
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .layer(from_fn_with_state(replica.clone(), layer))
        .with_state(replica)
}

/// The data plane behind a listener. Chat requests go straight to their handler, past the router and its layers, which
/// cost each of them more than they do for it; everything else goes through [`router`].
#[derive(Clone)]
pub struct Front {
    replica: Arc<Replica>,
    others: Router,
}

impl Front {
    /// The data plane of a replica.
    #[must_use]
    pub fn new(replica: Arc<Replica>) -> Self {
        Self { others: router(replica.clone()), replica }
    }
}

impl hyper::service::Service<http::Request<hyper::body::Incoming>> for Front {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, request: http::Request<hyper::body::Incoming>) -> Self::Future {
        let request = request.map(Body::new);
        if request.method() != Method::POST || request.uri().path() != CHAT {
            return Box::pin(self.others.clone().oneshot(request));
        }
        let replica = self.replica.clone();
        let span = span(&request);
        let told = span.clone();
        let served = async move {
            let answer = chat::chat(State(replica.clone()), request).await;
            Ok(finish(&replica, &told, answer))
        };
        // A span that nobody listens to isn't entered at every poll.
        if span.is_disabled() { Box::pin(served) } else { Box::pin(served.instrument(span)) }
    }
}

async fn layer(State(replica): State<Arc<Replica>>, request: Request, next: Next) -> Response<Body> {
    let span = span(&request);
    let answer = next.run(request).instrument(span.clone()).await;
    finish(&replica, &span, answer)
}

/// One span per request, for those who look closely: what is logged of a request otherwise names it itself.
fn span(request: &Request) -> Span {
    tracing::debug_span!("request", path = request.uri().path(), request_id = tracing::field::Empty)
}

/// Tells the span whose it was; and a replica on its way out asks for its connections to be closed.
fn finish(replica: &Replica, span: &Span, mut answer: Response<Body>) -> Response<Body> {
    if !span.is_disabled()
        && let Some(Ok(id)) = answer.headers().get("x-request-id").map(|id| id.to_str())
    {
        span.record("request_id", id);
        span.in_scope(|| tracing::debug!(status = answer.status().as_u16(), "answered"));
    }
    if replica.is_draining() {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answer
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
