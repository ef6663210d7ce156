//! The role processes: started, watched, started again when one dies, and stopped in an order that loses nothing.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use waybill_services::{Child, Launcher, Spec};

use super::folder::{Addresses, Folder, Process};
use super::greeting;
use super::roles::{Prepared, RoleProcess};
use super::servers::{Server, Servers};

/// How long the roles may take until they are ready.
const READY_DEADLINE: Duration = Duration::from_secs(60);
const READY_EVERY: Duration = Duration::from_millis(25);
/// Pause before a dead process is started again; it doubles while it dies early.
const RESTART_PAUSE: Duration = Duration::from_millis(200);
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(10);
/// A process that lived this long has come up well.
const LIVED_WELL: Duration = Duration::from_secs(10);
/// Time a role gets to stop beyond its own grace period.
const STOP_MARGIN: Duration = Duration::from_secs(10);

struct Member {
    role: RoleProcess,
    child: Child,
    started: Instant,
    pause: Duration,
}

/// The running roles.
pub struct Fleet {
    launcher: Launcher,
    members: Vec<Member>,
    servers: Vec<Process>,
    nats_url: String,
    postgres_url_file: String,
    admin_url: String,
    proxies: Vec<String>,
    grace: Duration,
    client: reqwest::Client,
}

impl Fleet {
    /// Starts every role.
    ///
    /// # Errors
    /// A process can't be started.
    pub async fn start(
        launcher: &Launcher,
        folder: &Folder,
        servers: &Servers,
        prepared: &Prepared,
    ) -> anyhow::Result<Self> {
        let client =
            reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(2)).build().context("an HTTP client")?;
        let mut fleet = Self {
            launcher: launcher.clone(),
            members: Vec::new(),
            servers: servers.processes(),
            nats_url: servers.nats_urls().join(","),
            postgres_url_file: folder.secret_path("postgres-url").display().to_string(),
            admin_url: prepared.admin_url.clone(),
            proxies: prepared.proxy_urls.clone(),
            grace: prepared.grace,
            client,
        };
        for role in &prepared.processes {
            match launch(launcher, role).await {
                Ok(child) => fleet.members.push(Member {
                    role: role.clone(),
                    child,
                    started: Instant::now(),
                    pause: RESTART_PAUSE,
                }),
                Err(error) => {
                    fleet.stop().await;
                    return Err(error);
                }
            }
        }
        Ok(fleet)
    }

    /// Waits until every role says that it is ready.
    ///
    /// # Errors
    /// One dies, or isn't ready in time; its last lines of log are in the error.
    pub async fn ready(&self) -> anyhow::Result<()> {
        let end = Instant::now() + READY_DEADLINE;
        for member in &self.members {
            loop {
                let url = format!("{}/readyz", member.role.ops_url);
                let answer = self.client.get(&url).send().await;
                // Looked at first: what answers in place of one that has ended is a stranger on its port.
                if member.child.ended().is_some() {
                    bail!("{} ended at its start:\n{}", member.role.name, member.child.log_tail());
                }
                if answer.as_ref().is_ok_and(|a| a.status().is_success()) {
                    break;
                }
                if Instant::now() >= end {
                    let state = match answer {
                        Ok(answer) => answer.text().await.unwrap_or_default(),
                        Err(error) => error.to_string(),
                    };
                    bail!("{} isn't ready: {state}\n{}", member.role.name, member.child.log_tail());
                }
                tokio::time::sleep(READY_EVERY).await;
            }
        }
        Ok(())
    }

    /// Where everything is.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        let roles = self.members.iter().map(|m| Process {
            name: m.role.name.clone(),
            pid: m.child.pid(),
            ops_url: Some(m.role.ops_url.clone()),
            monitor_url: None,
        });
        Addresses {
            admin_url: self.admin_url.clone(),
            proxies: self.proxies.clone(),
            processes: self.servers.iter().cloned().chain(roles).collect(),
            nats_url: self.nats_url.clone(),
            postgres_url_file: self.postgres_url_file.clone(),
            ..Addresses::default()
        }
    }

    /// Starts what dies again, until `stop`.
    pub async fn supervise(
        &mut self,
        folder: &Folder,
        servers: &mut Servers,
        mut addresses: Addresses,
        stop: &CancellationToken,
    ) {
        loop {
            let died = tokio::select! {
                () = stop.cancelled() => return,
                member = first_ended(&self.members) => Died::Role(member),
                server = servers.ended() => Died::Server(server),
            };
            let started = tokio::select! {
                () = stop.cancelled() => return,
                started = self.start_again(died, servers) => started,
            };
            if let Err(error) = started {
                greeting::notice(&format!("{error:#}"));
            }
            self.servers = servers.processes();
            addresses.processes = self.addresses().processes;
            if let Err(error) = folder.write_addresses(&addresses) {
                greeting::notice(&format!("{error:#}"));
            }
        }
    }

    async fn start_again(&mut self, died: Died, servers: &mut Servers) -> anyhow::Result<()> {
        match died {
            Died::Server(server) => {
                greeting::notice(&format!("{} ended; starting it again", servers.name(server)));
                tokio::time::sleep(RESTART_PAUSE).await;
                servers.restart(server).await
            }
            Died::Role(number) => {
                let Some(member) = self.members.get_mut(number) else { return Ok(()) };
                let status = member.child.ended().map_or_else(|| "unknown".to_owned(), |s| s.to_string());
                greeting::notice(&format!("{} ended ({status}); starting it again", member.role.name));
                let lived_well = member.started.elapsed() >= LIVED_WELL;
                member.pause = if lived_well { RESTART_PAUSE } else { (member.pause * 2).min(RESTART_PAUSE_MAX) };
                tokio::time::sleep(member.pause).await;
                member.child = launch(&self.launcher, &member.role).await?;
                member.started = Instant::now();
                Ok(())
            }
        }
    }

    /// Stops the roles: proxies first, so that nothing is admitted any more, the folds last, so that what the others
    /// still said is folded.
    pub async fn stop(&mut self) {
        let deadline = self.grace + STOP_MARGIN;
        self.members.sort_by_key(|m| m.role.stop_rank);
        while let Some(rank) = self.members.first().map(|m| m.role.stop_rank) {
            let (now, later) = std::mem::take(&mut self.members).into_iter().partition(|m| m.role.stop_rank == rank);
            self.members = later;
            let now: Vec<Member> = now;
            let stops = now.iter().map(|m| async move {
                if let Err(error) = m.child.stop(deadline).await {
                    greeting::notice(&format!("{} did not stop in good order: {error}", m.role.name));
                }
            });
            futures_util::future::join_all(stops).await;
        }
    }
}

/// What has died.
enum Died {
    Role(usize),
    Server(Server),
}

async fn first_ended(members: &[Member]) -> usize {
    let waits = members.iter().enumerate().map(|(i, m)| {
        Box::pin(async move {
            m.child.wait().await;
            i
        })
    });
    let waits: Vec<_> = waits.collect();
    if waits.is_empty() {
        return std::future::pending().await;
    }
    futures_util::future::select_all(waits).await.0
}

async fn launch(launcher: &Launcher, role: &RoleProcess) -> anyhow::Result<Child> {
    let binary = std::env::current_exe().context("the running binary's own path")?;
    let spec = Spec::new(role.name.clone(), binary, role.log.clone()).args([
        role.command.into(),
        "--config".into(),
        role.config.clone().into_os_string(),
    ]);
    let spec = spec.env(crate::role::PORTS_ARE_RESERVED, "1");
    Child::start(launcher, spec).await.with_context(|| format!("can't start {}", role.name))
}
