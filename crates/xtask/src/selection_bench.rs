//! Builds and runs the benchmark of selection, and keeps its table.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use crate::workspace::cargo;

/// Where the table is kept.
const FIGURES: &str = "docs/selection.md";
/// What the table stands between.
const MARKS: [&str; 2] = ["<!-- figures -->\n", "<!-- end of figures -->"];

/// How to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Writes the figures to `docs/selection.md`.
    #[arg(long)]
    write: bool,
}

/// Builds in release, measures, and fails where a target is missed.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let mut command = cargo(root, &["bench", "--package", "waybill-proxy", "--bench", "selection"]);
    let ran = command.stderr(Stdio::inherit()).output().context("the benchmark can't be run")?;
    let table = String::from_utf8_lossy(&ran.stdout);
    print!("{table}");
    if args.write {
        let path = root.join(FIGURES);
        let text = std::fs::read_to_string(&path)?;
        let [before, after] = MARKS.map(|mark| text.split_once(mark));
        let (before, after) = before.zip(after).context("the page has no place for figures")?;
        std::fs::write(&path, [before.0, MARKS[0], "\n", &table, "\n", MARKS[1], after.1].concat())?;
    }
    ensure!(ran.status.success(), "a target is missed, or it couldn't be measured");
    Ok(())
}
