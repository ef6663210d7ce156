//! The outbox's directory: who holds it, and the files that earlier boots left.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use waybill_event::Boot;

use super::OpenError;
use super::reader::{SegmentReader, Step};

const SEGMENT: &str = "seg";
const BOOKMARK: &str = "acked";
const SPARE: &str = "spare";

/// A directory that this process alone holds, until it is dropped.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    _lock: File,
}

/// A file of records.
#[derive(Debug, Clone)]
pub(super) struct SegmentFile {
    /// The ordinal of its first record.
    pub(super) first: u64,
    pub(super) path: PathBuf,
    /// Bytes of records in it.
    pub(super) bytes: u64,
}

/// What an earlier boot left.
#[derive(Debug)]
pub(super) struct Leftover {
    pub(super) boot: Boot,
    /// Ordinals up to this one are in the log already.
    pub(super) acknowledged: u64,
    /// Its last ordinal; 0 if it wrote nothing.
    pub(super) last: u64,
    pub(super) segments: VecDeque<SegmentFile>,
}

impl Leftover {
    /// Bytes of all its segments.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
}

impl Directory {
    /// Takes the directory for `boot`, creating it if need be, and looks at what earlier boots left, oldest first.
    pub(super) fn open(path: &Path, boot: Boot) -> Result<(Self, Vec<Leftover>), OpenError> {
        std::fs::create_dir_all(path)?;
        let mut lock =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::Held { dir: path.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let mut held_last = String::new();
        lock.read_to_string(&mut held_last)?;
        let held_last = held_last.trim().parse::<Boot>().ok();
        let directory = Self { path: path.to_owned(), _lock: lock.try_clone()? };
        let leftovers = directory.leftovers()?;
        let newest = leftovers.iter().map(|leftover| leftover.boot).chain(held_last).max();
        if let Some(found) = newest.filter(|found| *found >= boot) {
            return Err(OpenError::NotNewer { boot, found });
        }
        lock.set_len(0)?;
        lock.seek(SeekFrom::Start(0))?;
        writeln!(lock, "{boot}")?;
        Ok((directory, leftovers))
    }

    pub(super) fn segment(&self, boot: Boot, first: u64) -> PathBuf {
        self.path.join(format!("{boot}.{first:020}.{SEGMENT}"))
    }

    pub(super) fn spare(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number}.{SPARE}"))
    }

    pub(super) fn bookmark(&self, boot: Boot) -> PathBuf {
        self.path.join(format!("{boot}.{BOOKMARK}"))
    }

    fn leftovers(&self) -> Result<Vec<Leftover>, OpenError> {
        let mut found: BTreeMap<Boot, BTreeMap<u64, PathBuf>> = BTreeMap::new();
        for entry in std::fs::read_dir(&self.path)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let parts: Vec<&str> = name.split('.').collect();
            match *parts.as_slice() {
                [_, SPARE] => std::fs::remove_file(&path)?,
                [boot, BOOKMARK] => {
                    if let Ok(boot) = boot.parse() {
                        found.entry(boot).or_default();
                    }
                }
                [boot, first, SEGMENT] => {
                    if let (Ok(boot), Ok(first)) = (boot.parse(), first.parse()) {
                        found.entry(boot).or_default().insert(first, path.clone());
                    }
                }
                _ => {}
            }
        }
        found.into_iter().map(|(boot, segments)| self.leftover(boot, segments)).collect()
    }

    fn leftover(&self, boot: Boot, paths: BTreeMap<u64, PathBuf>) -> Result<Leftover, OpenError> {
        let acknowledged = read_bookmark(&self.bookmark(boot))?;
        let mut segments = VecDeque::with_capacity(paths.len());
        for (first, path) in paths {
            let bytes = std::fs::metadata(&path)?.len();
            segments.push_back(SegmentFile { first, path, bytes });
        }
        let mut last = acknowledged;
        if let Some(newest) = segments.back_mut() {
            let end = cut_torn_tail(newest)?;
            last = last.max(end);
        }
        Ok(Leftover { boot, acknowledged, last, segments })
    }
}

/// Cuts off what no whole record follows, and returns the last ordinal (the one before the first, if there is none).
fn cut_torn_tail(segment: &mut SegmentFile) -> io::Result<u64> {
    let mut reader = SegmentReader::open(segment)?;
    let mut last = segment.first.saturating_sub(1);
    while let Step::Record { ordinal, .. } = reader.step()? {
        last = ordinal;
    }
    segment.bytes = reader.position();
    OpenOptions::new().write(true).open(&segment.path)?.set_len(segment.bytes)?;
    Ok(last)
}

/// The acknowledged ordinal of a boot, written in place without fsync: losing it only means sending again.
#[derive(Debug)]
pub(super) struct Bookmark {
    file: File,
}

impl Bookmark {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        Ok(Self { file })
    }

    pub(super) fn write(&self, ordinal: u64) -> io::Result<()> {
        let ordinal = ordinal.to_le_bytes();
        let mut bytes = [0; 12];
        for (slot, byte) in bytes.iter_mut().zip(ordinal.into_iter().chain(crc32fast::hash(&ordinal).to_le_bytes())) {
            *slot = byte;
        }
        self.file.write_all_at(&bytes, 0)
    }
}

fn read_bookmark(path: &Path) -> io::Result<u64> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let Some((ordinal, rest)) = bytes.split_first_chunk::<8>() else { return Ok(0) };
    let intact = rest == crc32fast::hash(ordinal).to_le_bytes();
    Ok(if intact { u64::from_le_bytes(*ordinal) } else { 0 })
}
