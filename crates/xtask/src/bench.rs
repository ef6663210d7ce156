//! Builds what is measured and what measures, and runs the benchmarks.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::workspace::{self, cargo};

/// Where the figures are kept.
const FIGURES: &str = "docs/benchmarks.md";

/// What is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Writes the figures to `docs/benchmarks.md`.
    #[arg(long)]
    write: bool,
    /// Fewer rounds: for a look while changing something.
    #[arg(long)]
    quick: bool,
    /// Only CPU time per request and per chunk.
    #[arg(long)]
    cpu_only: bool,
    /// Fail if a ratio of CPU time is far above its target in every round.
    #[arg(long)]
    check: bool,
}

/// Builds in release and measures.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let packages = ["build", "--release", "--package", "waybill", "--package", "waybill-bench"];
    workspace::run(&mut cargo(root, &packages))?;
    let built = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("release");
    let mut command = Command::new(built.join("waybill-bench"));
    command.arg("run").current_dir(root).env("WAYBILL_BIN", built.join("waybill"));
    // Each measured program gets one core for itself, so that more threads would only get into each other's way.
    command.env("TOKIO_WORKER_THREADS", "1");
    if args.write {
        command.arg("--write").arg(root.join(FIGURES));
    }
    if args.quick {
        command.arg("--quick");
    }
    if args.cpu_only {
        command.arg("--cpu-only");
    }
    if args.check {
        command.arg("--check");
    }
    workspace::run(&mut command)
}
