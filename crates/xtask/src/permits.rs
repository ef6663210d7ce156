//! Runs the suite of permits over real servers in full: times to live and minutes as they are in production. CI runs the
//! same in scaled times.

use std::path::Path;

use anyhow::{Context, Result};

use crate::workspace::{self, cargo};

/// Builds and runs; prints what was measured, and fails where a limit didn't hold or too little was done.
pub(crate) fn run(root: &Path) -> Result<()> {
    let suite = &["test", "--package", "waybill-journal-nats", "--test", "permits", "--"];
    let mut command = cargo(root, suite);
    command.args(["--nocapture", "--test-threads", "1"]).env("WAYBILL_PERMITS_IN_FULL", "1");
    workspace::run(&mut command).context("a limit didn't hold, or too little was done")
}
