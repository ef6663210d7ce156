//! The balancer that the deployment runs, with the deployment's own file, in front of a fleet of `dev`: only addresses are
//! others. It is used where it is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::wait::{until, wait_until};
use crate::{Fleet, Front};

/// How long it may take until its address answers.
const READY: Duration = Duration::from_secs(10);

/// A running HAProxy; dropping it ends it.
#[derive(Debug)]
pub struct Haproxy {
    child: Child,
    url: String,
    _folder: TempDir,
}

impl Haproxy {
    /// Where it is installed, if it is.
    #[must_use]
    pub fn program() -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
        folders.map(|folder| folder.join("haproxy")).find(|program| program.is_file())
    }

    /// Starts it in front of all proxies of a fleet, by the deployment's file `config`; `None` where it isn't installed.
    ///
    /// # Panics
    /// When it doesn't come up, or the file isn't what it was.
    pub async fn start(fleet: &Fleet, config: &Path) -> Option<Self> {
        let program = Self::program()?;
        let Ok(text) = fs::read_to_string(config) else { panic!("{} can't be read", config.display()) };
        let port = match std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()) {
            Ok(address) => address.port(),
            Err(error) => panic!("no free port: {error}"),
        };
        let Ok(folder) = tempfile::tempdir() else { panic!("no folder for HAProxy's configuration") };
        let path = folder.path().join("haproxy.cfg");
        let written = fs::write(&path, here(&text, fleet, port));
        let log = fs::File::create(folder.path().join("haproxy.log"));
        let (Ok(()), Ok(log)) = (written, log) else { panic!("{} can't be written", path.display()) };
        let mut command = Command::new(program);
        command.arg("-db").arg("-f").arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => panic!("HAProxy can't be started: {error}"),
        };
        let log = folder.path().join("haproxy.log");
        let running = Self { child, url: format!("http://127.0.0.1:{port}"), _folder: folder };
        wait_until(READY, "HAProxy passes requests on", async || {
            let answer = fleet.http().get(&running.url).send().await;
            let seen = format!("{answer:?}\n{}", fs::read_to_string(&log).unwrap_or_default());
            until(answer.is_ok_and(|answer| answer.status().is_success()), || seen)
        })
        .await;
        Some(running)
    }

    /// It as the front of a load.
    #[must_use]
    pub fn front(&self) -> Front {
        Front::at("haproxy", &self.url)
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        // It holds nothing that outlives it.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The deployment's file with the addresses of a fleet.
fn here(text: &str, fleet: &Fleet, port: u16) -> String {
    let mut lines = Vec::new();
    let mut in_resolvers = false;
    for line in text.lines() {
        if !line.starts_with([' ', '\t']) && !line.is_empty() {
            in_resolvers = line.starts_with("resolvers");
        }
        // Addresses are known here, so that nobody need be asked for them.
        if in_resolvers {
            continue;
        }
        let line = line.replace(" resolvers docker init-addr none", "").replace(" port 9102", "");
        // As many connections as the files that an ordinary user may open.
        let line = line.replace("maxconn 20000", "maxconn 2000");
        let line = line.replace("bind :8080", &format!("bind 127.0.0.1:{port}"));
        let proxy = line.split_whitespace().nth(1).filter(|_| line.trim_start().starts_with("server "));
        lines.push(match proxy.and_then(|name| Some((name, name.strip_prefix("proxy-")?.parse().ok()?))) {
            Some((name, number)) => {
                let address = fleet.proxy(number).trim_start_matches("http://").to_owned();
                let ops = fleet.ops_url(name);
                let checked = ops.rsplit(':').next().unwrap_or_default();
                format!("    server {name} {address} port {checked}")
            }
            None => line,
        });
    }
    lines.join("\n") + "\n"
}
