//! One attempt at one source: the request goes out, the answer's head comes back, or a fact says why not.

mod connect;
mod endpoint;
mod exclusive;
mod gate;
mod pool;
mod sender;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request};
use waybill_domain::observation::TransportFault;
use waybill_wire::headers;

use crate::exchange::Exchange;
use crate::fault;
use crate::guard;
use crate::reply::Reply;
use crate::target::Target;
use crate::track::Track;

use connect::Connector;
use pool::Pool;

pub(crate) use connect::ConnectFault;
pub(crate) use endpoint::{Endpoint, NoEndpoint};
pub(crate) use pool::Lease;

/// A dead connection shows within a round trip. What breaks off later may have been worked on, and is a failure.
const STALE_WITHIN: Duration = Duration::from_secs(2);
const US: HeaderValue = HeaderValue::from_static(concat!("waybill/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
/// A compressed answer couldn't be read for usage and errors.
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

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
pub enum BuildError {
    /// No cryptography was installed in the process.
    #[error("no rustls provider is installed")]
    NoProvider,
    /// The system's certificates can't be used.
    #[error("TLS for upstreams can't be set up")]
    Tls(#[from] std::io::Error),
}

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
pub struct Outbound<'a> {
    /// The endpoint under the base URL, such as `chat/completions`.
    pub path: &'static str,
    /// What goes out of the client's headers.
    pub headers: &'a headers::ToUpstream,
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
    /// Two of a kind, so that a connection made for a channel with `allow_private` never serves one without.
    Network {
        public: Network,
        private: Network,
    },
    Within(Arc<dyn Exchange>),
}

#[derive(Debug, Clone)]
struct Network {
    connector: Connector,
    pool: Arc<Pool>,
}

impl Dispatcher {
    /// A dispatcher. A rustls provider must be installed in the process before.
    ///
    /// # Errors
    /// [`BuildError`] if TLS can't be set up, such as without a provider.
    pub fn new(config: &DispatchConfig) -> Result<Self, BuildError> {
        let network = |allow_private| {
            let connector = Connector::new(allow_private)?;
            Ok::<_, BuildError>(Network { connector, pool: Pool::new(config.clone()) })
        };
        Ok(Self { way: Way::Network { public: network(false)?, private: network(true)? } })
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
    pub async fn dispatch(
        &self,
        target: &Target,
        outbound: Outbound<'_>,
        limits: Limits,
    ) -> Result<Reply, TransportFault> {
        let endpoint = target.endpoint(outbound.path).map_err(|fault| fault::unaddressable(&fault))?;
        let accept = if outbound.accept_stream { EVENT_STREAM } else { JSON };
        let (from_client, kind) = (Some(outbound.headers), Some(JSON));
        let asked = Asked { from_client, kind, accept, ..Asked::of(target, Method::POST, outbound.body) };
        self.send(&endpoint, asked, limits).await
    }

    /// Asks an endpoint without a body.
    pub(crate) async fn get(&self, target: &Target, path: &str, limits: Limits) -> Result<Reply, TransportFault> {
        let endpoint = target.endpoint(path).map_err(|fault| fault::unaddressable(&fault))?;
        self.send(&endpoint, Asked::of(target, Method::GET, Bytes::new()), limits).await
    }

    /// Asks an endpoint that no target has, once: over a connection of its own, without a credential in its headers.
    pub(crate) async fn send_once(
        &self,
        endpoint: &Endpoint,
        once: Once,
        limits: Limits,
    ) -> Result<Reply, TransportFault> {
        let Once { method, kind, body, allow_private } = once;
        let kind = Some(kind);
        let (from_client, authorization) = (None, None);
        let asked = Asked { authorization, allow_private, once: true, method, from_client, kind, accept: JSON, body };
        self.send(endpoint, asked, limits).await
    }

    async fn send(&self, endpoint: &Endpoint, asked: Asked<'_>, limits: Limits) -> Result<Reply, TransportFault> {
        // The resolver isn't asked about addresses, so those are checked here.
        if let Some(address) = endpoint.address {
            guard::check(address, asked.allow_private).map_err(fault::refused)?;
        }
        let track = Track::new(limits.connect);
        let sending = async {
            match &self.way {
                Way::Network { private, .. } if asked.allow_private => private.send(endpoint, asked, &track).await,
                Way::Network { public, .. } => public.send(endpoint, asked, &track).await,
                Way::Within(exchange) => exchange.exchange(asked.bare(endpoint)).await.map(Reply::within),
            }
        };
        match tokio::time::timeout(limits.head, sending).await {
            Ok(outcome) => outcome,
            Err(_) => Err(fault::head_timed_out(&track)),
        }
    }
}

impl Network {
    async fn send(&self, endpoint: &Endpoint, asked: Asked<'_>, track: &Track) -> Result<Reply, TransportFault> {
        let began = Instant::now();
        let mut resent = false;
        loop {
            let fresh = resent || asked.once;
            let waiting = if fresh { None } else { self.pool.take(&endpoint.origin, began).await };
            let sender = match waiting {
                Some(sender) => sender,
                None => {
                    // Few requests connect; the others shouldn't carry the room for it.
                    let connected = Box::pin(self.connector.connect(endpoint, track, &self.pool.tasks)).await;
                    let sender = connected.map_err(|error| fault::connecting(&error, track))?;
                    self.pool.share(&endpoint.origin, &sender);
                    sender
                }
            };
            match sender.send(endpoint, asked.method.clone(), asked.headers(), asked.body.clone()).await {
                Ok((answer, connection)) => {
                    let (pool, origin) = (&self.pool, &endpoint.origin);
                    let lease =
                        connection.map(|connection| Lease { pool: pool.clone(), origin: origin.clone(), connection });
                    return Ok(Reply::over(answer, lease, resent));
                }
                Err(error) if !fresh && began.elapsed() < STALE_WITHIN && fault::is_stale(&error, track) => {
                    tracing::debug!("a pooled connection was dead, sending once more on a fresh one");
                    resent = true;
                }
                Err(error) => return Err(fault::before_head(&error)),
            }
        }
    }
}

/// What [`Dispatcher::send_once`] sends.
pub(crate) struct Once {
    pub(crate) method: Method,
    /// Content type of the body.
    pub(crate) kind: HeaderValue,
    pub(crate) body: Bytes,
    pub(crate) allow_private: bool,
}

/// A request before it has a connection.
struct Asked<'a> {
    authorization: Option<&'a HeaderValue>,
    allow_private: bool,
    /// Whether it must not go out twice, nor over a connection that may be dead already.
    once: bool,
    method: Method,
    from_client: Option<&'a headers::ToUpstream>,
    kind: Option<HeaderValue>,
    accept: HeaderValue,
    body: Bytes,
}

impl<'a> Asked<'a> {
    /// A request to a target, with nothing of a client's and for JSON.
    fn of(target: &'a Target, method: Method, body: Bytes) -> Self {
        Self {
            authorization: Some(&target.authorization),
            allow_private: target.allow_private,
            once: false,
            method,
            from_client: None,
            kind: None,
            accept: JSON,
            body,
        }
    }

    /// All headers but `host`.
    fn headers(&self) -> HeaderMap {
        let mut headers = self.from_client.map_or_else(HeaderMap::new, headers::ToUpstream::to_map);
        if let Some(kind) = &self.kind {
            headers.entry(CONTENT_TYPE).or_insert_with(|| kind.clone());
        }
        headers.entry(ACCEPT).or_insert_with(|| self.accept.clone());
        headers.insert(USER_AGENT, US);
        if let Some(authorization) = self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        headers.insert(ACCEPT_ENCODING, IDENTITY);
        headers
    }

    fn bare(self, endpoint: &Endpoint) -> Request<Bytes> {
        let headers = self.headers();
        let mut bare = Request::new(self.body);
        *bare.method_mut() = self.method;
        *bare.headers_mut() = headers;
        bare.uri_mut().clone_from(&endpoint.uri);
        bare
    }
}
