//! A real nats-server as a child process: one node, or a cluster of several on the loopback interface.

mod cluster;
mod config;
mod health;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use secrecy::SecretString;
use tokio::time::Instant;

pub use cluster::NatsCluster;
pub use config::authorization;

use crate::fetch::{FetchError, Finder, Program};
use crate::files;
use crate::ports::{self, Held};
use crate::shim::Launcher;
use crate::supervise::{Child, Ended, Spec, SuperviseError};

/// How long a node may take until it is healthy. A cluster needs seconds for its elections, a large store for its
/// recovery.
const READY_DEADLINE: Duration = Duration::from_secs(60);
const READY_EVERY: Duration = Duration::from_millis(20);
/// How long a node may take to stop; it writes its state down.
const STOP_DEADLINE: Duration = Duration::from_secs(15);
/// How often other ports are tried when somebody took ours in the meantime.
const PORT_TRIES: usize = 4;
/// What a server's log says when it can't have a port.
const PORT_TAKEN: &str = "address already in use";
/// Ports of a node: for clients, for the monitoring pages, for the other nodes.
const PORTS: usize = 3;

/// A user of the server and what it may do.
#[derive(Debug, Clone)]
pub struct NatsUser {
    /// Its name.
    pub name: String,
    /// Its password.
    pub password: SecretString,
    /// Subjects it may publish to. Answers to requests sent to it are allowed on top.
    pub publish: Vec<String>,
    /// Subjects it may subscribe to.
    pub subscribe: Vec<String>,
}

/// How a node runs.
#[derive(Debug, Clone)]
pub struct NatsConfig {
    /// Its folder: store, configuration, log. Created when absent; a later start finds its streams again.
    pub dir: PathBuf,
    /// Client port; a free one when absent.
    pub port: Option<u16>,
    /// Port of the monitoring pages; a free one when absent.
    pub monitor_port: Option<u16>,
    /// Whether every acknowledged message was synced to disk (`sync_interval: always`); otherwise every two minutes.
    pub sync_always: bool,
    /// Users; when empty, anybody on this machine may do anything.
    pub users: Vec<NatsUser>,
    /// Limit of the file store, in bytes.
    pub max_store_bytes: u64,
}

impl NatsConfig {
    /// A node in `dir` with free ports, no users, synced every two minutes and limited to 8 GiB.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            port: None,
            monitor_port: None,
            sync_always: false,
            users: Vec::new(),
            max_store_bytes: 8 << 30,
        }
    }

    /// Makes a fault with its folder or ports an error.
    fn unusable(&self) -> impl Fn(io::Error) -> NatsError + use<> {
        let path = self.dir.clone();
        move |source| NatsError::Prepare { path: path.clone(), source }
    }
}

/// Why a node doesn't run.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// There is no nats-server.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The child can't be started or stopped.
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
    /// Its folder can't be used, or there is no free port.
    #[error("cannot prepare {}: {source}", path.display())]
    Prepare {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A name, password or subject can't be written into its configuration.
    #[error("{what} holds a control character or is empty")]
    Unwritable {
        /// Which setting.
        what: &'static str,
    },
    /// It ended before it was healthy.
    #[error("nats-server ended at start; its log {} ends with:\n{tail}", log.display())]
    Ended {
        /// Its log.
        log: PathBuf,
        /// The log's end.
        tail: String,
    },
    /// It wasn't healthy in time.
    #[error("nats-server wasn't healthy within {} s; its log {} ends with:\n{tail}", READY_DEADLINE.as_secs(), log.display())]
    NotReady {
        /// Its log.
        log: PathBuf,
        /// The log's end; of a cluster, those of all nodes.
        tail: String,
    },
    /// A cluster has no such node.
    #[error("the cluster has no node {0}")]
    NoSuchNode(usize),
}

impl NatsError {
    /// Whether somebody else has one of the server's ports.
    fn port_was_taken(&self) -> bool {
        matches!(self, Self::Ended { tail, .. } if tail.contains(PORT_TAKEN))
    }
}

/// A running node. Dropping it stops the server.
#[derive(Debug)]
pub struct Nats {
    launcher: Launcher,
    program: Program,
    settings: config::Settings,
    child: Child,
    /// Kept for the next start.
    _held: Held<PORTS>,
}

impl Nats {
    /// Finds or fetches nats-server, starts it and waits until it is healthy.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn start(launcher: &Launcher, finder: &Finder, config: NatsConfig) -> Result<Self, NatsError> {
        Self::start_on(launcher, finder, config, ports::hold).await
    }

    /// As [`Nats::start`], on the ports that `ports` gives.
    async fn start_on(
        launcher: &Launcher,
        finder: &Finder,
        config: NatsConfig,
        mut ports: impl FnMut() -> io::Result<Held<PORTS>>,
    ) -> Result<Self, NatsError> {
        let program = finder.nats_server().await?;
        let mut tries = 0;
        loop {
            tries += 1;
            let held = ports().map_err(config.unusable())?;
            let settings = config::Settings::single(&config, held.ports())?;
            let nats = Self::launch(launcher, &program, settings, held).await?;
            match nats.ready().await {
                Err(fault) if config.port.is_none() && tries < PORT_TRIES && fault.port_was_taken() => {}
                other => return other.map(|()| nats),
            }
        }
    }

    /// Starts on settled ports, without waiting.
    async fn launch(
        launcher: &Launcher,
        program: &Program,
        settings: config::Settings,
        held: Held<PORTS>,
    ) -> Result<Self, NatsError> {
        let child = run(launcher, program, &settings).await?;
        Ok(Self { launcher: launcher.clone(), program: program.clone(), settings, child, _held: held })
    }

    /// Where clients connect: `nats://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.settings.port)
    }

    /// Client port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.settings.port
    }

    /// Where the monitoring pages are, for instance `/jsz`: `http://127.0.0.1:port`.
    #[must_use]
    pub fn monitor_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.settings.monitor_port)
    }

    /// Version of the server.
    #[must_use]
    pub fn version(&self) -> crate::fetch::Version {
        self.program.version
    }

    /// Its process.
    #[must_use]
    pub fn child(&self) -> &Child {
        &self.child
    }

    /// Waits until it is healthy: JetStream runs, streams are recovered, and a cluster has its leaders.
    ///
    /// # Errors
    /// [`NatsError::Ended`] or [`NatsError::NotReady`].
    pub async fn ready(&self) -> Result<(), NatsError> {
        all_ready(std::slice::from_ref(self)).await
    }

    async fn healthy(&self) -> bool {
        health::listens(&self.settings.dir, &self.program.path, self.child.pid())
            && health::healthy(self.settings.monitor_port).await
    }

    /// Stops it in good order.
    ///
    /// # Errors
    /// [`NatsError::Supervise`].
    pub async fn stop(&self) -> Result<Ended, NatsError> {
        Ok(self.child.stop(STOP_DEADLINE).await?)
    }

    /// Kills it as a power cut would.
    ///
    /// # Errors
    /// [`NatsError::Supervise`].
    pub async fn kill9(&self) -> Result<(), NatsError> {
        self.child.kill9().await?;
        Ok(())
    }

    /// Starts it again on the same ports and store, after [`Nats::stop`] or [`Nats::kill9`], and waits until it is
    /// healthy.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn restart(&mut self) -> Result<(), NatsError> {
        self.relaunch().await?;
        self.ready().await
    }

    /// Starts it again without waiting, which nodes of a cluster need that can only become healthy together.
    pub(crate) async fn relaunch(&mut self) -> Result<(), NatsError> {
        self.child.stop(STOP_DEADLINE).await?;
        self.child = run(&self.launcher, &self.program, &self.settings).await?;
        Ok(())
    }
}

async fn run(launcher: &Launcher, program: &Program, settings: &config::Settings) -> Result<Child, NatsError> {
    let prepare = |source| NatsError::Prepare { path: settings.dir.clone(), source };
    health::forget_earlier(&settings.dir).map_err(prepare)?;
    let path = settings.dir.join("nats.conf");
    files::write_private(&path, &settings.render()?).map_err(prepare)?;
    let mut spec = Spec::new(settings.name.clone(), program.path.clone(), settings.dir.join("nats.log"));
    spec.args = vec!["--config".into(), path.into()];
    spec.clear_env = true;
    spec.death_signal = Signal::TERM;
    spec.lock = Some(settings.dir.join("nats.lock"));
    Ok(Child::start(launcher, spec).await?)
}

/// Waits until all are healthy. An end of any is told at once: the others may wait for it for ever.
async fn all_ready(nodes: &[Nats]) -> Result<(), NatsError> {
    let end = Instant::now() + READY_DEADLINE;
    let mut waited_for: Vec<&Nats> = nodes.iter().collect();
    loop {
        if let Some(gone) = nodes.iter().find(|node| node.child.ended().is_some()) {
            return Err(NatsError::Ended { log: gone.child.log().to_owned(), tail: gone.child.log_tail() });
        }
        let mut sick = Vec::with_capacity(waited_for.len());
        for node in waited_for {
            if !node.healthy().await {
                sick.push(node);
            }
        }
        let Some(first) = sick.first() else { return Ok(()) };
        if Instant::now() >= end {
            return Err(NatsError::NotReady { log: first.child.log().to_owned(), tail: tails(nodes) });
        }
        waited_for = sick;
        tokio::time::sleep(READY_EVERY).await;
    }
}

/// The ends of all logs, since what keeps one node waiting may stand in another one's.
fn tails(nodes: &[Nats]) -> String {
    let tails = nodes.iter().map(|node| match nodes.len() {
        1 => node.child.log_tail(),
        _ => format!("{}:\n{}", node.settings.name, node.child.log_tail()),
    });
    tails.collect::<Vec<_>>().join("\n")
}
