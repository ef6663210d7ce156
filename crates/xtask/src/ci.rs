//! What CI runs and what a person runs.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::workspace::{self, cargo};
use crate::{deploy, layers, purity, sizes};

/// Black-box suites run whole fleets of processes: few at a time.
const BLACK_BOX_AT_ONCE: &str = "2";
const BLACK_BOX: &str = "waybill-tests";

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leaves out the black-box suites.
    #[arg(long)]
    fast: bool,
}

type Step = (&'static str, Box<dyn Fn(&Path) -> Result<()>>);

/// Runs all steps; stops at the first that fails.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let mut times: Vec<(&str, Duration)> = Vec::new();
    for (name, step) in steps(root, args) {
        println!("== {name}");
        let began = Instant::now();
        step(root).with_context(|| format!("step `{name}` failed"))?;
        let took = began.elapsed();
        println!("== {name}: {:.1} s", took.as_secs_f64());
        times.push((name, took));
    }
    let total: Duration = times.iter().map(|(_, took)| *took).sum();
    let list: Vec<String> = times.iter().map(|(name, took)| format!("{name} {:.1}", took.as_secs_f64())).collect();
    println!("ci: all {} steps passed in {:.1} s ({})", times.len(), total.as_secs_f64(), list.join(", "));
    Ok(())
}

fn steps(root: &Path, args: &Args) -> Vec<Step> {
    let nextest = has_nextest(root);
    let mut steps: Vec<Step> = vec![
        ("fmt", Box::new(|root| workspace::run(&mut cargo(root, &["fmt", "--all", "--check"])))),
        ("layers", Box::new(layers::run)),
        ("sizes", Box::new(sizes::run)),
        ("purity", Box::new(purity::run)),
        ("clippy", Box::new(clippy)),
        ("docs", Box::new(docs)),
        ("deploy", Box::new(deploy::run)),
        ("tests", Box::new(move |root| tests(root, nextest))),
    ];
    if nextest {
        // Plain `cargo test` has run them already.
        steps.push(("doc tests", Box::new(|root| workspace::run(&mut cargo(root, &["test", "--workspace", "--doc"])))));
    }
    if !args.fast {
        steps.push(("black box", Box::new(move |root| black_box(root, nextest))));
    }
    steps
}

fn clippy(root: &Path) -> Result<()> {
    workspace::run(&mut cargo(root, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn docs(root: &Path) -> Result<()> {
    workspace::run(cargo(root, &["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}

fn tests(root: &Path, nextest: bool) -> Result<()> {
    let runner: &[&str] = if nextest { &["nextest", "run"] } else { &["test"] };
    workspace::run(golden(cargo(root, runner).args(["--workspace", "--exclude", BLACK_BOX])))
}

/// The suites run the binary as a user would, so it is built first.
fn black_box(root: &Path, nextest: bool) -> Result<()> {
    workspace::run(&mut cargo(root, &["build", "--package", "waybill", "--bins"]))?;
    let mut command = if nextest {
        cargo(root, &["nextest", "run", "--package", BLACK_BOX, "--test-threads", BLACK_BOX_AT_ONCE])
    } else {
        cargo(root, &["test", "--package", BLACK_BOX, "--", "--test-threads", BLACK_BOX_AT_ONCE])
    };
    workspace::run(golden(&mut command))
}

/// Golden files are compared, never written.
fn golden(command: &mut std::process::Command) -> &mut std::process::Command {
    command.env("INSTA_UPDATE", "no")
}

fn has_nextest(root: &Path) -> bool {
    cargo(root, &["nextest", "--version"]).output().is_ok_and(|output| output.status.success())
}
