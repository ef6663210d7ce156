//! The servers of a development fleet: a real nats-server, or three of them as one cluster, with one user per role; and a
//! real Postgres.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use futures_util::future::select_all;
use secrecy::SecretString;
use waybill_journal_nats::{Role, role_permissions};
use waybill_services::{Finder, Launcher, Nats, NatsCluster, NatsConfig, NatsUser, Postgres, PostgresConfig};

use super::folder::{Folder, Process};
use super::greeting;

/// Where one node keeps its store, and where several do.
const ONE: &str = "data/nats";
const SEVERAL: &str = "data/nats-cluster";

/// One of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// A node of the log, from 0.
    Nats(usize),
    /// The read models' database.
    Postgres,
}

/// The nodes of the log.
enum Log {
    One(Box<Nats>),
    Several(NatsCluster),
}

impl Log {
    fn nodes(&self) -> &[Nats] {
        match self {
            Self::One(node) => std::slice::from_ref(node),
            Self::Several(cluster) => cluster.nodes(),
        }
    }

    fn name(&self, node: usize) -> String {
        match self {
            Self::One(_) => "nats-server".to_owned(),
            Self::Several(_) => format!("nats-{}", node + 1),
        }
    }
}

/// The running servers.
pub struct Servers {
    log: Log,
    postgres: Postgres,
    passwords: BTreeMap<&'static str, SecretString>,
}

impl Servers {
    /// Finds or fetches all, starts them and waits until they are healthy.
    ///
    /// # Errors
    /// One of them can't be had or doesn't come up, or the folder holds a log of another number of nodes.
    pub async fn start(launcher: &Launcher, folder: &Folder, nats_nodes: usize) -> anyhow::Result<Self> {
        let finder = Finder::new(&folder.path("services"));
        let mut passwords = BTreeMap::new();
        let mut users = Vec::new();
        for role in Role::ALL {
            let name = role.user();
            let password = folder.secret(&format!("nats-{name}"), new_password)?;
            let allowed = role_permissions(role);
            users.push(NatsUser {
                name: name.to_owned(),
                password: password.clone(),
                publish: allowed.publish,
                subscribe: allowed.subscribe,
            });
            passwords.insert(name, password);
        }
        let log = start_log(launcher, &finder, folder, nats_nodes, users).await?;
        let postgres = PostgresConfig::new(folder.path("data/postgres"));
        let postgres = Postgres::start(launcher, &finder, postgres).await.context("Postgres")?;
        folder.write_secret("postgres-url", &postgres.url())?;
        Ok(Self { log, postgres, passwords })
    }

    /// Where the log is: each of its nodes.
    #[must_use]
    pub fn nats_urls(&self) -> Vec<String> {
        self.log.nodes().iter().map(Nats::url).collect()
    }

    /// The password of a role's user.
    #[must_use]
    pub fn password(&self, role: Role) -> SecretString {
        self.passwords.get(role.user()).cloned().unwrap_or_default()
    }

    /// A server's name, as people know it.
    #[must_use]
    pub fn name(&self, server: Server) -> String {
        match server {
            Server::Nats(node) => self.log.name(node),
            Server::Postgres => "postgres".to_owned(),
        }
    }

    /// Their processes.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        let process = |name: String, pid, monitor_url| Process { name, pid, ops_url: None, monitor_url };
        let nodes = self.log.nodes().iter().enumerate();
        let nodes = nodes.map(|(n, node)| process(self.log.name(n), node.child().pid(), Some(node.monitor_url())));
        nodes.chain([process(self.name(Server::Postgres), self.postgres.child().pid(), None)]).collect()
    }

    /// Waits until one of them has ended by itself, and says which.
    pub async fn ended(&self) -> Server {
        let nodes = self.log.nodes().iter().map(|node| Box::pin(node.child().wait()));
        tokio::select! {
            (_, node, _) = select_all(nodes) => Server::Nats(node),
            _ = self.postgres.child().wait() => Server::Postgres,
        }
    }

    /// Starts a server again that has ended, on its port and with its data. A node of a cluster isn't waited for: it may
    /// need others that have ended, too.
    ///
    /// # Errors
    /// It doesn't come up.
    pub async fn restart(&mut self, server: Server) -> anyhow::Result<()> {
        let name = self.name(server);
        match (server, &mut self.log) {
            (Server::Nats(_), Log::One(node)) => node.restart().await.context(name),
            (Server::Nats(node), Log::Several(cluster)) => cluster.restart(node).await.context(name),
            (Server::Postgres, _) => self.postgres.restart().await.context(name),
        }
    }

    /// Stops all.
    pub async fn stop(self) {
        if let Err(error) = self.postgres.stop().await {
            greeting::notice(&format!("Postgres did not stop in good order: {error}"));
        }
        let stopped = match &self.log {
            Log::One(node) => node.stop().await.map(|_| ()),
            Log::Several(cluster) => cluster.stop().await,
        };
        if let Err(error) = stopped {
            greeting::notice(&format!("nats-server did not stop in good order: {error}"));
        }
    }
}

async fn start_log(
    launcher: &Launcher,
    finder: &Finder,
    folder: &Folder,
    nodes: usize,
    users: Vec<NatsUser>,
) -> anyhow::Result<Log> {
    let (own, other) = if nodes == 1 { (ONE, SEVERAL) } else { (SEVERAL, ONE) };
    if folder.path(other).exists() {
        bail!("{} holds a log of another number of nodes; give another --dir", folder.path(other).display());
    }
    let config = NatsConfig { users, ..NatsConfig::new(folder.path(own)) };
    Ok(if nodes == 1 {
        Log::One(Box::new(Nats::start(launcher, finder, config).await.context("nats-server")?))
    } else {
        Log::Several(NatsCluster::start(launcher, finder, nodes, config).await.context("nats-server")?)
    })
}

fn new_password() -> anyhow::Result<SecretString> {
    let token = waybill_secret::Token::generate(waybill_secret::TokenKind::AdminToken)?;
    Ok(token.into_secret())
}
