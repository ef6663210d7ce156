//! One attempt at one source: the request goes out, the answer's head comes back, or a fact says why not.

mod client;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use reqwest::Body;
use url::{Host, Url};
use waybill_domain::observation::TransportFault;
use waybill_wire::headers;

use crate::exchange::Exchange;
use crate::fault;
use crate::guard;
use crate::reply::Reply;
use crate::target::Target;
use crate::track::Track;

use client::Clients;

/// A dead connection shows within a round trip. What breaks off later may have been worked on, and is a failure.
const STALE_WITHIN: Duration = Duration::from_secs(2);

/// Settings of the connections, the same for all targets.
#[derive(Debug, Clone)]
pub struct DispatchConfig {
    /// How long an idle connection is kept. Some servers close theirs after 5 s; a dead one costs one fresh resend.
    pub idle_timeout: Duration,
    /// Most idle connections kept per host.
    pub max_idle_per_host: usize,
}

impl Default for DispatchConfig {
    fn default() -> Self {
        Self { idle_timeout: Duration::from_secs(30), max_idle_per_host: 64 }
    }
}

/// The HTTP client couldn't be built.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client for upstreams can't be built")]
pub struct BuildError(#[from] reqwest::Error);

/// Limits of time of one dispatch.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// For resolving, dialling and TLS together.
    pub connect: Duration,
    /// From the start until the answer's head, connecting included.
    pub head: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), head: Duration::from_secs(60) }
    }
}

/// A request on its way out.
#[derive(Debug, Clone)]
pub struct Outbound {
    /// The endpoint under the base URL, such as `chat/completions`.
    pub path: &'static str,
    /// The client's headers; only those of the allow-list go out.
    pub headers: HeaderMap,
    /// The body, sent as it is.
    pub body: Bytes,
    /// Whether an event stream is wanted, where the client said nothing.
    pub accept_stream: bool,
}

/// Sends attempts. One per process, shared; cheap to clone.
#[derive(Debug, Clone)]
pub struct Dispatcher {
    way: Way,
}

#[derive(Debug, Clone)]
enum Way {
    Network(Clients),
    Within(Arc<dyn Exchange>),
}

impl Dispatcher {
    /// A dispatcher. A rustls provider must be installed in the process before.
    ///
    /// # Errors
    /// [`BuildError`] if TLS can't be set up, such as without a provider.
    pub fn new(config: &DispatchConfig) -> Result<Self, BuildError> {
        Ok(Self { way: Way::Network(Clients::build(config)?) })
    }

    /// A dispatcher that sends nothing over a network, for simulations.
    #[must_use]
    pub fn within(exchange: Arc<dyn Exchange>) -> Self {
        Self { way: Way::Within(exchange) }
    }

    /// Sends one request and waits for the answer's head. Dropping the future closes the connection at once.
    ///
    /// # Errors
    /// [`TransportFault`] if no head comes.
    pub async fn dispatch(&self, target: &Target, outbound: Outbound, limits: Limits) -> Result<Reply, TransportFault> {
        let url = target.url(outbound.path);
        let mut headers = headers::outbound(&outbound.headers);
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        let accept = if outbound.accept_stream { "text/event-stream" } else { "application/json" };
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static(accept));
        self.send(target, Request { method: Method::POST, url, headers, body: Some(outbound.body) }, limits).await
    }

    /// Asks an endpoint without a body.
    pub(crate) async fn get(&self, target: &Target, path: &str, limits: Limits) -> Result<Reply, TransportFault> {
        let url = target.url(path);
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
        self.send(target, Request { method: Method::GET, url, headers, body: None }, limits).await
    }

    async fn send(&self, target: &Target, mut request: Request, limits: Limits) -> Result<Reply, TransportFault> {
        // The resolver isn't asked about addresses, so those are checked here.
        check_literal(&request.url, target.allow_private).map_err(fault::refused)?;
        request.headers.insert(AUTHORIZATION, target.authorization.clone());
        // A compressed answer couldn't be read for usage and errors.
        request.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));

        let track = Track::new(limits.connect);
        let clients = match &self.way {
            Way::Network(clients) => clients.for_target(target.allow_private),
            Way::Within(exchange) => {
                let exchanging = exchange.exchange(request.bare());
                return match tokio::time::timeout(limits.head, exchanging).await {
                    Ok(answered) => answered.map(|answer| Reply::new(answer.map(Body::wrap_stream).into(), false)),
                    Err(_) => Err(fault::head_timed_out(&track)),
                };
            }
        };
        let began = Instant::now();
        let sending = async {
            let first = track.scope(clients.pooled.execute(request.build())).await;
            match first {
                Ok(response) => Ok(Reply::new(response, false)),
                Err(error) if began.elapsed() < STALE_WITHIN && fault::is_stale(&error, &track) => {
                    tracing::debug!("a pooled connection was dead, sending once more on a fresh one");
                    let response = track.scope(clients.fresh.execute(request.build())).await;
                    response
                        .map(|response| Reply::new(response, true))
                        .map_err(|error| fault::before_head(&error, &track))
                }
                Err(error) => Err(fault::before_head(&error, &track)),
            }
        };
        match tokio::time::timeout(limits.head, sending).await {
            Ok(outcome) => outcome,
            Err(_) => Err(fault::head_timed_out(&track)),
        }
    }
}

struct Request {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Option<Bytes>,
}

impl Request {
    fn build(&self) -> reqwest::Request {
        let mut request = reqwest::Request::new(self.method.clone(), self.url.clone());
        *request.headers_mut() = self.headers.clone();
        *request.body_mut() = self.body.clone().map(reqwest::Body::from);
        request
    }
}

impl Request {
    fn bare(self) -> http::Request<Bytes> {
        let mut bare = http::Request::new(self.body.unwrap_or_default());
        *bare.method_mut() = self.method;
        *bare.headers_mut() = self.headers;
        // Every URL that a base URL makes is a URI.
        *bare.uri_mut() = self.url.as_str().parse().unwrap_or_default();
        bare
    }
}

fn check_literal(url: &Url, allow_private: bool) -> Result<(), guard::Refused> {
    match url.host() {
        Some(Host::Ipv4(address)) => guard::check(address.into(), allow_private),
        Some(Host::Ipv6(address)) => guard::check(address.into(), allow_private),
        Some(Host::Domain(_)) | None => Ok(()),
    }
}
