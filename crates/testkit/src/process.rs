//! Processes by their ids: signals, and who descends from whom. Linux only, like the suites.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::{until, wait_until};

/// What `/proc` counts CPU time in; the kernel's interface fixes it.
const TICK: Duration = Duration::from_millis(10);

/// Sends a signal; a process that is gone gets none.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    match kill_process(id, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => panic!("can't send {signal:?} to process {pid}: {error}"),
    }
}

/// Whether all of a process's threads stand still, or it is gone: a signal is sent before it has taken effect everywhere.
pub(crate) fn stands_still(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    let runs = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['T', 't', 'Z', 'X']));
    !threads.flatten().any(|thread| fs::read_to_string(thread.path().join("stat")).is_ok_and(runs))
}

/// What `/proc` says of a process.
struct Stat {
    parent: u32,
    /// Tells a process from a later one with the same id.
    started: u64,
    /// Whether it has ended and only waits for its parent to notice.
    zombie: bool,
    name: String,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold anything.
    let (head, tail) = text.rsplit_once(')')?;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
        zombie: matches!(*fields.first()?, "Z" | "X"),
        name: head.split_once('(')?.1.to_owned(),
    })
}

fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// A process and everything that descends from it, as it was at one moment.
#[derive(Debug, Clone, Default)]
pub struct Descendants(BTreeSet<(u32, u64, String)>);

impl Descendants {
    /// The process `root` and its descendants now.
    #[must_use]
    pub fn of(root: u32) -> Self {
        let all: Vec<(u32, Stat)> = all().into_iter().filter_map(|pid| Some((pid, stat(pid)?))).collect();
        let mut found = BTreeSet::from([root]);
        loop {
            let before = found.len();
            found.extend(
                all.iter().filter(|(_, stat)| found.contains(&stat.parent)).map(|(pid, _)| *pid).collect::<Vec<_>>(),
            );
            if found.len() == before {
                break;
            }
        }
        let named = all.into_iter().filter(|(pid, _)| found.contains(pid));
        Self(named.map(|(pid, stat)| (pid, stat.started, stat.name)).collect())
    }

    /// How many they were.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// CPU time that those of them that still run have used, their ended children included; to 10 ms.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        let ticks = |pid: u32| -> Option<u64> {
            let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let fields = text.rsplit_once(')')?.1.split_whitespace().skip(11).take(4);
            Some(fields.filter_map(|field| field.parse::<u64>().ok()).sum())
        };
        self.pids().filter_map(ticks).map(|ticks| TICK * u32::try_from(ticks).unwrap_or(u32::MAX)).sum()
    }

    /// Whether there were none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|(pid, ..)| *pid)
    }

    /// Those of them that still run, as `pid (name)`.
    #[must_use]
    pub fn alive(&self) -> Vec<String> {
        let runs = |pid: u32, started| stat(pid).is_some_and(|stat| stat.started == started && !stat.zombie);
        let alive = self.0.iter().filter(|(pid, started, _)| runs(*pid, *started));
        alive.map(|(pid, _, name)| format!("{pid} ({name})")).collect()
    }

    /// Waits until none of them runs any more.
    ///
    /// # Panics
    /// When one still does after `deadline`.
    pub async fn gone(&self, deadline: Duration) {
        wait_until(deadline, "all processes of the fleet are gone", async || {
            let alive = self.alive();
            until(alive.is_empty(), || alive.join(", "))
        })
        .await;
    }

    /// Lets those go on that were frozen.
    pub(crate) fn go_on(&self) {
        for pid in self.pids() {
            signal(pid, Signal::CONT);
        }
    }

    /// Ends those that still run, the hard way.
    pub(crate) fn kill(&self) {
        for (pid, started, _) in &self.0 {
            if stat(*pid).is_some_and(|stat| stat.started == *started) {
                signal(*pid, Signal::KILL);
            }
        }
    }
}
