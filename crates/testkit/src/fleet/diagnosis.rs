//! What a failing test shows: the ends of all logs of the fleet.

use std::fs;
use std::path::Path;

use super::Fleet;

/// Lines shown of each log.
const LINES: usize = 15;
/// Longest line shown, in characters.
const LINE_CHARS: usize = 400;

impl Fleet {
    /// The ends of all logs of the fleet.
    #[must_use]
    pub fn diagnosis(&self) -> String {
        of(self.root())
    }
}

pub(super) fn of(root: &Path) -> String {
    let mut paths = vec![root.join("dev.log")];
    let logs = fs::read_dir(root.join("fleet/log")).into_iter().flatten().flatten();
    let mut logs: Vec<_> = logs.map(|entry| entry.path()).collect();
    logs.sort();
    paths.extend(logs);
    paths.extend(["nats", "nats-cluster/n1", "nats-cluster/n2", "nats-cluster/n3"].map(|node| {
        let node = format!("fleet/data/{node}/nats.log");
        root.join(node)
    }));
    paths.push(root.join("fleet/data/postgres/postgres.log"));
    let shown = paths.iter().filter_map(|path| {
        let text = fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())?;
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(LINES);
        let tail: Vec<String> =
            lines.into_iter().skip(from).map(|line| line.chars().take(LINE_CHARS).collect()).collect();
        Some(format!("---- {}\n{}\n", path.display(), tail.join("\n")))
    });
    shown.collect()
}
