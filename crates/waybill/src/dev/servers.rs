//! The two servers of a development fleet: a real nats-server, with one user per role, and a real Postgres.

use std::collections::BTreeMap;

use anyhow::Context;
use secrecy::SecretString;
use waybill_journal_nats::{Role, role_permissions};
use waybill_services::{Finder, Launcher, Nats, NatsConfig, NatsUser, Postgres, PostgresConfig};

use super::folder::Folder;
use super::greeting;

/// One of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// The log.
    Nats,
    /// The read models' database.
    Postgres,
}

impl Server {
    /// Its name, as people know it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nats => "nats-server",
            Self::Postgres => "Postgres",
        }
    }
}

/// The running servers.
pub struct Servers {
    nats: Nats,
    postgres: Postgres,
    passwords: BTreeMap<&'static str, SecretString>,
}

impl Servers {
    /// Finds or fetches both, starts them and waits until they are healthy.
    ///
    /// # Errors
    /// One of them can't be had or doesn't come up.
    pub async fn start(launcher: &Launcher, folder: &Folder) -> anyhow::Result<Self> {
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
        let config = NatsConfig { users, ..NatsConfig::new(folder.path("data/nats")) };
        let nats = Nats::start(launcher, &finder, config).await.context("nats-server")?;
        let postgres = PostgresConfig::new(folder.path("data/postgres"));
        let postgres = Postgres::start(launcher, &finder, postgres).await.context("Postgres")?;
        folder.write_secret("postgres-url", &postgres.url())?;
        Ok(Self { nats, postgres, passwords })
    }

    /// Where the log is.
    #[must_use]
    pub fn nats_url(&self) -> String {
        self.nats.url()
    }

    /// The password of a role's user.
    #[must_use]
    pub fn password(&self, role: Role) -> SecretString {
        self.passwords.get(role.user()).cloned().unwrap_or_default()
    }

    /// Process ids, for tests that kill them.
    #[must_use]
    pub fn pids(&self) -> [(&'static str, u32); 2] {
        [("nats-server", self.nats.child().pid()), ("postgres", self.postgres.child().pid())]
    }

    /// Waits until one of them has ended by itself, and says which.
    pub async fn ended(&self) -> Server {
        tokio::select! {
            _ = self.nats.child().wait() => Server::Nats,
            _ = self.postgres.child().wait() => Server::Postgres,
        }
    }

    /// Starts a server again that has ended, on its port and with its data.
    ///
    /// # Errors
    /// It doesn't come up.
    pub async fn restart(&mut self, server: Server) -> anyhow::Result<()> {
        match server {
            Server::Nats => self.nats.restart().await.context("nats-server"),
            Server::Postgres => self.postgres.restart().await.context("Postgres"),
        }
    }

    /// Stops both.
    pub async fn stop(self) {
        if let Err(error) = self.postgres.stop().await {
            greeting::notice(&format!("Postgres did not stop in good order: {error}"));
        }
        if let Err(error) = self.nats.stop().await {
            greeting::notice(&format!("nats-server did not stop in good order: {error}"));
        }
    }
}

fn new_password() -> anyhow::Result<SecretString> {
    let token = waybill_secret::Token::generate(waybill_secret::TokenKind::AdminToken)?;
    Ok(token.into_secret())
}
