//! Runs the sixteen fail-over scenarios over a fleet of three replicas and prints the scorecard. The scenarios stand in the
//! black-box package, which has the fleet; here both are built and run.

use std::path::Path;

use anyhow::{Context, Result};

use crate::workspace::{self, cargo};

/// How to run them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Their pace: 1 is full time, 0.1 a tenth of it.
    #[arg(long, default_value_t = 1.0)]
    pace: f64,
    /// Runs optimised binaries.
    #[arg(long)]
    release: bool,
}

/// Builds, runs, and fails where a scenario fails; the scorecard says which.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let profile: &[&str] = if args.release { &["--release"] } else { &[] };
    workspace::run(cargo(root, &["build", "--package", "waybill", "--bins"]).args(profile))?;
    let mut command = cargo(root, &["run", "--quiet", "--package", "waybill-tests", "--bin", "failover"]);
    command.args(profile).args(["--", &args.pace.to_string()]);
    workspace::run(&mut command).context("a scenario failed, or they couldn't be run")
}
