//! Connections that wait for their next request.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use foldhash::HashMap;
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use super::DispatchConfig;
use super::exclusive::Exclusive;
use super::sender::{Http2, Sender};

/// All connections of one kind of targets, by origin.
#[derive(Debug)]
pub(super) struct Pool {
    config: DispatchConfig,
    hosts: Mutex<HashMap<Arc<str>, Host>>,
    /// The tasks of connections, and the one that looks after the idle.
    pub(super) tasks: TaskTracker,
    sweeping: OnceLock<()>,
}

/// What there is of one origin.
#[derive(Debug, Default)]
struct Host {
    /// Connections that serve nobody, the one used last at the end.
    idle: Vec<Idle>,
    /// A connection that serves many at the same time.
    shared: Option<(Http2, Instant)>,
}

#[derive(Debug)]
struct Idle {
    connection: Exclusive,
    since: Instant,
}

impl Pool {
    pub(super) fn new(config: DispatchConfig) -> Arc<Self> {
        Arc::new(Self { config, hosts: Mutex::default(), tasks: TaskTracker::new(), sweeping: OnceLock::new() })
    }

    /// A connection that is there already, by now. It may turn out to be dead.
    pub(super) async fn take(&self, origin: &str, now: Instant) -> Option<Sender> {
        loop {
            match self.pop(origin, now)? {
                // Its end may just not have been noticed.
                Sender::Http1(mut connection) => {
                    if connection.is_free().await {
                        return Some(Sender::Http1(connection));
                    }
                }
                shared @ Sender::Http2(_) => return Some(shared),
            }
        }
    }

    fn pop(&self, origin: &str, now: Instant) -> Option<Sender> {
        let mut hosts = self.hosts.lock();
        let host = hosts.get_mut(origin)?;
        if let Some((sender, used)) = &mut host.shared {
            if !sender.is_closed() {
                *used = now;
                return Some(Sender::Http2(sender.clone()));
            }
            host.shared = None;
        }
        while let Some(Idle { connection, since }) = host.idle.pop() {
            if !connection.is_closed() && now.saturating_duration_since(since) < self.config.idle_timeout {
                return Some(Sender::Http1(connection));
            }
        }
        None
    }

    /// A new connection, before its first request: one that others can use, too, is there for them at once.
    pub(super) fn share(self: &Arc<Self>, origin: &Arc<str>, sender: &Sender) {
        self.sweeping.get_or_init(|| {
            self.tasks.spawn(sweep(Arc::downgrade(self)));
        });
        if let Sender::Http2(sender) = sender {
            let mut hosts = self.hosts.lock();
            hosts.entry(origin.clone()).or_default().shared = Some((sender.clone(), Instant::now()));
        }
    }

    fn put(&self, origin: Arc<str>, connection: Exclusive) {
        if connection.is_closed() {
            return;
        }
        connection.rest();
        let mut hosts = self.hosts.lock();
        let host = hosts.entry(origin).or_default();
        if host.idle.len() < self.config.max_idle_per_host {
            host.idle.push(Idle { connection, since: Instant::now() });
        }
    }

    /// Closes what has been idle for too long.
    fn expire(&self) {
        let timeout = self.config.idle_timeout;
        self.hosts.lock().retain(|_, host| {
            host.idle.retain_mut(|idle| idle.since.elapsed() < timeout && !idle.connection.has_ended());
            // A request under way has a sender of its own, so that its connection outlives this one.
            host.shared.take_if(|(sender, used)| sender.is_closed() || used.elapsed() >= timeout);
            !host.idle.is_empty() || host.shared.is_some()
        });
    }
}

async fn sweep(pool: Weak<Pool>) {
    loop {
        let Some(pause) = pool.upgrade().map(|pool| pool.config.idle_timeout / 2) else { return };
        tokio::time::sleep(pause.max(std::time::Duration::from_millis(100))).await;
        let Some(pool) = pool.upgrade() else { return };
        pool.expire();
    }
}

/// A connection that serves one request. Dropped, it closes; given back, it serves others.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(super) pool: Arc<Pool>,
    pub(super) origin: Arc<str>,
    pub(crate) connection: Exclusive,
}

impl Lease {
    /// The answer has been read to its end: the connection can serve others once it says so itself.
    pub(crate) fn give_back(self) {
        let Self { pool, origin, mut connection } = self;
        if connection.is_ready() {
            pool.put(origin, connection);
        } else if !connection.is_closed() {
            let tasks = pool.tasks.clone();
            tasks.spawn(async move {
                if connection.is_free().await {
                    pool.put(origin, connection);
                }
            });
        }
    }
}
