//! An endpoint of an upstream in the forms that requests need, made once.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderValue, Uri};
use url::{Host, Url};

/// A URL, taken apart.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// The whole, as HTTP/2 has it.
    pub(super) uri: Uri,
    /// Its path alone, as HTTP/1 has it.
    pub(super) path: Uri,
    /// The value of `host` for HTTP/1.
    pub(super) host: HeaderValue,
    /// What connections to it have in common: scheme, host and port.
    pub(super) origin: Arc<str>,
    /// The address, where the URL names one instead of a host.
    pub(super) address: Option<IpAddr>,
}

/// The URL is none that can be asked for over HTTP.
#[derive(Debug, thiserror::Error)]
#[error("the URL can't be requested")]
pub(crate) struct NoEndpoint(#[from] http::Error);

impl Endpoint {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// [`NoEndpoint`], which no URL made from a base URL gives a reason to.
    pub(crate) fn of(url: &Url) -> Result<Self, NoEndpoint> {
        let uri: Uri = url.as_str().parse().map_err(http::Error::from)?;
        let path = match uri.path_and_query() {
            Some(path) => Uri::from(path.clone()),
            None => Uri::from_static("/"),
        };
        // The default port isn't written: a URL doesn't keep it.
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let host = HeaderValue::from_str(authority).map_err(http::Error::from)?;
        let origin = format!("{}://{authority}", url.scheme()).into();
        let address = match url.host() {
            Some(Host::Ipv4(address)) => Some(address.into()),
            Some(Host::Ipv6(address)) => Some(address.into()),
            Some(Host::Domain(_)) | None => None,
        };
        Ok(Self { uri, path, host, origin, address })
    }
}
