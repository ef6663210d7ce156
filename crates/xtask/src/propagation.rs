//! Measures how fast a fleet of three replicas learns of an edit and of an opened breaker. The measuring itself stands in
//! the black-box package, which has the fleet; here both are built and run.

use std::path::Path;

use anyhow::{Context, Result};

use crate::workspace::{self, cargo};

/// How to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Measures optimised binaries.
    #[arg(long)]
    release: bool,
}

/// Builds, measures, and fails where a 99th percentile is too high; the table says which.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let profile: &[&str] = if args.release { &["--release"] } else { &[] };
    workspace::run(cargo(root, &["build", "--package", "waybill", "--bins"]).args(profile))?;
    let measure = &["run", "--quiet", "--package", "waybill-tests", "--bin", "propagation"];
    workspace::run(cargo(root, measure).args(profile))
        .context("not all learn within 100 ms, or it couldn't be measured")
}
