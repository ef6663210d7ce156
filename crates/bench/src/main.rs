//! What the proxy costs: CPU time, latency and memory beside a bare pass-through and nginx, in one run on one machine.
//! Started by `cargo xtask bench`; nothing here is part of the product.

#![expect(clippy::print_stdout, reason = "what developers see is this program's output")]

mod events;
mod fresh;
mod load;
mod measure;
mod nginx;
mod pass_through;
mod peers;
mod process;
mod report;
mod request;
mod run;
mod subject;
mod upstream;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

/// All programs that are compared allocate alike.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(name = "waybill-bench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures everything and prints a table.
    Run(run::Args),
    /// The bare axum and reqwest pass-through that the proxy is compared with; prints its address.
    PassThrough(pass_through::Args),
    /// The upstream alone, to try things by hand; prints its address.
    Upstream,
    /// Load alone, to profile what it goes to.
    Load(load::Args),
    /// Writes the events of some requests to a log, as a proxy does; prints the CPU time per request.
    Events(events::Args),
}

/// Where the figures are written to, and how long the run takes.
#[derive(Debug, Clone, clap::Args)]
struct Output {
    /// File that the tables are written to.
    #[arg(long)]
    write: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = run_command(Cli::parse().command);
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            println!("bench: {fault:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_command(command: Command) -> Result<()> {
    // Only a provider that is installed already is refused.
    let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    if matches!(command, Command::Run(_)) {
        process::prepare_self();
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("the runtime can't be started")?;
    runtime.block_on(async {
        match command {
            Command::Run(args) => run::run(args).await,
            Command::PassThrough(args) => pass_through::run(args).await,
            Command::Upstream => upstream::run().await,
            Command::Load(args) => load::run(args).await,
            Command::Events(args) => events::run(args).await,
        }
    })
}
