//! The one binary: it reads its arguments, builds what the role needs, runs it and drains it. No rule of the product
//! lives here.

mod cli;
mod config;
mod dev;
mod ops;
mod role;
mod serve;
mod signals;
mod telemetry;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::telemetry::LogFormat;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An LLM gateway that remembers why.
#[derive(Debug, Parser)]
#[command(name = "waybill", version, about, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// A configuration file.
#[derive(Debug, Clone, clap::Args)]
struct ConfigFile {
    /// The role's configuration.
    #[arg(long, env = "WAYBILL_CONFIG", default_value = "waybill.toml")]
    config: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve clients.
    Proxy(ConfigFile),
    /// Fold the log into read models and the selector's state.
    Projector(ConfigFile),
    /// Bring disabled sources back, and refresh the tokens of accounts.
    Upkeep(ConfigFile),
    /// Serve the admin API.
    Admin(role::admin::Admin),
    /// Run the whole product on this machine.
    Dev(dev::Dev),
    /// Look at a configuration file.
    #[command(subcommand)]
    Config(role::ConfigCommand),
    /// Prepare the log: create or update its streams and buckets.
    #[command(subcommand)]
    Log(role::log::LogCommand),
    #[command(flatten)]
    Client(Box<cli::Client>),
}

fn main() -> ExitCode {
    waybill_services::shim::run_if_asked();
    let arguments = Arguments::parse();
    // Only a provider that is installed twice is refused, and this is the only place.
    let _installed_before = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&anyhow::Error::new(error).context("the runtime can't be started")),
    };
    match runtime.block_on(run(arguments.command)) {
        Ok(code) => code,
        Err(error) => failed(&error),
    }
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Proxy(file) => {
            telemetry::install(LogFormat::Json);
            role::proxy::run(&file.config).await
        }
        Command::Projector(file) => {
            telemetry::install(LogFormat::Json);
            role::projector::run(&file.config).await
        }
        Command::Upkeep(file) => {
            telemetry::install(LogFormat::Json);
            role::upkeep::run(&file.config).await
        }
        Command::Admin(admin) => {
            telemetry::install(LogFormat::Json);
            role::admin::run(admin).await
        }
        Command::Dev(dev) => {
            telemetry::install(LogFormat::Text);
            dev::run(dev).await.map(|()| ExitCode::SUCCESS)
        }
        Command::Config(command) => role::config_command(command),
        Command::Log(command) => {
            telemetry::install(LogFormat::Text);
            role::log::run(command).await
        }
        Command::Client(client) => client.run().await,
    }
}

/// The chain of an error is printed once, here.
fn failed(error: &anyhow::Error) -> ExitCode {
    use std::io::Write as _;
    // Nobody may be reading any more; the exit code tells.
    let _unread = writeln!(std::io::stderr(), "waybill: {error:#}");
    ExitCode::FAILURE
}
