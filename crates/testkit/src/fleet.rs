//! A whole fleet: `waybill dev` as a child process, with a real nats-server, a real Postgres and every role.

mod control;
mod diagnosis;
mod stores;

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::Signal;
use serde::Deserialize;
use tempfile::TempDir;

use crate::admin::Admin;
use crate::process::{Descendants, signal};
use crate::wait::wait_until;

/// How long a fleet may take from nothing to ready. The first one on a machine may have to fetch both servers.
const START_DEADLINE: Duration = Duration::from_secs(180);
/// How long a stop may take; the roles' own grace is far shorter.
const STOP_DEADLINE: Duration = Duration::from_secs(45);
/// What `dev` says when all is up.
const READY: &str = "Waybill is ready.";

/// What kind of fleet is wanted.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// Number of proxies.
    pub proxies: u16,
    /// Number of projectors.
    pub projectors: u16,
    /// Nodes of the log: 1 or 3.
    pub nats_nodes: u16,
    /// First interval between probes of a disabled source.
    pub probe_interval: Duration,
    /// Time between a proxy's "not ready" and its end of accepting at a stop.
    pub drain_delay: Duration,
    /// Time open requests get at a stop.
    pub grace: Duration,
    /// Further arguments of `dev`.
    pub arguments: Vec<String>,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            proxies: 3,
            projectors: 1,
            nats_nodes: 1,
            probe_interval: Duration::from_millis(500),
            drain_delay: Duration::ZERO,
            grace: Duration::from_secs(2),
            arguments: Vec::new(),
        }
    }
}

/// One process of a fleet, as `dev.json` names it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Process {
    /// Its name, e.g. `proxy-1`, `postgres`.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// Base URL of its health and metrics, where it has them.
    pub ops_url: Option<String>,
    /// Base URL of its monitoring pages, where it is a node of the log.
    pub monitor_url: Option<String>,
}

/// `dev.json`.
#[derive(Debug, Clone, Deserialize)]
struct Addresses {
    admin_url: String,
    admin_token: String,
    proxies: Vec<String>,
    processes: Vec<Process>,
    nats_url: String,
    postgres_url_file: PathBuf,
}

/// A running fleet. Dropping it stops it and checks that nothing of it is left.
pub struct Fleet {
    child: Option<Child>,
    options: FleetOptions,
    /// `None` once the folder belongs to a fleet started again in it.
    folder: Option<TempDir>,
    admin: Admin,
    proxies: Vec<String>,
    http: reqwest::Client,
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet").field("dir", &self.dir()).finish_non_exhaustive()
    }
}

impl Fleet {
    /// Starts a fleet in a fresh folder and waits until every role is ready.
    ///
    /// # Panics
    /// When it doesn't come up; the panic shows the ends of its logs.
    pub async fn start(options: FleetOptions) -> Self {
        // Open to all, since Postgres may have to run as another user.
        let made = tempfile::Builder::new().prefix("waybill-fleet-").tempdir().and_then(|folder| {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
            Ok(folder)
        });
        match made {
            Ok(folder) => Self::start_in(folder, options).await,
            Err(error) => panic!("no folder for a fleet: {error}"),
        }
    }

    /// A fleet of three proxies.
    ///
    /// # Panics
    /// As [`Fleet::start`].
    pub async fn of_three() -> Self {
        Self::start(FleetOptions::default()).await
    }

    /// Stops the fleet in good order and starts another one on what it left.
    ///
    /// # Panics
    /// As [`Fleet::start`] and [`Fleet::stop`].
    pub async fn start_again(mut self) -> Self {
        self.end().await;
        self.again().await
    }

    /// Kills `dev` itself, as a power cut would, waits until nothing of the fleet runs, and starts another one on what
    /// it left.
    ///
    /// # Panics
    /// When something is left behind after 20 s, or as [`Fleet::start`].
    pub async fn kill_parent(mut self) -> Self {
        let Some(mut child) = self.child.take() else { panic!("the fleet isn't running") };
        let descendants = Descendants::of(child.id());
        signal(child.id(), Signal::KILL);
        let _reaped = child.wait();
        descendants.gone(Duration::from_secs(20)).await;
        self.again().await
    }

    async fn again(mut self) -> Self {
        let options = self.options.clone();
        match self.folder.take() {
            Some(folder) => Self::start_in(folder, options).await,
            None => panic!("the fleet's folder is gone"),
        }
    }

    async fn start_in(folder: TempDir, options: FleetOptions) -> Self {
        // Only a provider that is installed already is refused.
        let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let child = spawn(folder.path(), &options);
        let http = match reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build() {
            Ok(http) => http,
            Err(error) => panic!("no HTTP client: {error}"),
        };
        // From here on the fleet stops with this value, also when it doesn't come up.
        let mut fleet = Self {
            child: Some(child),
            options,
            folder: Some(folder),
            admin: Admin::at(String::new(), String::new(), http.clone()),
            proxies: Vec::new(),
            http: http.clone(),
        };
        fleet.wait_ready().await;
        let addresses = fleet.addresses();
        fleet.admin = Admin::at(addresses.admin_url, addresses.admin_token, http);
        fleet.proxies = addresses.proxies;
        fleet.admin.readable().await;
        fleet
    }

    async fn wait_ready(&mut self) {
        let end = tokio::time::Instant::now() + START_DEADLINE;
        loop {
            let said = fs::read_to_string(self.root().join("dev.log")).unwrap_or_default();
            if said.contains(READY) {
                return;
            }
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                panic!("`waybill dev` ended at its start ({status})\n{}", self.diagnosis());
            }
            if tokio::time::Instant::now() >= end {
                panic!("the fleet isn't ready after {START_DEADLINE:?}\n{}", self.diagnosis());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn addresses(&self) -> Addresses {
        let path = self.dir().join("dev.json");
        let read = fs::read_to_string(&path).map_err(|error| error.to_string());
        match read.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string())) {
            Ok(addresses) => addresses,
            Err(error) => panic!("{}: {error}\n{}", path.display(), self.diagnosis()),
        }
    }

    fn root(&self) -> &Path {
        self.folder.as_ref().map_or(Path::new(""), TempDir::path)
    }

    /// The folder given to `dev`.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        self.root().join("fleet")
    }

    /// The admin API.
    #[must_use]
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// Base URL of a proxy, without `/v1`. Numbers begin at 1, as in the proxies' names.
    ///
    /// # Panics
    /// When there is no such proxy.
    #[must_use]
    pub fn proxy(&self, number: usize) -> &str {
        match number.checked_sub(1).and_then(|index| self.proxies.get(index)) {
            Some(url) => url,
            None => panic!("there is no proxy-{number}"),
        }
    }

    /// Base URLs of all proxies.
    #[must_use]
    pub fn proxies(&self) -> &[String] {
        &self.proxies
    }

    /// A client without proxies and with a deadline of 30 s.
    #[must_use]
    pub fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// The path of the binary that this fleet runs.
    #[must_use]
    pub fn binary() -> PathBuf {
        binary()
    }

    /// Asks `dev` to stop as Ctrl-C does, and waits until nothing of the fleet is left.
    ///
    /// # Panics
    /// When it doesn't end in time, ends with an error, or leaves a process behind.
    pub async fn stop(mut self) {
        self.end().await;
    }

    async fn end(&mut self) {
        let Some(mut child) = self.child.take() else { panic!("the fleet isn't running") };
        let descendants = Descendants::of(child.id());
        // What is frozen can't be asked to do anything.
        descendants.go_on();
        signal(child.id(), Signal::INT);
        let status =
            wait_until(STOP_DEADLINE, "`waybill dev` ends when it is asked to", async || match child.try_wait() {
                Ok(Some(status)) => Ok(status),
                Ok(None) => Err(self.diagnosis()),
                Err(error) => Err(error.to_string()),
            })
            .await;
        if !status.success() {
            panic!("`waybill dev` ended with {status}\n{}", self.diagnosis());
        }
        // What has no parent any more needs a moment to be reaped.
        descendants.gone(Duration::from_secs(5)).await;
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let failing = std::thread::panicking();
        if let Some(child) = self.child.take() {
            let descendants = Descendants::of(child.id());
            let ended = end_without_runtime(child);
            let left = descendants.alive();
            descendants.kill();
            if !failing && (!ended || !left.is_empty()) {
                panic!("the fleet left processes behind: {}\n{}", left.join(", "), self.diagnosis());
            }
        }
        if failing && let Some(folder) = self.folder.as_mut() {
            eprint_line(&format!(
                "{}\nthe fleet's folder stays: {}",
                diagnosis::of(folder.path()),
                folder.path().display()
            ));
            folder.disable_cleanup(true);
        }
    }
}

/// Stops `dev` and waits for it within bounds; says whether it ended by itself.
fn end_without_runtime(mut child: Child) -> bool {
    Descendants::of(child.id()).go_on();
    signal(child.id(), Signal::TERM);
    let pid = child.id();
    let (told, ended) = mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let _reaped = child.wait();
        let _nobody_waits_any_more = told.send(());
    });
    let in_time = ended.recv_timeout(STOP_DEADLINE).is_ok();
    if !in_time {
        signal(pid, Signal::KILL);
    }
    let _joined = waiter.join();
    in_time
}

#[expect(clippy::print_stderr, reason = "what a failing test left is shown with its output")]
fn eprint_line(text: &str) {
    eprintln!("{text}");
}

fn spawn(root: &Path, options: &FleetOptions) -> Child {
    let binary = binary();
    let log = File::create(root.join("dev.log")).and_then(|log| Ok((log.try_clone()?, log)));
    let (out, err) = match log {
        Ok(both) => both,
        Err(error) => panic!("no log in {}: {error}", root.display()),
    };
    let spawned = Command::new(&binary)
        .args(["dev", "--no-demo", "--dir"])
        .arg(root.join("fleet"))
        .args(["--proxies", &options.proxies.to_string()])
        .args(["--projectors", &options.projectors.to_string()])
        .args(["--nats-nodes", &options.nats_nodes.to_string()])
        .args(["--drain-delay-ms", &options.drain_delay.as_millis().to_string()])
        .args(["--probe-interval-ms", &options.probe_interval.as_millis().to_string()])
        .args(["--grace-ms", &options.grace.as_millis().to_string()])
        .args(&options.arguments)
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .spawn();
    match spawned {
        Ok(child) => child,
        Err(error) => panic!("can't start {}: {error}", binary.display()),
    }
}

/// `$WAYBILL_BIN`, or the binary that cargo built beside this executable.
fn binary() -> PathBuf {
    if let Some(given) = std::env::var_os("WAYBILL_BIN") {
        return given.into();
    }
    let own = std::env::current_exe().unwrap_or_default();
    // A test stands in `deps`, a binary beside the one that is wanted.
    let beside = own.ancestors().skip(1).take(2).map(|folder| folder.join("waybill"));
    match beside.into_iter().find(|path| path.is_file()) {
        Some(found) => found,
        None => panic!(
            "there is no `waybill` beside {}: run `cargo build -p waybill` first, or set WAYBILL_BIN",
            own.display()
        ),
    }
}
