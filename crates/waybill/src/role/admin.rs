//! The admin role: edits and reads.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clap::{Args, Subcommand};
use secrecy::ExposeSecret;
use tokio_util::sync::CancellationToken;
use waybill_admin::{Parts, SharedReads, State};
use waybill_read_model::{Deadlines, ReadModel};
use waybill_upstream::{DispatchConfig, Dispatcher};

use super::durability::{self, Durability};
use super::{Booted, Clock, bind};
use crate::ops::{Dependency, Role};
use crate::serve::serve;

/// Connections to Postgres.
const CONNECTIONS: u32 = 8;
/// Time open answers get at a stop.
const GRACE: Duration = Duration::from_secs(5);

/// Serve the admin API, or prepare its use.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Admin {
    #[command(subcommand)]
    command: Option<AdminCommand>,
    #[command(flatten)]
    file: crate::ConfigFile,
}

#[derive(Debug, Subcommand)]
enum AdminCommand {
    /// Make the first admin token and print it: the only time anybody sees it.
    Bootstrap(Bootstrap),
}

#[derive(Debug, Args)]
struct Bootstrap {
    #[command(flatten)]
    file: crate::ConfigFile,
    /// The token's name: edits made with it are recorded under it.
    #[arg(long, default_value = "bootstrap")]
    name: String,
    /// Make one although a living one exists.
    #[arg(long)]
    force: bool,
}

/// Runs the role, or one of its commands.
///
/// # Errors
/// The configuration can't be used, a store can't be reached at the start, or the address is taken.
pub async fn run(admin: Admin) -> anyhow::Result<ExitCode> {
    match admin.command {
        None => serve_api(&admin.file.config).await,
        Some(AdminCommand::Bootstrap(bootstrap)) => first_token(bootstrap).await,
    }
}

async fn first_token(bootstrap: Bootstrap) -> anyhow::Result<ExitCode> {
    use std::io::Write as _;
    let booted = Booted::read(&bootstrap.file.config)?;
    let peppers = booted.peppers("admin")?;
    let connection = booted.connect().await?;
    let token = waybill_admin::bootstrap(connection.journal(), &peppers, &bootstrap.name, bootstrap.force).await;
    connection.close().await;
    booted.stop.cancel();
    booted.tasks.close();
    booted.tasks.wait().await;
    // Printing it is what the command is for.
    writeln!(std::io::stdout(), "{}", token?.expose_secret())?;
    Ok(ExitCode::SUCCESS)
}

struct Running {
    name: String,
    state: State,
    durability: Arc<Durability>,
    stop: CancellationToken,
}

async fn serve_api(path: &Path) -> anyhow::Result<ExitCode> {
    let booted = Booted::read(path)?;
    let (vault, peppers) = (booted.vault("admin")?, booted.peppers("admin")?);
    let store = ReadModel::connect(booted.postgres_url("admin")?.expose_secret(), CONNECTIONS, Deadlines::default())?;
    let listener = bind(booted.config.admin.listen)?;
    let connection = booted.connect().await?;
    let journal = connection.journal().clone();
    let clock = Clock::start(&booted, &journal, "admin");
    let parts = Parts {
        journal,
        vault,
        peppers,
        reads: SharedReads::new(store.clone()),
        dispatcher: Dispatcher::new(&DispatchConfig::default())?,
        producer: booted.producer.clone(),
        clock: clock.or_system(),
    };
    let durability = durability::watch(&booted, &connection)?;
    let state = State::start(parts, &booted.tasks, booted.stop.clone());
    let role = Arc::new(Running {
        name: booted.config.name.clone(),
        state: state.clone(),
        durability,
        stop: booted.stop.clone(),
    });
    let ops = CancellationToken::new();
    booted.serve_ops(role, ops.clone())?;
    tracing::info!(listen = %booted.config.admin.listen, "serving");
    serve(listener, waybill_admin::router(state), booted.stop.clone(), GRACE).await;
    ops.cancel();
    clock.stop();
    booted.tasks.close();
    booted.tasks.wait().await;
    store.close().await;
    connection.close().await;
    Ok(ExitCode::SUCCESS)
}

#[async_trait]
impl Role for Running {
    fn name(&self) -> &str {
        &self.name
    }

    async fn dependencies(&self) -> Vec<Dependency> {
        let asked = self.state.dependencies().await;
        let asked = asked.into_iter().map(|d| Dependency {
            behind: d.behind,
            position: d.position,
            lag_ms: d.lag_ms,
            ..Dependency::new(d.name, d.ready, d.state)
        });
        asked.chain([self.durability.dependency()]).collect()
    }

    fn draining(&self) -> bool {
        self.stop.is_cancelled()
    }

    fn metrics(&self) -> String {
        super::render_gauges("waybill_admin", &[("config_position", self.state.fold().view().catalog.position.0)])
    }
}
