//! A real Postgres as a child process: created once, started, stopped, found again by the next start.
//!
//! It listens on 127.0.0.1 only and has no Unix socket: one path in a shared folder less that can be too long, left
//! over or somebody else's.

mod init;
mod place;
mod ready;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;

use crate::fetch::{FetchError, Finder, Program, Version};
use crate::ports::{self, Held};
use crate::shim::Launcher;
use crate::supervise::{Child, Ended, Spec, SuperviseError};
use place::Place;

/// Superuser of the cluster.
pub const USER: &str = "waybill";
/// Database that every new cluster holds.
pub const DATABASE: &str = "waybill";

/// How long a start may take; one after a crash replays its log first.
const READY_DEADLINE: Duration = Duration::from_secs(60);
const READY_EVERY: Duration = Duration::from_millis(20);
/// How long a stop may take; it writes a checkpoint.
const STOP_DEADLINE: Duration = Duration::from_secs(30);
/// How often other ports are tried when somebody took ours in the meantime.
const PORT_TRIES: usize = 4;

/// How Postgres runs.
#[derive(Debug, Clone)]
pub struct PostgresConfig {
    /// Its folder: data, password, log. Created when absent; a later start finds its data again.
    pub dir: PathBuf,
    /// Its port; a free one when absent.
    pub port: Option<u16>,
    /// Whether a commit survives a power cut; it survives the server's own crash in any case. Only tests turn it off.
    pub durable: bool,
    /// Most connections at once.
    pub max_connections: u16,
}

impl PostgresConfig {
    /// A durable Postgres in `dir` on a free port with up to 100 connections.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), port: None, durable: true, max_connections: 100 }
    }
}

/// Why Postgres doesn't run.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// There is no Postgres, or none of the major version that made the data.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The child can't be started or stopped.
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
    /// A file or folder can't be used.
    #[error("cannot {step} {}: {source}", path.display())]
    Prepare {
        /// What was tried.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// We are root, Postgres refuses to run as root, and there is no unprivileged user to run it as.
    #[error("Postgres doesn't run as root, and neither `postgres` nor `nobody` stands in /etc/passwd")]
    NoUser,
    /// The cluster couldn't be created.
    #[error("{step} failed; its log {} ends with:\n{tail}", log.display())]
    Init {
        /// Which step.
        step: &'static str,
        /// Its log.
        log: PathBuf,
        /// The log's end.
        tail: String,
    },
    /// It ended before it was ready.
    #[error("Postgres ended at start; its log {} ends with:\n{tail}", log.display())]
    Ended {
        /// Its log.
        log: PathBuf,
        /// The log's end.
        tail: String,
    },
    /// It wasn't ready in time.
    #[error("Postgres wasn't ready within {} s; its log {} ends with:\n{tail}", READY_DEADLINE.as_secs(), log.display())]
    NotReady {
        /// Its log.
        log: PathBuf,
        /// The log's end.
        tail: String,
    },
    /// The operating system gave no randomness for the password.
    #[error("the operating system gave no random bytes")]
    NoRandomness,
}

/// A running Postgres. Dropping it stops the server.
#[derive(Debug)]
pub struct Postgres {
    launcher: Launcher,
    program: Program,
    place: Place,
    config: PostgresConfig,
    port: u16,
    password: SecretString,
    child: Child,
    /// Kept for the next start; none where the port was given.
    _held: Option<Held<1>>,
}

impl Postgres {
    /// Finds or fetches Postgres, creates its cluster where there is none, starts it and waits until it is ready.
    ///
    /// # Errors
    /// [`PostgresError`].
    pub async fn start(launcher: &Launcher, finder: &Finder, config: PostgresConfig) -> Result<Self, PostgresError> {
        Self::start_on(launcher, finder, config, ports::hold).await
    }

    /// As [`Postgres::start`], on the port that `ports` gives where none is given.
    async fn start_on(
        launcher: &Launcher,
        finder: &Finder,
        config: PostgresConfig,
        mut ports: impl FnMut() -> io::Result<Held<1>>,
    ) -> Result<Self, PostgresError> {
        let place = Place::prepare(&config.dir)?;
        let program = finder.postgres(place.major()).await?;
        let password = init::cluster(launcher, &program, &place, config.durable).await?;
        let mut tries = 0;
        loop {
            tries += 1;
            let (port, held) = match config.port {
                Some(port) => (port, None),
                None => {
                    let held = ports().map_err(place.fault("find a port for", &place.dir))?;
                    let [port] = held.ports();
                    (port, Some(held))
                }
            };
            let child = run(launcher, &program, &place, &config, port).await?;
            let postgres = Self {
                launcher: launcher.clone(),
                program: program.clone(),
                place: place.clone(),
                config: config.clone(),
                port,
                password: password.clone(),
                child,
                _held: held,
            };
            match postgres.ready().await {
                Err(PostgresError::Ended { tail, .. })
                    if config.port.is_none() && tries < PORT_TRIES && tail.contains("Address already in use") => {}
                Err(other) => return Err(other),
                Ok(()) => return Ok(postgres),
            }
        }
    }

    /// Where [`DATABASE`] is, with user and password.
    #[must_use]
    pub fn url(&self) -> SecretString {
        self.url_of(DATABASE)
    }

    /// Where `database` is, with user and password.
    #[must_use]
    pub fn url_of(&self, database: &str) -> SecretString {
        let password = self.password.expose_secret();
        SecretString::from(format!("postgres://{USER}:{password}@127.0.0.1:{}/{database}", self.port))
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Version of the server.
    #[must_use]
    pub fn version(&self) -> Version {
        self.program.version
    }

    /// Where its data lie. Not below the configured folder when we are root and that folder is closed to others.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.place.data
    }

    /// Folder of its executables, for instance `psql`.
    #[must_use]
    pub fn bin(&self) -> &Path {
        &self.program.path
    }

    /// Its process.
    #[must_use]
    pub fn child(&self) -> &Child {
        &self.child
    }

    /// Waits until it takes connections.
    ///
    /// # Errors
    /// [`PostgresError::Ended`] or [`PostgresError::NotReady`].
    pub async fn ready(&self) -> Result<(), PostgresError> {
        let end = Instant::now() + READY_DEADLINE;
        loop {
            let log = || (self.child.log().to_owned(), self.child.log_tail());
            if self.child.ended().is_some() {
                let (log, tail) = log();
                return Err(PostgresError::Ended { log, tail });
            }
            if ready::accepts(self.child.pid(), &self.place.data, self.port).await {
                return Ok(());
            }
            if Instant::now() >= end {
                let (log, tail) = log();
                return Err(PostgresError::NotReady { log, tail });
            }
            tokio::time::sleep(READY_EVERY).await;
        }
    }

    /// Stops it in good order: open connections are ended.
    ///
    /// # Errors
    /// [`PostgresError::Supervise`].
    pub async fn stop(&self) -> Result<Ended, PostgresError> {
        Ok(self.child.stop(STOP_DEADLINE).await?)
    }

    /// Kills it as a power cut would.
    ///
    /// # Errors
    /// [`PostgresError::Supervise`].
    pub async fn kill9(&self) -> Result<(), PostgresError> {
        self.child.kill9().await?;
        Ok(())
    }

    /// Stops it and removes its data for good, wherever they lie.
    ///
    /// # Errors
    /// [`PostgresError`].
    pub async fn destroy(self) -> Result<(), PostgresError> {
        self.stop().await?;
        self.place.remove()
    }

    /// Starts it again on the same port and data, after [`Postgres::stop`] or [`Postgres::kill9`], and waits until it
    /// is ready.
    ///
    /// # Errors
    /// [`PostgresError`].
    pub async fn restart(&mut self) -> Result<(), PostgresError> {
        self.child.stop(STOP_DEADLINE).await?;
        self.child = run(&self.launcher, &self.program, &self.place, &self.config, self.port).await?;
        self.ready().await
    }
}

async fn run(
    launcher: &Launcher,
    program: &Program,
    place: &Place,
    config: &PostgresConfig,
    port: u16,
) -> Result<Child, PostgresError> {
    let mut settings = vec![
        "listen_addresses=127.0.0.1".to_owned(),
        "unix_socket_directories=".to_owned(),
        format!("port={port}"),
        format!("max_connections={}", config.max_connections),
        "shared_buffers=64MB".to_owned(),
        "timezone=UTC".to_owned(),
        "log_timezone=UTC".to_owned(),
        "logging_collector=off".to_owned(),
        "log_destination=stderr".to_owned(),
    ];
    if !config.durable {
        settings.extend(["fsync=off", "full_page_writes=off"].map(str::to_owned));
    }
    let mut spec = place.spec("postgres", program.path.join("postgres"));
    spec = spec.args(["-D".into(), place.data.clone().into_os_string()]);
    spec = spec.args(settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]));
    Ok(Child::start(launcher, spec).await?)
}

impl Place {
    /// A child that runs as the cluster's owner and holds its lock.
    fn spec(&self, name: &str, program: PathBuf) -> Spec {
        let mut spec = Spec::new(name, program, self.log.clone());
        spec.clear_env = true;
        spec = spec.env("LC_ALL", "C").env("HOME", "/");
        spec.dir = Some("/".into());
        spec.stop_signal = Signal::INT;
        // The immediate stop: every process of the server ends at once, and the next start replays the log.
        spec.death_signal = Signal::QUIT;
        spec.run_as.clone_from(&self.run_as);
        spec.lock = Some(self.dir.join("postgres.lock"));
        spec
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[tokio::test]
    async fn a_port_that_somebody_took_costs_a_second_try() {
        let dir = tempfile::tempdir().unwrap();
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut given = 0;
        let ports = || {
            given += 1;
            if given == 1 { Ok(Held::unheld([taken.local_addr()?.port()])) } else { ports::hold() }
        };
        let config = PostgresConfig { durable: false, ..PostgresConfig::new(dir.path().join("pg")) };
        let postgres = Postgres::start_on(&Launcher::UtilLinux, &Finder::new(dir.path()), config, ports).await.unwrap();
        postgres.stop().await.unwrap();
        assert_eq!(given, 2);
    }
}
