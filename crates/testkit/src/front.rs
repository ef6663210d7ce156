//! The one address in front of the proxies, as `deploy/haproxy/haproxy.cfg` has it: it follows their readiness, twice a
//! second and at its first word; a request goes to the ready one with the fewest open requests; and only one whose
//! connection was refused, which means that it was never sent, goes to another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::Fleet;

/// `inter` of the servers' checks; a check that takes longer has failed.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// `retries`.
const RETRIES: usize = 2;

/// What stands in front of the proxies.
#[derive(Debug)]
pub struct Front {
    backends: Vec<Arc<Backend>>,
    _checks: JoinSet<()>,
}

#[derive(Debug)]
struct Backend {
    name: String,
    url: String,
    ready: AtomicBool,
    open: AtomicUsize,
}

impl Front {
    /// In front of all proxies of a fleet.
    #[must_use]
    pub fn of(fleet: &Fleet) -> Self {
        let (mut backends, mut checks) = (Vec::new(), JoinSet::new());
        for (number, url) in (1..).zip(fleet.proxies()) {
            let name = format!("proxy-{number}");
            let ready = format!("{}/readyz", fleet.ops_url(&name));
            let backend = Backend { name, url: url.clone(), ready: true.into(), open: 0.into() };
            let backend = Arc::new(backend);
            checks.spawn(check(fleet.http().clone(), ready, Arc::clone(&backend)));
            backends.push(backend);
        }
        Self { backends, _checks: checks }
    }

    /// One address that is always there: somebody else's balancer.
    #[must_use]
    pub fn at(name: &str, url: &str) -> Self {
        let backend = Backend { name: name.to_owned(), url: url.to_owned(), ready: true.into(), open: 0.into() };
        Self { backends: vec![Arc::new(backend)], _checks: JoinSet::new() }
    }

    /// The proxy that the next request goes to, one that hasn't refused it before if there is any; `None` where none is
    /// ready, or as often as the balancer tries again it was refused.
    #[must_use]
    pub fn pick(&self, refused_by: &[String]) -> Option<Open> {
        if refused_by.len() > RETRIES {
            return None;
        }
        let ready = self.backends.iter().filter(|backend| backend.ready.load(Ordering::Relaxed));
        let rank = |backend: &&Arc<Backend>| {
            let before = refused_by.contains(&backend.name);
            (before, backend.open.load(Ordering::Relaxed))
        };
        let backend = ready.min_by_key(rank)?;
        backend.open.fetch_add(1, Ordering::Relaxed);
        Some(Open(Arc::clone(backend)))
    }
}

/// A request that is open at a proxy, until it is dropped: a client that goes away drops it, too.
#[derive(Debug)]
pub struct Open(Arc<Backend>);

impl Open {
    /// The proxy's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The proxy's base URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.0.url
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn check(http: reqwest::Client, url: String, backend: Arc<Backend>) {
    let mut every = tokio::time::interval(CHECK_EVERY);
    loop {
        every.tick().await;
        let answer = http.get(&url).timeout(CHECK_EVERY).send().await;
        backend.ready.store(answer.is_ok_and(|answer| answer.status().is_success()), Ordering::Relaxed);
    }
}
