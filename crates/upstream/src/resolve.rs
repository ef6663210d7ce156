//! Name resolution that gives out only addresses that may be dialled, so that the check holds at connect time.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec;

use hyper_util::client::legacy::connect::dns::Name;
use tower::Service;

use crate::guard::{self, Refused};
use crate::track::Track;

/// Why a name gave no address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveFault {
    #[error("the name doesn't resolve: {0}")]
    Lookup(String),
    #[error("the name has no address")]
    NoAddress,
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// The system's resolver behind the address guard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GuardedResolver {
    pub(crate) allow_private: bool,
}

impl Service<Name> for GuardedResolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = ResolveFault;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ResolveFault>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ResolveFault>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let allow_private = self.allow_private;
        Box::pin(async move {
            let track = Track::resolving();
            let found = tokio::net::lookup_host((name.as_str(), 0)).await;
            let addresses = found.map_err(|fault| ResolveFault::Lookup(fault.to_string()))?;
            let permitted = permitted(addresses, allow_private)?;
            if let Some(track) = track {
                track.resolved();
            }
            Ok(permitted.into_iter())
        })
    }
}

/// Keeps what may be dialled; if nothing is left, the first refusal says why.
fn permitted(
    addresses: impl Iterator<Item = SocketAddr>,
    allow_private: bool,
) -> Result<Vec<SocketAddr>, ResolveFault> {
    let mut permitted = Vec::new();
    let mut refused = None;
    for address in addresses {
        match guard::check(address.ip(), allow_private) {
            Ok(()) => permitted.push(address),
            Err(why) => refused = refused.or(Some(why)),
        }
    }
    match (permitted.is_empty(), refused) {
        (false, _) => Ok(permitted),
        (true, Some(why)) => Err(why.into()),
        (true, None) => Err(ResolveFault::NoAddress),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(addresses: &[&str], allow_private: bool, expected: &[&str]) {
        let parse = |texts: &[&str]| -> Vec<SocketAddr> { texts.iter().map(|text| text.parse().unwrap()).collect() };
        let left = permitted(parse(addresses).into_iter(), allow_private).unwrap_or_default();
        assert_eq!(left, parse(expected));
    }

    #[test]
    fn only_permitted_addresses_are_given_out() {
        check(&["10.0.0.1:0", "1.1.1.1:0", "169.254.169.254:0"], false, &["1.1.1.1:0"]);
        check(&["10.0.0.1:0", "1.1.1.1:0", "169.254.169.254:0"], true, &["10.0.0.1:0", "1.1.1.1:0"]);
        check(&["10.0.0.1:0", "[::1]:0"], false, &[]);
        check(&["169.254.169.254:0"], true, &[]);
        check(&[], true, &[]);
    }
}
