//! What every test here needs.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use waybill_services::{Finder, Launcher};

/// The crate's own binary, whose `main` begins with the shim.
pub(super) const BINARY: &str = env!("CARGO_BIN_EXE_waybill-services");

pub(super) fn launcher() -> Launcher {
    Launcher::Binary(PathBuf::from(BINARY))
}

pub(super) fn finder(dir: &Path) -> Finder {
    Finder::new(dir)
}

/// Whether a process lives; one that has ended but wasn't reaped by its parent doesn't.
pub(super) fn alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which stands in brackets and may hold spaces.
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Processes whose command line or folder names `dir`.
pub(super) fn processes_in(dir: &Path) -> Vec<u32> {
    let needle = dir.to_str().unwrap();
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        *pid != std::process::id() && String::from_utf8_lossy(&line).contains(needle) && alive(*pid)
    })
    .collect()
}

/// Waits until `condition` holds; fails after 20 s.
pub(super) async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < end, "not within 20 s: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
