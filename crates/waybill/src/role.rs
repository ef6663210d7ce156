//! What all roles share: reading the configuration, connecting to the log, serving the ops address, and the order of a
//! stop.

pub mod admin;
pub mod projector;
pub mod proxy;
pub mod upkeep;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_event::ProducerId;
use waybill_journal_nats::{Connection, NatsConfig, SetupConfig};
use waybill_secret::{KeyRing, Peppers, Vault};

use crate::config::{Config, ConfigError, read_secret};
use crate::ops::{self, Role};
use crate::serve::{Drained, serve};

/// Time a scrape or a health check may still take at a stop.
const OPS_GRACE: Duration = Duration::from_secs(1);
/// Time the stores get to answer at the start, before the role gives up and lets its supervisor try again.
const CONNECT_DEADLINE: Duration = Duration::from_secs(30);

/// A role that has read its configuration and knows its name.
pub struct Booted {
    /// The configuration.
    pub config: Config,
    /// Where it was read from.
    pub path: PathBuf,
    /// The process's name in the log.
    pub producer: ProducerId,
    /// Cancelled when the process is asked to stop.
    pub stop: CancellationToken,
    /// Owns every task of the process.
    pub tasks: TaskTracker,
}

impl Booted {
    /// Reads the configuration and listens for the signals that ask for a stop.
    ///
    /// # Errors
    /// The configuration can't be used, or no signal handler can be installed.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let config = Config::read(path)?;
        let producer = config.producer(path)?;
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        tasks.spawn(crate::signals::cancel_when_asked(stop.clone())?);
        Ok(Self { config, path: path.to_owned(), producer, stop, tasks })
    }

    fn missing(&self, role: &'static str, what: &'static str) -> ConfigError {
        ConfigError::Missing { role, what, path: self.path.clone() }
    }

    /// Connects to the log with the role's own identity.
    ///
    /// # Errors
    /// The password can't be read, or the log can't be reached in time.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        let nats = &self.config.nats;
        let config = NatsConfig::new(
            nats.urls.clone(),
            nats.user.clone(),
            read_secret(&nats.password_file)?,
            self.producer.as_str().to_owned(),
        );
        let connecting = tokio::time::timeout(CONNECT_DEADLINE, waybill_journal_nats::connect(config));
        connecting.await.context("the log can't be reached in time")?.context("the log can't be reached")
    }

    /// The ring that credentials are opened with.
    ///
    /// # Errors
    /// The configuration names none, or it can't be read.
    pub fn vault(&self, role: &'static str) -> anyhow::Result<Arc<Vault>> {
        let file = self.config.secrets.as_ref().and_then(|s| s.key_ring_file.as_deref());
        let file = file.ok_or_else(|| self.missing(role, "secrets.key_ring_file"))?;
        let ring = KeyRing::parse(&read_secret(file)?).with_context(|| format!("key ring in {}", file.display()))?;
        Ok(Arc::new(Vault::new(ring)))
    }

    /// The peppers that tokens are hashed with.
    ///
    /// # Errors
    /// The configuration names none, or they can't be read.
    pub fn peppers(&self, role: &'static str) -> anyhow::Result<Arc<Peppers>> {
        let file = self.config.secrets.as_ref().and_then(|s| s.peppers_file.as_deref());
        let file = file.ok_or_else(|| self.missing(role, "secrets.peppers_file"))?;
        let peppers = Peppers::parse(&read_secret(file)?).with_context(|| format!("peppers in {}", file.display()))?;
        Ok(Arc::new(peppers))
    }

    /// The URL of the read models' database.
    ///
    /// # Errors
    /// The configuration names none, or it can't be read.
    pub fn postgres_url(&self, role: &'static str) -> anyhow::Result<waybill_secret::SecretString> {
        let postgres = self.config.postgres.as_ref().ok_or_else(|| self.missing(role, "postgres.url_file"))?;
        Ok(read_secret(&postgres.url_file)?)
    }

    /// Serves the ops address until `stop`.
    ///
    /// # Errors
    /// The address can't be bound.
    pub async fn serve_ops(&self, role: Arc<dyn Role>, stop: CancellationToken) -> anyhow::Result<()> {
        let listener = bind(self.config.ops_listen).await?;
        self.tasks.spawn(async move {
            match serve(listener, ops::router(role), stop, OPS_GRACE).await {
                Drained::Clean | Drained::Cut => {}
            }
        });
        Ok(())
    }
}

/// Binds a listener.
///
/// # Errors
/// The address is taken or isn't ours.
pub async fn bind(address: std::net::SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("can't listen on {address}"))
}

/// Looks at a configuration file.
#[derive(Debug, clap::Subcommand)]
pub enum ConfigCommand {
    /// Print what is in force: the file's values with every default filled in.
    Print(crate::ConfigFile),
}

/// Runs a `config` command.
///
/// # Errors
/// The file can't be used.
pub fn config_command(command: ConfigCommand) -> anyhow::Result<std::process::ExitCode> {
    use std::io::Write as _;
    match command {
        ConfigCommand::Print(file) => {
            let config = Config::read(&file.config)?;
            let text = toml::to_string_pretty(&config).context("the configuration can't be printed")?;
            write!(std::io::stdout(), "# {}\n{text}", file.config.display())?;
        }
    }
    Ok(std::process::ExitCode::SUCCESS)
}

/// Prepares the log.
#[derive(Debug, clap::Subcommand)]
pub enum LogCommand {
    /// Create or update the streams and buckets, as the operator's identity that the configuration names.
    Setup(Setup),
}

/// What `log setup` needs.
#[derive(Debug, clap::Args)]
pub struct Setup {
    #[command(flatten)]
    file: crate::ConfigFile,
    /// Copies of every stream: 1, or 3 on a cluster.
    #[arg(long, default_value_t = 1)]
    replicas: usize,
}

/// Runs a `log` command.
///
/// # Errors
/// The log can't be reached, or refuses.
pub async fn log_command(command: LogCommand) -> anyhow::Result<std::process::ExitCode> {
    match command {
        LogCommand::Setup(setup) => {
            let booted = Booted::read(&setup.file.config)?;
            let connection = booted.connect().await?;
            let config = SetupConfig { replicas: setup.replicas, ..SetupConfig::single_node() };
            connection.setup(&config).await.context("creating the streams")?;
            connection.close().await;
            booted.stop.cancel();
            booted.tasks.close();
            booted.tasks.wait().await;
        }
    }
    Ok(std::process::ExitCode::SUCCESS)
}
