//! Ports, tasks and the handle.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::answer::Purpose;
use crate::calls::{Call, Calls};
use crate::connection;
use crate::issuer::Issuer;
use crate::script::{Script, Source};

/// Connections at once; one more waits in the port's backlog.
const MAX_CONNECTIONS: usize = 4096;
/// How long a stop may take.
const STOP_DEADLINE: Duration = Duration::from_secs(5);
/// Wait after a failed accept (no file descriptors left, for instance).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Why the server doesn't run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port can't be had.
    #[error("cannot listen for {what}: {source}")]
    Listen {
        /// Whose port.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// A source has no port of its own that could be closed or opened.
    #[error("the source `{0}` has no port of its own")]
    NoOwnPort(String),
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) calls: Calls,
    pub(crate) issuer: Issuer,
    state: Mutex<State>,
    permits: Arc<Semaphore>,
}

#[derive(Debug)]
struct State {
    script: Script,
    turns: BTreeMap<String, usize>,
}

impl Shared {
    /// The source and the number of this call within it. Only chats take turns.
    pub(crate) fn turn(&self, name: &str, purpose: Purpose) -> (Source, usize) {
        let mut state = self.state.lock();
        let source = state.script.sources.get(name).cloned().unwrap_or_default();
        let turn = state.turns.entry(name.to_owned()).or_default();
        let now = *turn;
        if purpose == Purpose::Chat {
            *turn += 1;
        }
        (source, now)
    }
}

/// A port of one source, which can be closed.
#[derive(Debug)]
struct OwnPort {
    port: u16,
    /// `None` while it is closed.
    open: Option<OpenPort>,
}

#[derive(Debug)]
struct OpenPort {
    /// Ends the port and its connections.
    stop: CancellationToken,
    /// Holds the listener.
    task: JoinHandle<()>,
}

/// The running server. Dropping it stops it without waiting.
#[derive(Debug)]
pub struct ScriptedUpstream {
    shared: Arc<Shared>,
    port: u16,
    own: Mutex<BTreeMap<String, OwnPort>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl ScriptedUpstream {
    /// Starts it on free ports of the loopback interface.
    ///
    /// # Errors
    /// [`StartError::Listen`].
    pub async fn start(script: Script) -> Result<Self, StartError> {
        Self::start_on(script, 0).await
    }

    /// Starts it with a given shared port; 0 is a free one.
    ///
    /// # Errors
    /// [`StartError::Listen`].
    pub async fn start_on(script: Script, port: u16) -> Result<Self, StartError> {
        let listener = listen("the shared port", port).await?;
        let port = port_of(&listener, "the shared port")?;
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let own: Vec<String> =
            script.sources.iter().filter(|(_, source)| source.own_port).map(|(name, _)| name.clone()).collect();
        let state = Mutex::new(State { script, turns: BTreeMap::new() });
        let upstream = Self {
            shared: Arc::new(Shared { calls: Calls::default(), issuer: Issuer::default(), state, permits }),
            port,
            own: Mutex::new(BTreeMap::new()),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        let _tracked = upstream.accept(listener, None, upstream.stop.child_token());
        for name in own {
            upstream.open_own(&name, 0).await?;
        }
        Ok(upstream)
    }

    /// Base URL of a source, with `/v1`, as a channel names it.
    #[must_use]
    pub fn base_url(&self, source: &str) -> String {
        match self.own.lock().get(source) {
            Some(own) => format!("http://127.0.0.1:{}/v1", own.port),
            None => format!("http://127.0.0.1:{}/{source}/v1", self.port),
        }
    }

    /// The OAuth server, whose tokens sources may ask for.
    #[must_use]
    pub fn issuer(&self) -> &Issuer {
        &self.shared.issuer
    }

    /// URL of the OAuth server's token endpoint, on the shared port.
    #[must_use]
    pub fn token_endpoint(&self) -> String {
        format!("http://127.0.0.1:{}{}", self.port, connection::TOKEN_PATH)
    }

    /// The shared port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Replaces the script: turns begin anew, replies under way end as they began. Sources keep the ports they have; a
    /// new one has none of its own before [`ScriptedUpstream::open`].
    pub fn set_script(&self, script: Script) {
        let mut state = self.shared.state.lock();
        state.turns.clear();
        state.script = script;
    }

    /// Replaces what one source does: its turns begin anew.
    pub fn set_source(&self, name: &str, source: Source) {
        let mut state = self.shared.state.lock();
        state.turns.remove(name);
        state.script.sources.insert(name.to_owned(), source);
    }

    /// Closes a source's own port: its connections break, and new ones are refused.
    ///
    /// # Errors
    /// [`StartError::NoOwnPort`].
    pub async fn close(&self, source: &str) -> Result<(), StartError> {
        let open = match self.own.lock().get_mut(source) {
            Some(own) => own.open.take(),
            None => return Err(StartError::NoOwnPort(source.to_owned())),
        };
        if let Some(open) = open {
            open.stop.cancel();
            // The port is closed once its task has dropped the listener.
            let _ended_either_way = open.task.await;
        }
        Ok(())
    }

    /// Opens a source's own port again, or gives it one.
    ///
    /// # Errors
    /// [`StartError::Listen`].
    pub async fn open(&self, source: &str) -> Result<(), StartError> {
        let port = match self.own.lock().get(source) {
            Some(OwnPort { open: Some(_), .. }) => return Ok(()),
            Some(OwnPort { port, open: None }) => *port,
            None => 0,
        };
        self.open_own(source, port).await
    }

    /// Calls in the order of their arrival, of all sources.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.shared.calls.all()
    }

    /// Calls that have ended, in the order of their arrival; they are forgotten here. A long run takes them now and then,
    /// since only [`crate::calls::MAX_CALLS`] are kept.
    #[must_use]
    pub fn take_calls(&self) -> Vec<Call> {
        self.shared.calls.take()
    }

    /// Calls of one source in the order of their arrival.
    #[must_use]
    pub fn calls_of(&self, source: &str) -> Vec<Call> {
        self.shared.calls.of(source)
    }

    /// Calls of a source that run now.
    #[must_use]
    pub fn in_flight(&self, source: &str) -> usize {
        self.shared.calls.in_flight(source)
    }

    /// The most calls that a source had at once.
    #[must_use]
    pub fn most_in_flight(&self, source: &str) -> usize {
        self.shared.calls.most_in_flight(source)
    }

    /// Forgets the calls so far and the peaks.
    pub fn forget_calls(&self) {
        self.shared.calls.forget();
    }

    /// Breaks all connections, closes all ports and waits for the tasks, at most five seconds.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(STOP_DEADLINE, self.tasks.wait()).await.is_err() {
            tracing::warn!(tasks = self.tasks.len(), "tasks of the scripted upstream are still running");
        }
    }

    async fn open_own(&self, name: &str, port: u16) -> Result<(), StartError> {
        let listener = listen(name, port).await?;
        let port = port_of(&listener, name)?;
        let stop = self.stop.child_token();
        let task = self.accept(listener, Some(name.to_owned()), stop.clone());
        self.own.lock().insert(name.to_owned(), OwnPort { port, open: Some(OpenPort { stop, task }) });
        Ok(())
    }

    fn accept(&self, listener: TcpListener, own: Option<String>, stop: CancellationToken) -> JoinHandle<()> {
        let (shared, tasks) = (Arc::clone(&self.shared), self.tasks.clone());
        self.tasks.spawn(async move {
            loop {
                let accepted = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    accepted = accept_one(&listener, &shared.permits) => accepted,
                };
                let Some((stream, permit)) = accepted else { continue };
                let (shared, own, stop) = (Arc::clone(&shared), own.clone(), stop.clone());
                tasks.spawn(async move {
                    let _held_while_served = permit;
                    connection::serve(stream, own, &shared, stop).await;
                });
            }
        })
    }
}

impl Drop for ScriptedUpstream {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn accept_one(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, permit)),
        Err(fault) => {
            tracing::debug!(%fault, "cannot accept");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn listen(what: &str, port: u16) -> Result<TcpListener, StartError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .map_err(|source| StartError::Listen { what: what.to_owned(), source })
}

fn port_of(listener: &TcpListener, what: &str) -> Result<u16, StartError> {
    let address = listener.local_addr().map_err(|source| StartError::Listen { what: what.to_owned(), source })?;
    Ok(address.port())
}
