//! The simulation of the whole fleet, seed by seed.

use std::path::Path;

use anyhow::Result;

use crate::workspace::{self, cargo};

/// Which seeds.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runs these seeds.
    #[arg(long, default_value = "0..10000", value_name = "A..B")]
    seeds: String,
    /// Runs one seed and shows its course.
    #[arg(long, conflicts_with = "seeds", value_name = "N")]
    seed: Option<u64>,
    /// With a planted bug.
    #[arg(long, value_name = "NAME")]
    bug: Option<String>,
    /// Seeds run at a time; as many as there are cores if nothing is said.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Runs optimised code, its assertions included. Building it takes minutes; worth it for more than some 1,000 seeds.
    #[arg(long)]
    optimised: bool,
}

/// Runs the seeds; fails if one does.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let mut command = cargo(root, &["run", "--quiet", "--package", "waybill-simulation", "--bin", "simulate"]);
    if args.optimised {
        command.args(["--profile", "simulation"]);
    }
    command.arg("--");
    match args.seed {
        Some(seed) => command.arg("--seed").arg(seed.to_string()),
        None => command.arg(&args.seeds),
    };
    if let Some(bug) = &args.bug {
        command.arg("--bug").arg(bug);
    }
    if let Some(jobs) = args.jobs {
        command.arg("--jobs").arg(jobs.to_string());
    }
    workspace::run(&mut command)
}
