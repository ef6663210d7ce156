//! The HTTP clients: one pair for public targets, one for those that may be private; a pooled client and one that always
//! connects anew.

use std::time::Duration;

use reqwest::{Client, redirect, retry};

use super::DispatchConfig;
use crate::resolve::GuardedResolver;
use crate::track::TrackLayer;

const USER_AGENT: &str = concat!("waybill/", env!("CARGO_PKG_VERSION"));
/// Finds dead peers on connections that are silent while a model thinks.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// The same for HTTP/2, by pings while a request is open.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(20);
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(super) struct Clients {
    public: Pair,
    private: Pair,
}

#[derive(Debug, Clone)]
pub(super) struct Pair {
    pub(super) pooled: Client,
    pub(super) fresh: Client,
}

impl Clients {
    pub(super) fn build(config: &DispatchConfig) -> Result<Self, reqwest::Error> {
        let pair = |allow_private| {
            Ok::<_, reqwest::Error>(Pair {
                pooled: client(config, allow_private, config.max_idle_per_host)?,
                fresh: client(config, allow_private, 0)?,
            })
        };
        Ok(Self { public: pair(false)?, private: pair(true)? })
    }

    /// Separate pools, so that a connection made for a channel with `allow_private` never serves one without.
    pub(super) fn for_target(&self, allow_private: bool) -> &Pair {
        if allow_private { &self.private } else { &self.public }
    }
}

fn client(config: &DispatchConfig, allow_private: bool, max_idle: usize) -> Result<Client, reqwest::Error> {
    Client::builder()
        .user_agent(USER_AGENT)
        // A redirect would carry the credential elsewhere, a proxy from the environment would see it.
        .redirect(redirect::Policy::none())
        .no_proxy()
        // What is sent twice must be seen: the dispatcher does it itself, or nobody.
        .retry(retry::never())
        .referer(false)
        .dns_resolver(GuardedResolver { allow_private })
        .connector_layer(TrackLayer)
        .pool_idle_timeout(config.idle_timeout)
        .pool_max_idle_per_host(max_idle)
        .tcp_nodelay(true)
        .tcp_keepalive(TCP_KEEPALIVE)
        .http2_keep_alive_interval(HTTP2_PING_INTERVAL)
        .http2_keep_alive_timeout(HTTP2_PING_TIMEOUT)
        .build()
}
