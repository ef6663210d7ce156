//! Developer commands: `cargo xtask COMMAND`, one file per command. Nothing here is part of the product.

#![expect(clippy::print_stdout, reason = "what developers see is this program's output")]

mod bench;
mod chaos;
mod ci;
mod deploy;
mod failover;
mod layers;
mod permits;
mod projector_rate;
mod propagation;
mod purity;
mod selection_bench;
mod simulate;
mod sizes;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer commands.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures what the proxy costs beside a bare pass-through and nginx.
    Bench(bench::Args),
    /// Kills, freezes, cuts off and restarts parts of fleets under load, and says what held.
    Chaos(chaos::Args),
    /// Runs everything that CI runs, and stops at the first failure.
    Ci(ci::Args),
    /// Checks the composition of a fleet, and every configuration it names.
    Deploy,
    /// Runs the fail-over scenarios and prints their scorecard.
    Failover(failover::Args),
    /// Checks the dependencies between crates against the table, and those on guarded outside crates.
    Layers,
    /// Runs the suite of limits over a real cluster in full times: a few minutes.
    Permits,
    /// Measures how many events a second the projector folds, and a burst at twice that.
    ProjectorRate(projector_rate::Args),
    /// Measures how fast three replicas learn of an edit and of an opened breaker.
    Propagation(propagation::Args),
    /// Checks that the pure crates build alone and read no clock, file, network or randomness.
    Purity,
    /// Measures what selecting a source costs.
    SelectionBench(selection_bench::Args),
    /// Runs the simulation of the whole fleet, seed by seed.
    Simulate(simulate::Args),
    /// Checks that no source file is too long.
    Sizes,
}

fn main() -> ExitCode {
    let done = workspace::root().and_then(|root| match Cli::parse().command {
        Command::Bench(args) => bench::run(&root, &args),
        Command::Chaos(args) => chaos::run(&root, &args),
        Command::Ci(args) => ci::run(&root, &args),
        Command::Deploy => deploy::run(&root),
        Command::Failover(args) => failover::run(&root, &args),
        Command::Layers => layers::run(&root),
        Command::Permits => permits::run(&root),
        Command::ProjectorRate(args) => projector_rate::run(&root, &args),
        Command::Propagation(args) => propagation::run(&root, &args),
        Command::Purity => purity::run(&root),
        Command::SelectionBench(args) => selection_bench::run(&root, &args),
        Command::Simulate(args) => simulate::run(&root, &args),
        Command::Sizes => sizes::run(&root),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            println!("xtask: {fault:#}");
            ExitCode::FAILURE
        }
    }
}
