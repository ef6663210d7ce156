//! What the proxy is compared with: axum in front, reqwest behind, and nothing in between. It knows no keys, plans
//! nothing, reads no body and remembers nothing.

use std::io::Write as _;
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::routing::post;
use tokio::net::TcpListener;

/// What it needs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Base URL of the upstream, without `/v1`.
    #[arg(long)]
    upstream: String,
}

struct Setting {
    client: reqwest::Client,
    url: String,
}

/// Serves until it is killed; the first line on standard output is its address.
///
/// # Errors
/// No port, no client.
pub(crate) async fn run(args: Args) -> Result<()> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .tcp_nodelay(true)
        .build()
        .context("an HTTP client")?;
    let url = format!("{}/v1/chat/completions", args.upstream);
    let router = Router::new()
        .route("/v1/chat/completions", post(pass))
        .layer(DefaultBodyLimit::disable())
        .with_state(Arc::new(Setting { client, url }));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("a port")?;
    println!("{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        let _without = stream.set_nodelay(true);
    });
    axum::serve(listener, router).await.context("serving")
}

async fn pass(State(setting): State<Arc<Setting>>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    let mut request = setting.client.post(&setting.url).body(body);
    for name in [CONTENT_TYPE, ACCEPT, AUTHORIZATION] {
        if let Some(value) = headers.get(&name) {
            request = request.header(name, value);
        }
    }
    match request.send().await {
        Ok(answer) => {
            let status = answer.status();
            let kind = answer.headers().get(CONTENT_TYPE).cloned();
            let mut response = Response::new(Body::from_stream(answer.bytes_stream()));
            *response.status_mut() = status;
            if let Some(kind) = kind {
                response.headers_mut().insert(CONTENT_TYPE, kind);
            }
            response
        }
        Err(error) => refused(&error),
    }
}

fn refused(error: &reqwest::Error) -> Response<Body> {
    let mut response = Response::new(Body::from(error.to_string()));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}
