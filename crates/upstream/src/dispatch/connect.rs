//! Making a connection: the name is resolved behind the address guard, dialled, secured where the URL says so, and
//! greeted in the version of HTTP that both sides speak.

use std::time::Duration;

use hyper::client::conn::http2;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::{Connection as _, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::crypto::CryptoProvider;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::BuildError;
use super::endpoint::Endpoint;
use super::exclusive::Exclusive;
use super::sender::Sender;
use crate::resolve::GuardedResolver;
use crate::track::{ConnectTimedOut, Stage, Track};

/// Finds dead peers on connections that are silent while a model thinks.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const TCP_KEEPALIVE_RETRIES: u32 = 3;
/// Sent bytes that nobody acknowledges for so long end a connection.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for HTTP/2, by pings while a request is open.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(20);
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(10);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// No connection was made.
#[derive(Debug, thiserror::Error)]
#[error("no connection")]
pub(crate) struct ConnectFault(#[source] pub(crate) BoxError);

/// Makes connections to targets that may, or may not, be private.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    https: HttpsConnector<HttpConnector<GuardedResolver>>,
}

impl Connector {
    pub(super) fn new(allow_private: bool) -> Result<Self, BuildError> {
        let provider = CryptoProvider::get_default().ok_or(BuildError::NoProvider)?.clone();
        let mut http = HttpConnector::new_with_resolver(GuardedResolver { allow_private });
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_keepalive(Some(TCP_KEEPALIVE));
        http.set_keepalive_interval(Some(TCP_KEEPALIVE_INTERVAL));
        http.set_keepalive_retries(Some(TCP_KEEPALIVE_RETRIES));
        http.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT));
        let https = HttpsConnectorBuilder::new()
            .with_provider_and_platform_verifier(provider)?
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(http);
        Ok(Self { https })
    }

    /// Connects within the track's limit. A connection that serves many at a time is driven by a task among `tasks` until it
    /// ends, which it does when its last sender is dropped.
    pub(super) async fn connect(
        &self,
        endpoint: &Endpoint,
        track: &Track,
        tasks: &TaskTracker,
    ) -> Result<Sender, ConnectFault> {
        track.reach(Stage::Connecting);
        let limit = track.connect_limit();
        let dialling = track.scope(self.https.clone().oneshot(endpoint.uri.clone()));
        let io = match tokio::time::timeout(limit, dialling).await {
            Ok(io) => io.map_err(ConnectFault)?,
            Err(_) => return Err(ConnectFault(ConnectTimedOut { limit }.into())),
        };
        let sender = if io.connected().is_negotiated_h2() {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .keep_alive_interval(HTTP2_PING_INTERVAL)
                .keep_alive_timeout(HTTP2_PING_TIMEOUT);
            let (sender, connection) = builder.handshake(io).await.map_err(|error| ConnectFault(error.into()))?;
            tasks.spawn(ended(connection));
            Sender::Http2(sender)
        } else {
            Sender::Http1(Exclusive::over(io).await.map_err(|error| ConnectFault(error.into()))?)
        };
        track.reach(Stage::Connected);
        Ok(sender)
    }
}

/// Drives a connection. What went wrong with it is told to the request that it served.
async fn ended(connection: impl Future<Output = Result<(), hyper::Error>>) {
    if let Err(error) = connection.await {
        tracing::debug!(%error, "an upstream's connection ended");
    }
}
