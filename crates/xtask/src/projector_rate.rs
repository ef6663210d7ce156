//! Measures how fast the projector folds, and what a burst at twice its ceiling does. The measuring itself stands in the
//! black-box package, which has the fleet; here the binary is built in release, and run.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::workspace::{self, cargo};

/// How to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What the measuring is told: `--requests`, `--rate`, `--open`, `--burst-seconds`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    measure: Vec<String>,
}

/// Builds, measures, and fails where the projector is too slow, a client was refused or something is missing.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    workspace::run(&mut cargo(root, &["build", "--release", "--package", "waybill", "--bins"]))?;
    let built = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    // What measures only writes and looks: it needn't be optimised.
    let measure = &["run", "--quiet", "--package", "waybill-tests", "--bin", "projector-rate", "--"];
    let mut command = cargo(root, measure);
    command.args(&args.measure).env("WAYBILL_BIN", built.join("release/waybill"));
    workspace::run(&mut command).context("a figure is missed, or it couldn't be measured")
}
