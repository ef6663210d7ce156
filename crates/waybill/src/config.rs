//! A role's configuration: one TOML file, parsed once, whole and loudly. Unknown keys are refused, units stand in the
//! keys, secrets are read from files and held in types that can't be printed. What changes at run time is no
//! configuration but an event.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::role::durability::Promise;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use waybill_event::ProducerId;
use waybill_proxy::{Durability, OutboxFull, Recording};

/// The whole file. Each role reads the sections it needs; a section it needs and doesn't find is an error.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// This process's name in the log, e.g. `proxy-2`: unique among all that run.
    pub name: String,
    /// Address of `/healthz`, `/readyz`, `/metrics`, `/state`.
    pub ops_listen: SocketAddr,
    /// Where the process keeps what must outlive it: the outbox.
    pub data_dir: PathBuf,
    /// The log.
    pub nats: Nats,
    /// The read models' database.
    pub postgres: Option<Postgres>,
    /// Rings of keys.
    pub secrets: Option<Secrets>,
    /// What the proxy needs.
    #[serde(default)]
    pub proxy: Proxy,
    /// What the admin role needs.
    #[serde(default)]
    pub admin: Admin,
    /// What the projector needs.
    #[serde(default)]
    pub projector: Projector,
    /// What upkeep needs.
    #[serde(default)]
    pub upkeep: Upkeep,
}

/// The log.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nats {
    /// Addresses of the servers, e.g. `nats://127.0.0.1:4222`.
    pub urls: Vec<String>,
    /// The role's user.
    pub user: String,
    /// File that holds the user's password.
    pub password_file: PathBuf,
    /// What the deployment promises of an acknowledged event: `dev`, `single` or `replicated`. A role that finds less is
    /// not ready.
    #[serde(default)]
    pub promise: Promise,
    /// Monitoring pages of all servers, e.g. `http://127.0.0.1:8222`: they tell whether every write is synced.
    #[serde(default)]
    pub monitor_urls: Vec<String>,
}

/// The read models' database.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Postgres {
    /// File that holds the URL, password included.
    pub url_file: PathBuf,
}

/// Rings of keys. Both files hold lines `id:base64url-of-32-bytes`; the first is the active one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secrets {
    /// Keys that credentials are sealed with.
    pub key_ring_file: Option<PathBuf>,
    /// Peppers that tokens are hashed with.
    pub peppers_file: Option<PathBuf>,
}

/// What the proxy needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Proxy {
    /// Address clients talk to.
    pub listen: SocketAddr,
    /// Largest body of a request, in bytes.
    pub max_body_bytes: u64,
    /// Largest size of the outbox, in bytes.
    pub outbox_max_bytes: u64,
    /// When an event counts as recorded: `pipelined` (in the outbox) or `acked` (in the log).
    pub durability: Durability,
    /// What becomes of a request whose events don't fit into the outbox: `refuse` or `count`.
    pub outbox_full: OutboxFull,
    /// Time between "not ready" and the end of accepting, in milliseconds.
    pub drain_delay_ms: u64,
    /// Time open requests get to finish at a stop, in milliseconds.
    pub grace_ms: u64,
    /// Life of a slot of a limit in the store, in milliseconds: what a replica that dies held is free again after it.
    pub slot_life_ms: u64,
}

impl Proxy {
    /// How requests are recorded.
    #[must_use]
    pub fn recording(&self) -> Recording {
        Recording { durability: self.durability, outbox_full: self.outbox_full, ..Recording::default() }
    }
}

impl Default for Proxy {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            max_body_bytes: 32 * 1024 * 1024,
            outbox_max_bytes: 1024 * 1024 * 1024,
            durability: Durability::default(),
            outbox_full: OutboxFull::default(),
            drain_delay_ms: 2_000,
            grace_ms: 30_000,
            slot_life_ms: 60_000,
        }
    }
}

/// What the admin role needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// Address the admin API is served on.
    pub listen: SocketAddr,
}

impl Default for Admin {
    fn default() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 8081)) }
    }
}

/// What the projector needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Projector {
    /// Days for which rows of requests, attempts and outcomes are kept, beside the newest day. Not fewer than the traffic
    /// stream keeps, or a fold from scratch finds what the tables no longer hold.
    pub traffic_days: u32,
}

impl Default for Projector {
    fn default() -> Self {
        Self { traffic_days: 90 }
    }
}

/// What upkeep needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Upkeep {
    /// First interval between probes of a disabled source, in milliseconds; it doubles up to an hour.
    pub probe_interval_ms: u64,
}

impl Default for Upkeep {
    fn default() -> Self {
        Self { probe_interval_ms: 60_000 }
    }
}

/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file can't be read.
    #[error("can't read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file isn't what it should be.
    #[error("{} is not a configuration", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// A section or file that the role needs isn't named.
    #[error("the {role} role needs {what}, which {} doesn't name", path.display())]
    Missing {
        /// The role.
        role: &'static str,
        /// What is missing.
        what: &'static str,
        /// The configuration file.
        path: PathBuf,
    },
    /// `proxy.durability` and `proxy.outbox_full` contradict each other.
    #[error("{}: with durability = \"acked\" nothing goes unrecorded, so outbox_full must be \"refuse\"", path.display())]
    Recording {
        /// The configuration file.
        path: PathBuf,
    },
    /// The name can't be used in the log.
    #[error("`name` in {}", path.display())]
    Name {
        /// The configuration file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: waybill_event::identity::ParseIdentityError,
    },
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// [`ConfigError`]: the file can't be read, or isn't a whole and valid configuration.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let config: Self = toml::from_str(&text)
            .map_err(|source| ConfigError::Parse { path: path.to_owned(), source: Box::new(source) })?;
        if !config.proxy.recording().is_consistent() {
            return Err(ConfigError::Recording { path: path.to_owned() });
        }
        Ok(config)
    }

    /// The process's name in the log.
    ///
    /// # Errors
    /// [`ConfigError::Name`].
    pub fn producer(&self, path: &Path) -> Result<ProducerId, ConfigError> {
        self.name.parse().map_err(|source| ConfigError::Name { path: path.to_owned(), source })
    }
}

/// Reads a file that holds one secret; white space around it is cut off.
///
/// # Errors
/// [`ConfigError::Read`].
pub fn read_secret(path: &Path) -> Result<SecretString, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    Ok(SecretString::from(text.trim().to_owned()))
}
