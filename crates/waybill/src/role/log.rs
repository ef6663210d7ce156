//! What is prepared once before the roles start: the streams and buckets, and the users of the log's servers.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tokio::time::{Instant, sleep};
use waybill_journal_nats::{Connection, Role, SetupConfig, role_permissions};
use waybill_services::NatsUser;

use super::Booted;
use crate::config::read_secret;

/// Prepares the log.
#[derive(Debug, clap::Subcommand)]
pub enum LogCommand {
    /// Create or update the streams and buckets, as the operator's identity that the configuration names.
    Setup(Setup),
    /// Print the users of the log's servers and what each role may do, as a block that their configuration includes.
    NatsConfig(NatsUsers),
}

/// What `log setup` needs.
#[derive(Debug, clap::Args)]
pub struct Setup {
    #[command(flatten)]
    file: crate::ConfigFile,
    /// Copies of every stream: 1, or 3 on a cluster.
    #[arg(long, default_value_t = 1)]
    replicas: usize,
    /// Size of the traffic stream in bytes; 4 GiB, on a cluster 16 GiB, when absent.
    #[arg(long)]
    traffic_max_bytes: Option<i64>,
}

/// Runs a `log` command.
///
/// # Errors
/// The log can't be reached, or refuses.
pub async fn run(command: LogCommand) -> anyhow::Result<ExitCode> {
    match command {
        LogCommand::NatsConfig(users) => users.run()?,
        LogCommand::Setup(setup) => {
            let booted = Booted::read(&setup.file.config)?;
            let connection = booted.connect().await?;
            set_up(&connection, &setup.wanted()).await?;
            connection.close().await;
            booted.stop.cancel();
            booted.tasks.close();
            booted.tasks.wait().await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What `log nats-config` needs.
#[derive(Debug, clap::Args)]
pub struct NatsUsers {
    /// Folder with a password for each role: `nats-proxy`, `nats-projector`, `nats-upkeep`, `nats-admin`,
    /// `nats-operator`.
    #[arg(long, value_name = "DIR")]
    passwords: PathBuf,
    /// Write it to this file, which only its owner reads, instead of printing it.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl NatsUsers {
    fn run(&self) -> anyhow::Result<()> {
        let users = Role::ALL.map(|role| -> anyhow::Result<NatsUser> {
            let password = read_secret(&self.passwords.join(format!("nats-{}", role.user())))?;
            let allowed = role_permissions(role);
            let name = role.user().to_owned();
            Ok(NatsUser { name, password, publish: allowed.publish, subscribe: allowed.subscribe })
        });
        let users = users.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        let text = format!("# Made by `waybill log nats-config`.\n{}", waybill_services::authorization(&users)?);
        let Some(path) = &self.output else { return Ok(io::stdout().write_all(text.as_bytes())?) };
        let failed = || format!("can't write {}", path.display());
        // Readers see the old file or the new one, never a part.
        let beside = path.with_extension("new");
        // An earlier run may have been cut off.
        let _not_there = fs::remove_file(&beside);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(&beside).and_then(|mut file| file.write_all(text.as_bytes())).with_context(failed)?;
        fs::rename(&beside, path).with_context(failed)
    }
}

impl Setup {
    fn wanted(&self) -> SetupConfig {
        let usual = if self.replicas < 3 { SetupConfig::single_node() } else { SetupConfig::three_nodes() };
        let traffic_max_bytes = self.traffic_max_bytes.unwrap_or(usual.traffic_max_bytes);
        SetupConfig { replicas: self.replicas, traffic_max_bytes, ..usual }
    }
}

/// Creates the streams. A cluster that has only just come up may need a moment until it can.
///
/// # Errors
/// They can't be created in time.
pub async fn set_up(connection: &Connection, config: &SetupConfig) -> anyhow::Result<()> {
    let end = Instant::now() + super::CONNECT_DEADLINE;
    loop {
        match connection.setup(config).await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() < end => {
                tracing::warn!(%error, "the log can't be set up yet");
                sleep(Duration::from_secs(1)).await;
            }
            Err(error) => return Err(error).context("creating the streams"),
        }
    }
}
