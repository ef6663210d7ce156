//! What all roles share: reading the configuration, connecting to the log, serving the ops address, and the order of a
//! stop.

pub mod admin;
pub mod durability;
pub mod log;
pub mod projector;
pub mod proxy;
pub mod upkeep;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_event::{Boot, LogTime, ProducerId};
use waybill_journal::Journal;
use waybill_journal::clock::{LogClock, boottime};
use waybill_journal::lease::LeaseConfig;
use waybill_journal::presence::{Presence, Report};
use waybill_journal_nats::{Connection, Health, NatsConfig};
use waybill_secret::{KeyRing, Peppers, Vault};

use crate::config::{Config, ConfigError, read_secret};
use crate::ops::{self, Dependency, Role};
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
    /// This start of it.
    pub boot: Boot,
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
        Ok(Self { config, path: path.to_owned(), producer, boot: new_boot(), stop, tasks })
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
    pub fn serve_ops(&self, role: Arc<dyn Role>, stop: CancellationToken) -> anyhow::Result<()> {
        let listener = bind(self.config.ops_listen)?;
        self.tasks.spawn(async move {
            match serve(listener, ops::router(role), stop, OPS_GRACE).await {
                Drained::Clean | Drained::Cut => {}
            }
        });
        Ok(())
    }
}

/// Set for the processes of `dev`, which holds their ports while they come and go.
pub const PORTS_ARE_RESERVED: &str = "WAYBILL_PORTS_ARE_RESERVED";
/// Connections that may wait to be accepted.
pub const BACKLOG: u32 = 1_024;

/// Binds a listener.
///
/// # Errors
/// The address is taken or isn't ours.
pub fn bind(address: std::net::SocketAddr) -> anyhow::Result<TcpListener> {
    let socket = claim(address)?;
    socket.listen(BACKLOG).with_context(|| format!("can't listen on {address}"))
}

/// Takes an address without listening on it yet: connections to it are refused.
///
/// # Errors
/// The address is taken or isn't ours.
pub fn claim(address: std::net::SocketAddr) -> anyhow::Result<TcpSocket> {
    let bound = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        // Elsewhere a second process on an address is a mistake that must show.
        socket.set_reuseport(std::env::var_os(PORTS_ARE_RESERVED).is_some())?;
        socket.bind(address)?;
        Ok::<_, std::io::Error>(socket)
    };
    bound().with_context(|| format!("can't listen on {address}"))
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

/// Whether the log answers.
#[must_use]
pub fn log_dependency(health: Health) -> Dependency {
    match health {
        Health::Connected => Dependency::new("log", true, "connected"),
        Health::Disconnected => Dependency::new("log", false, "disconnected"),
    }
}

/// A registry in the text form of OpenMetrics.
#[must_use]
pub fn render(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing into a String doesn't fail.
    let written = encode(&mut text, registry);
    debug_assert!(written.is_ok(), "metrics always render");
    text
}

/// A few numbers as gauges.
#[must_use]
pub fn render_gauges(prefix: &str, gauges: &[(&'static str, u64)]) -> String {
    let mut registry = Registry::with_prefix(prefix);
    for (name, value) in gauges {
        let gauge: Gauge<u64, AtomicU64> = Gauge::default();
        gauge.set(*value);
        registry.register(*name, name.replace('_', " "), gauge);
    }
    render(&registry)
}

/// A start of this process.
#[must_use]
pub fn new_boot() -> Boot {
    Boot::new(system_time(), rand::random())
}

/// The machine's own time, for what must have one before the log's is known.
#[must_use]
pub fn system_time() -> LogTime {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    LogTime::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// Tells what the process reports with its beats.
type Reporter = Box<dyn Fn() -> Report + Send + Sync>;

/// The process's clock of the log, kept by its presence.
#[derive(Clone)]
pub struct Clock {
    clock: LogClock,
    presence: Arc<Presence>,
    reports: Arc<OnceLock<Reporter>>,
    stop: CancellationToken,
}

impl Clock {
    /// Begins to beat.
    #[must_use]
    pub fn start(booted: &Booted, journal: &Journal, role: &str) -> Self {
        let clock = LogClock::new(boottime());
        let (reports, stop) = (Arc::<OnceLock<Reporter>>::default(), CancellationToken::new());
        let presence = Presence::new(journal.keyed.clone(), booted.producer.clone(), booted.boot, role, clock.clone());
        let presence = Arc::new(presence);
        let (beating, reported, stopped) = (presence.clone(), reports.clone(), stop.clone());
        booted.tasks.spawn(async move {
            let report = || reported.get().map_or_else(Report::default, |report| report());
            beating.run(report, stopped).await;
        });
        Self { clock, presence, reports, stop }
    }

    /// The time of the log, once it is known.
    #[must_use]
    pub fn now(&self) -> Option<LogTime> {
        self.clock.now()
    }

    /// The clock as requests read it.
    #[must_use]
    pub fn reader(&self) -> Arc<dyn Fn() -> Option<LogTime> + Send + Sync> {
        let clock = self.clock.clone();
        Arc::new(move || clock.now())
    }

    /// The clock, and the machine's own time until it is known.
    #[must_use]
    pub fn or_system(&self) -> Arc<dyn Fn() -> LogTime + Send + Sync> {
        let clock = self.clock.clone();
        Arc::new(move || clock.now().unwrap_or_else(system_time))
    }

    /// The presence that keeps it.
    #[must_use]
    pub fn presence(&self) -> Arc<Presence> {
        self.presence.clone()
    }

    /// What the beats tell from now on.
    pub fn report(&self, report: impl Fn() -> Report + Send + Sync + 'static) {
        // A process reports one thing; a second one would be a mistake of the wiring, and the first goes on.
        let _set_before = self.reports.set(Box::new(report));
    }

    /// Ends the beats.
    pub fn stop(&self) {
        self.stop.cancel();
    }
}

/// Leads a fold again and again, in a task of the process, until it stops. `work` gets a token that is cancelled when
/// the lease is lost, and the one that is cancelled at the stop.
pub fn lead<F, W>(booted: &Booted, journal: &Journal, name: &'static str, work: F)
where
    F: Fn(CancellationToken, CancellationToken) -> W + Send + Sync + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    let config = LeaseConfig::new(name, booted.producer.clone(), booted.boot);
    let (keyed, stop) = (journal.keyed.clone(), booted.stop.clone());
    booted.tasks.spawn(async move {
        let stopping = stop.clone();
        waybill_journal::lease::lead(keyed, config, stop, move |lost| work(lost, stopping.clone())).await;
    });
}
