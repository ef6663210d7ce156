//! What a death leaves of an outbox's files. Their form is the outbox's; only as much of it is known here as it takes to
//! find where the records end.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use waybill_event::Boot;

use crate::chance::Chance;

/// Bytes before a record's event: length, checksum, ordinal, time.
const HEADER: usize = 24;

/// Copies a directory's files.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        if path.extension().is_none_or(|kind| kind != "spare") {
            fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

/// A record in a file.
struct Found {
    at: usize,
    length: usize,
    ordinal: u64,
}

/// A boot's newest file with its records.
fn newest(dir: &Path, boot: Boot) -> Option<(PathBuf, Vec<u8>, Vec<Found>)> {
    let prefix = format!("{boot}.");
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let is_segment = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(&prefix) && name.ends_with(".seg")
    };
    let path = files.filter(is_segment).max()?;
    let bytes = fs::read(&path).unwrap();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(header) = bytes.get(at..at + HEADER) {
        let event = usize::try_from(u32::from_le_bytes(header[..4].try_into().unwrap())).unwrap();
        let ordinal = u64::from_le_bytes(header[8..16].try_into().unwrap());
        if event == 0 {
            break;
        }
        found.push(Found { at, length: HEADER + event, ordinal });
        at += HEADER + event;
    }
    Some((path, bytes, found))
}

/// The process died within a write: after the last record the beginning of another one stands. With `sums_right` its
/// checksum is right all the same, as it is for a reader that doesn't look at it.
pub fn tear(dir: &Path, boot: Boot, chance: &mut Chance, sums_right: bool) {
    let Some((path, bytes, found)) = newest(dir, boot) else { return };
    let Some(last) = found.last() else { return };
    let end = last.at + last.length;
    if end + last.length > bytes.len() {
        return;
    }
    let mut record = bytes[last.at..end].to_vec();
    record[8..16].copy_from_slice(&(last.ordinal + 1).to_le_bytes());
    let kept = HEADER + usize::try_from(chance.below(u64::try_from(last.length - HEADER).unwrap())).unwrap();
    record[kept..].fill(0);
    if sums_right {
        let sum = crc32fast::hash(&record[8..]);
        record[4..8].copy_from_slice(&sum.to_le_bytes());
    } else {
        // Of the whole event, not of what was written of it.
        let sum = !crc32fast::hash(&record[8..]);
        record[4..8].copy_from_slice(&sum.to_le_bytes());
    }
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&record[..if sums_right { record.len() } else { kept }], u64::try_from(end).unwrap()).unwrap();
}

/// The machine died: of the records that the log hasn't acknowledged some are gone, the last of what is left perhaps in
/// part. Says whether anything is.
pub fn lose(dir: &Path, boot: Boot, acknowledged: u64, chance: &mut Chance) -> bool {
    let Some((path, bytes, found)) = newest(dir, boot) else { return false };
    let Some(first) = found.iter().find(|record| record.ordinal > acknowledged) else { return false };
    let Some(last) = found.last() else { return false };
    let kept = chance.among(u64::try_from(first.at).unwrap(), u64::try_from(last.at + last.length - 1).unwrap());
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(kept).unwrap();
    // The file's length is as it was: what was in its blocks is not.
    file.set_len(u64::try_from(bytes.len()).unwrap()).unwrap();
    true
}
