//! Processes as the kernel sees them: CPU time, resident memory, and which core they run on. Linux only.

use std::fs;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setpriority_process, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};

/// The core that the measured program has for itself.
pub(crate) const MEASURED_CORE: usize = 0;
/// The core of everything else.
const OTHER_CORE: usize = 1;
/// For what is neither measured nor part of the measuring, where it can't be made to leave the core at once.
const LOWEST_PRIORITY: i32 = 19;

/// A program that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // All of them end at once when asked to, and take their own children along, which a kill would leave behind.
        match i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).map(|id| kill_process(id, Signal::TERM)) {
            Some(Ok(())) => {}
            Some(Err(_)) | None => {
                let _ended_already = self.0.kill();
            }
        }
        let _reaped = self.0.wait();
    }
}

/// Room for thousands of sockets, and the other core for this process and all that it starts.
pub(crate) fn prepare_self() {
    let limit = getrlimit(Resource::Nofile);
    let _left_as_it_is = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    if cores() > 1 {
        pin(None, OTHER_CORE);
    }
}

/// Cores of this machine.
pub(crate) fn cores() -> usize {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines().filter(|line| line.starts_with("processor")).count()
}

fn pin(thread: Option<Pid>, core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    // A machine that refuses measures with more noise, and no less truth.
    let _refused = sched_setaffinity(thread, &set);
}

/// Gives the measured core to all threads of a process.
pub(crate) fn pin_measured(pid: u32) {
    if cores() > 1 {
        for thread in threads(pid) {
            pin(Some(thread), MEASURED_CORE);
        }
    }
}

/// Makes a process step back for those that are measured: it runs while nobody else does, and leaves the core at once. A low
/// priority alone lets it finish its slice of some milliseconds first, which is what stands in for it where it must.
pub(crate) fn step_back(pid: u32) {
    let idle = Command::new("chrt").args(["--idle", "--all-tasks", "--pid", "0", &pid.to_string()]).output();
    if idle.is_ok_and(|done| done.status.success()) {
        return;
    }
    for thread in threads(pid) {
        let _refused = setpriority_process(Some(thread), LOWEST_PRIORITY);
    }
}

/// Makes a thread run as soon as it can, before all that shares its core.
pub(crate) fn run_before_all(thread: i32) {
    let _refused = Command::new("chrt").args(["--fifo", "--pid", "1", &thread.to_string()]).output();
}

fn thread_ids(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn threads(pid: u32) -> Vec<Pid> {
    thread_ids(pid).into_iter().filter_map(|id| Pid::from_raw(i32::try_from(id).ok()?)).collect()
}

/// CPU time that the living threads of these processes have used, in the kernel and outside.
pub(crate) fn cpu(pids: &[u32]) -> Duration {
    let of_thread = |pid: u32, thread: u32| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    let of_process = |pid: &u32| thread_ids(*pid).into_iter().filter_map(|thread| of_thread(*pid, thread)).sum::<u64>();
    Duration::from_nanos(pids.iter().map(of_process).sum())
}

/// Resident memory of these processes, in bytes.
///
/// # Errors
/// One of them is gone.
pub(crate) fn resident(pids: &[u32]) -> Result<u64> {
    let mut sum = 0;
    for pid in pids {
        let path = format!("/proc/{pid}/status");
        let text = fs::read_to_string(&path).context(path)?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS")?;
        sum += kib * 1024;
    }
    Ok(sum)
}

/// Processes that descend from this one, itself included.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    for child in children.split_whitespace().filter_map(|id| id.parse().ok()) {
        all.extend(family(child));
    }
    all
}
