//! One child process: started, watched, stopped.
//!
//! **Invariant:** a child ends when its handle is dropped, and when this process dies by whatever means.

mod spawner;

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions};
use tokio::sync::watch;

pub use rustix::process::Signal;

use crate::files;
use crate::shim::{Duties, Launcher, RunAs};

/// A log above this size is set aside once (`.old`) when its program starts again.
const LOG_BYTES: u64 = 16 * 1024 * 1024;
/// How long the kernel may take to end a killed process.
const KILL_DEADLINE: Duration = Duration::from_secs(10);
/// How much of a log an error shows.
const SHOWN_LINES: usize = 12;

/// What to run and how.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Name for logs and errors.
    pub name: String,
    /// Program to run.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Added to its environment.
    pub envs: Vec<(OsString, OsString)>,
    /// Whether it starts without our environment, except `PATH`, `TMPDIR` and `TZ`.
    pub clear_env: bool,
    /// Its working folder; ours when absent.
    pub dir: Option<PathBuf>,
    /// Where its standard output and error are appended.
    pub log: PathBuf,
    /// Asks it to stop.
    pub stop_signal: Signal,
    /// Sent when we die or drop the handle.
    pub death_signal: Signal,
    /// User to run as; ourselves when absent.
    pub run_as: Option<RunAs>,
    /// Lock file held as long as the child or one of its own children lives; a successor waits for it.
    pub lock: Option<PathBuf>,
}

impl Spec {
    /// A program without arguments that inherits our environment, stops on SIGTERM and dies with us by SIGKILL.
    #[must_use]
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>, log: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args: Vec::new(),
            envs: Vec::new(),
            clear_env: false,
            dir: None,
            log: log.into(),
            stop_signal: Signal::TERM,
            death_signal: Signal::KILL,
            run_as: None,
            lock: None,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds a variable to the environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.envs.push((name.into(), value.into()));
        self
    }
}

/// What can go wrong with a child.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// Its log can't be opened.
    #[error("cannot open the log {}: {source}", path.display())]
    Log {
        /// The log.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It can't be started.
    #[error("cannot start {name}: {source}")]
    Start {
        /// The child's name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The thread that starts children is gone, which happens only at the end of the process.
    #[error("the thread that starts children is gone")]
    NoSpawner,
    /// It can't be signalled.
    #[error("cannot signal {name}: {source}")]
    Signal {
        /// The child's name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// It lives on after SIGKILL, which means that the kernel can't end it (stuck in I/O).
    #[error("{name} lives on after SIGKILL")]
    Unkillable {
        /// The child's name.
        name: String,
    },
}

/// How a child came to its end when it was asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself, in time.
    InTime(ExitStatus),
    /// It had to be killed.
    Forced(ExitStatus),
}

/// A running child process. Dropping the handle sends it its death signal.
pub struct Child {
    name: String,
    pid: u32,
    log: PathBuf,
    stop_signal: Signal,
    death_signal: Signal,
    process: Arc<Process>,
    ended: watch::Receiver<Option<ExitStatus>>,
}

/// The process and whether it was reaped. Signals are sent and the child is reaped under one lock, so a signal never
/// hits a stranger who got the same pid.
struct Process(Mutex<Option<std::process::Child>>);

impl Child {
    /// Starts `spec` through `launcher`. Returning means that the shim runs, not yet that the program does.
    ///
    /// # Errors
    /// [`SuperviseError`].
    pub async fn start(launcher: &Launcher, spec: Spec) -> Result<Self, SuperviseError> {
        let log = open_log(&spec.log).map_err(|source| SuperviseError::Log { path: spec.log.clone(), source })?;
        let log_again = log.try_clone().map_err(|source| SuperviseError::Log { path: spec.log.clone(), source })?;
        let duties =
            Duties { death_signal: Some(spec.death_signal), run_as: spec.run_as.clone(), lock: spec.lock.clone() };
        let mut command = launcher.command(&duties, &spec.program, &spec.args);
        if spec.clear_env {
            command.env_clear();
            command.envs(["PATH", "TMPDIR", "TZ"].iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        }
        command.envs(spec.envs.iter().map(|(name, value)| (name, value)));
        if let Some(dir) = &spec.dir {
            command.current_dir(dir);
        }
        command.stdin(Stdio::null()).stdout(log).stderr(log_again);
        // A group of its own: Ctrl-C in a terminal reaches us alone, and we stop our children in order.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = spawner::spawn(command).await.ok_or(SuperviseError::NoSpawner)?;
        let child = child.map_err(|source| SuperviseError::Start { name: spec.name.clone(), source })?;
        let pid = child.id();
        let process = Arc::new(Process(Mutex::new(Some(child))));
        let (told, ended) = watch::channel(None);
        let watched = Arc::clone(&process);
        std::thread::Builder::new()
            .name(format!("wait-{}", spec.name))
            .spawn(move || told.send_replace(watched.wait(pid)))
            .map_err(|source| SuperviseError::Start { name: spec.name.clone(), source })?;
        tracing::debug!(child = spec.name, pid, "child started");
        Ok(Self {
            name: spec.name,
            pid,
            log: spec.log,
            stop_signal: spec.stop_signal,
            death_signal: spec.death_signal,
            process,
            ended,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its log file.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its log, for an error message.
    #[must_use]
    pub fn log_tail(&self) -> String {
        files::tail(&self.log, SHOWN_LINES)
    }

    /// How it ended; `None` while it runs.
    #[must_use]
    pub fn ended(&self) -> Option<ExitStatus> {
        *self.ended.borrow()
    }

    /// Waits for its end, however long that takes.
    pub async fn wait(&self) -> ExitStatus {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(status) => status.unwrap_or_default(),
            // The waiting thread always tells before it goes.
            Err(_) => ExitStatus::default(),
        }
    }

    /// Sends a signal; a child that has ended gets none.
    ///
    /// # Errors
    /// [`SuperviseError::Signal`] when the kernel refuses.
    pub fn signal(&self, signal: Signal) -> Result<(), SuperviseError> {
        self.process.signal(signal).map_err(|source| SuperviseError::Signal { name: self.name.clone(), source })
    }

    /// Asks it to stop, waits for at most `deadline`, then kills it.
    ///
    /// # Errors
    /// [`SuperviseError::Unkillable`] or [`SuperviseError::Signal`].
    pub async fn stop(&self, deadline: Duration) -> Result<Ended, SuperviseError> {
        self.signal(self.stop_signal)?;
        match tokio::time::timeout(deadline, self.wait()).await {
            Ok(status) => Ok(Ended::InTime(status)),
            Err(_) => self.kill9().await.map(Ended::Forced),
        }
    }

    /// Kills it at once, as a power cut would, and waits until it is gone.
    ///
    /// # Errors
    /// [`SuperviseError::Unkillable`] or [`SuperviseError::Signal`].
    pub async fn kill9(&self) -> Result<ExitStatus, SuperviseError> {
        self.signal(Signal::KILL)?;
        let gone = tokio::time::timeout(KILL_DEADLINE, self.wait()).await;
        gone.map_err(|_| SuperviseError::Unkillable { name: self.name.clone() })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.ended().is_none()
            && let Err(fault) = self.signal(self.death_signal)
        {
            tracing::warn!(child = self.name, pid = self.pid, %fault, "child left behind");
        }
    }
}

impl std::fmt::Debug for Child {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Child").field("name", &self.name).field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl Process {
    /// Waits without reaping, then reaps under the lock.
    fn wait(&self, pid: u32) -> Option<ExitStatus> {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while matches!(rustix::process::waitid(WaitId::Pid(pid), options), Err(rustix::io::Errno::INTR)) {}
        }
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let status = held.as_mut().and_then(|child| child.wait().ok());
        *held = None;
        Some(status.unwrap_or_default())
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(child) = held.as_ref() else { return Ok(()) };
        match i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            Some(pid) => Ok(rustix::process::kill_process(pid, signal)?),
            None => Ok(()),
        }
    }
}

fn open_log(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    if fs::metadata(path).is_ok_and(|meta| meta.len() > LOG_BYTES) {
        fs::rename(path, path.with_extension("old"))?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}
