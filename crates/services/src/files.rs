//! Small things with files that more than one service needs.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// How much of a log's end is looked at: more than a minute of failed health checks takes.
const TAIL_BYTES: u64 = 1024 * 1024;

/// Writes `text` to `path` so that only its owner may read it; a reader sees the old text or the new one, never half.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("new");
    let _absent_is_fine = fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

/// The last `lines` lines of a log, for an error message; empty when it can't be read. Of lines that say the same but for
/// their time only the last one is shown, with how often it was said: a health check that fails fifty times a second
/// would hide all else.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let mut said: HashMap<&str, usize> = HashMap::new();
    let mut last = Vec::new();
    for line in text.lines().rev() {
        let times = said.entry(untimed(line)).or_default();
        *times += 1;
        if *times == 1 {
            last.push(line);
        }
    }
    let shown = last.into_iter().take(lines).map(|line| match said.get(untimed(line)) {
        Some(times) if *times > 1 => format!("{line} (said {times} times)"),
        _ => line.to_owned(),
    });
    let mut shown: Vec<String> = shown.collect();
    shown.reverse();
    shown.join("\n")
}

/// A line of a log without what stands before its text: process and time, in digits. A line of digits alone is all text.
fn untimed(line: &str) -> &str {
    let text = line.trim_start_matches(|c: char| c.is_ascii_digit() || " []/:.-".contains(c));
    if text.is_empty() { line } else { text }
}

/// Whether every user may walk through `path` and all folders above it.
pub(crate) fn traversable_by_all(path: &Path) -> bool {
    path.ancestors()
        .filter(|folder| !folder.as_os_str().is_empty())
        .all(|folder| fs::metadata(folder).is_ok_and(|meta| meta.permissions().mode() & 0o001 != 0))
}

/// Creates a folder of ours under a place where everyone may write, or takes the one that is there already; one that
/// belongs to somebody else is refused, since they could change what lies in it.
pub(crate) fn own_folder(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    let meta = fs::symlink_metadata(path)?;
    let me = rustix::process::geteuid().as_raw();
    if !meta.is_dir() || meta.uid() != me {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} belongs to another user", path.display()),
        ));
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// A name for `path` that is short and stays the same.
pub(crate) fn short_name(path: &Path) -> String {
    let digest: [u8; 32] = Sha256::digest(path.as_os_str().as_encoded_bytes()).into();
    digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// `path` made absolute, through links too, once it exists.
pub(crate) fn created(path: &Path) -> io::Result<PathBuf> {
    fs::create_dir_all(path)?;
    fs::canonicalize(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_file_is_readable_by_its_owner_only_and_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        write_private(&path, "one").unwrap();
        write_private(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn the_tail_has_the_last_lines_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, (0..9).map(|n| format!("{n}\n")).collect::<String>()).unwrap();
        assert_eq!(tail(&path, 2), "7\n8");
        assert_eq!(tail(&dir.path().join("absent"), 2), "");
    }

    #[test]
    fn what_is_said_again_and_again_hides_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let line = |n: usize, text: &str| format!("[7] 2026/11/30 21:09:{:02}.{n:06} {text}\n", n / 50);
        let mut log = line(0, "[INF] Starting");
        for n in 0..3000 {
            log += &line(n, "[WRN] Healthcheck failed: no leader");
            if n == 20 {
                log += &line(n, "[ERR] no route to 127.0.0.1:33001");
            }
        }
        fs::write(&path, log).unwrap();
        assert_eq!(
            tail(&path, 3),
            "[7] 2026/11/30 21:09:00.000000 [INF] Starting\n\
             [7] 2026/11/30 21:09:00.000020 [ERR] no route to 127.0.0.1:33001\n\
             [7] 2026/11/30 21:09:59.002999 [WRN] Healthcheck failed: no leader (said 3000 times)"
        );
    }

    #[test]
    fn a_closed_folder_above_closes_all_below() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("closed/open");
        fs::create_dir_all(&below).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(traversable_by_all(&below));
        fs::set_permissions(dir.path().join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(!traversable_by_all(&below));
    }
}
