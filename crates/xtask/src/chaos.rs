//! Kills, freezes, cuts off and restarts parts of whole fleets in full size. The cases stand in the black-box package,
//! which has the fleet; here both are built and run.

use std::path::Path;

use anyhow::{Context, Result};

use crate::workspace::{self, cargo};

/// Where the figures are kept.
const FIGURES: &str = "docs/chaos.md";

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runs optimised binaries.
    #[arg(long)]
    release: bool,
    /// Writes the figures to `docs/chaos.md`.
    #[arg(long)]
    write: bool,
    /// Only cases whose names hold this.
    #[arg(long, value_name = "TEXT", conflicts_with = "write")]
    only: Option<String>,
    /// Requests a second.
    #[arg(long, value_name = "N")]
    rate: Option<u32>,
}

/// Builds, runs, and fails where anything was wrong; the scorecard says what.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let profile: &[&str] = if args.release { &["--release"] } else { &[] };
    workspace::run(cargo(root, &["build", "--package", "waybill", "--bins"]).args(profile))?;
    let mut command = cargo(root, &["run", "--quiet", "--package", "waybill-tests", "--bin", "chaos"]);
    command.args(profile).arg("--");
    if args.write {
        command.arg("--write").arg(root.join(FIGURES));
    }
    if let Some(only) = &args.only {
        command.arg("--only").arg(only);
    }
    if let Some(rate) = args.rate {
        command.arg("--rate").arg(rate.to_string());
    }
    workspace::run(&mut command).context("not everything held")
}
