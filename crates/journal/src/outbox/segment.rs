//! The files that the running boot writes: preallocated, one after the other. A file whose events are all in the log is
//! written over: its pages are in memory already, where those of a new one are cleared and found room for one by one,
//! and those of a deleted one thrown away. What it held before can't be read as what it holds now, since a segment's
//! ordinals follow one upon the other from its first.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use waybill_event::Boot;

use super::directory::{Directory, SegmentFile};

/// The series of segments of the running boot.
#[derive(Debug)]
pub(super) struct Segments {
    directory: Directory,
    boot: Boot,
    segment_bytes: u64,
    active: Option<Active>,
    /// Full segments that hold unacknowledged records, oldest first.
    full: Vec<SegmentFile>,
    /// Preallocated files: what open requests were promised must also fit when the disk has become full.
    spares: Vec<(File, PathBuf)>,
    spares_made: u64,
    /// The most that were asked for to stand ready.
    most_spares: usize,
}

/// Where a file stands ready to become a segment, and its size.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    bytes: u64,
}

#[derive(Debug)]
struct Active {
    file: File,
    segment: SegmentFile,
    capacity: u64,
    /// A write failed in it: what stands at its end is unknown, so that nothing more is written there.
    spoilt: bool,
}

impl Segments {
    pub(super) fn new(directory: Directory, boot: Boot, segment_bytes: u64) -> Self {
        Self {
            directory,
            boot,
            segment_bytes: segment_bytes.max(1),
            active: None,
            full: Vec::new(),
            spares: Vec::new(),
            spares_made: 0,
            most_spares: 0,
        }
    }

    pub(super) const fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Writes records that begin with ordinal `first`, with one system call. `keep` spares are left for others.
    pub(super) fn write(&mut self, first: u64, records: &[u8], keep: usize) -> io::Result<()> {
        let length = u64::try_from(records.len()).unwrap_or(u64::MAX);
        let fits = |active: &Active| !active.spoilt && active.segment.bytes + length <= active.capacity;
        if !self.active.as_ref().is_some_and(fits) {
            self.rotate(first, length, keep)?;
        }
        let Some(active) = &mut self.active else {
            return Err(io::Error::other("no segment is open"));
        };
        match active.file.write_all_at(records, active.segment.bytes) {
            Ok(()) => {
                active.segment.bytes += length;
                Ok(())
            }
            Err(error) => {
                // Whole records of a write that failed were refused: they must not be found again.
                active.spoilt = true;
                if let Err(error) = active.file.set_len(active.segment.bytes) {
                    tracing::error!(%error, path = %active.segment.path.display(), "outbox: a failed write stays in the file");
                }
                Err(error)
            }
        }
    }

    /// Makes sure that at least `count` preallocated files stand ready.
    pub(super) fn ensure_spares(&mut self, count: usize) -> io::Result<()> {
        self.most_spares = self.most_spares.max(count);
        while self.spares.len() < count {
            let place = self.new_place();
            let file = match preallocate(&place.path, place.bytes, true) {
                Ok(file) => file,
                Err(error) => {
                    if let Err(error) = std::fs::remove_file(&place.path) {
                        tracing::debug!(%error, "outbox: the file of a failed preallocation can't be removed");
                    }
                    return Err(error);
                }
            };
            self.add_spare(file, place);
        }
        Ok(())
    }

    /// Where a file that is done with may stand ready, beside as many as were ever asked for at a time.
    pub(super) fn place_for_spare(&mut self) -> Option<Place> {
        (self.spares.len() <= self.most_spares).then(|| self.new_place())
    }

    /// A file stands ready.
    pub(super) fn add_spare(&mut self, file: File, place: Place) {
        self.spares.push((file, place.path));
    }

    fn new_place(&mut self) -> Place {
        let path = self.directory.spare(self.spares_made);
        self.spares_made += 1;
        Place { path, bytes: self.segment_bytes }
    }

    /// The segment in which this ordinal stands.
    pub(super) fn holding(&self, ordinal: u64) -> Option<SegmentFile> {
        let active = self.active.as_ref().map(|active| &active.segment);
        self.full.iter().chain(active).rfind(|segment| segment.first <= ordinal).cloned()
    }

    /// Where the segment that begins with `first` ends: the first ordinal of its successor.
    pub(super) fn end_of(&self, first: u64) -> Option<u64> {
        let active = self.active.as_ref().map(|active| active.segment.first);
        self.full.iter().map(|segment| segment.first).chain(active).find(|other| *other > first)
    }

    /// Takes out the full segments that hold nothing after `acknowledged`; the caller writes them over or deletes them.
    pub(super) fn release(&mut self, acknowledged: u64) -> Vec<PathBuf> {
        let successors = self.full.iter().skip(1).map(|segment| segment.first);
        let firsts = successors.chain(self.active.as_ref().map(|active| active.segment.first));
        let done = firsts.take_while(|first| *first <= acknowledged + 1).count().min(self.full.len());
        self.full.drain(..done).map(|segment| segment.path).collect()
    }

    /// Deletes every file of this boot; to be called when all is acknowledged.
    pub(super) fn remove_all(&mut self) -> io::Result<()> {
        let active = self.active.take().map(|active| active.segment.path);
        let full = self.full.drain(..).map(|segment| segment.path);
        let spares = self.spares.drain(..).map(|(_, path)| path);
        for path in full.chain(active).chain(spares) {
            std::fs::remove_file(path)?;
        }
        std::fs::remove_file(self.directory.bookmark(self.boot))
    }

    fn rotate(&mut self, first: u64, needed: u64, keep: usize) -> io::Result<()> {
        let path = self.directory.segment(self.boot, first);
        let capacity = self.segment_bytes.max(needed);
        let spare = if capacity > self.segment_bytes {
            None
        } else {
            self.ensure_spares(keep + 1)?;
            Some(self.spares.pop().ok_or_else(|| io::Error::other("no segment stands ready"))?)
        };
        // What stands behind its last record must be gone before it has a successor: after a kill only the newest segment
        // is searched for its end.
        if let Some(Active { file, segment, .. }) = &self.active
            && let Err(error) = file.set_len(segment.bytes)
        {
            tracing::warn!(%error, path = %segment.path.display(), "outbox: blank space stays in a full segment");
        }
        let file = match spare {
            Some((file, spare)) => {
                std::fs::rename(spare, &path)?;
                file
            }
            None => preallocate(&path, capacity, true)?,
        };
        let segment = SegmentFile { first, path, bytes: 0 };
        let ended = self.active.replace(Active { file, segment, capacity, spoilt: false });
        let Some(ended) = ended else { return Ok(()) };
        if ended.segment.bytes == 0 {
            // Nothing was ever written to it; a successor may even bear its name.
            if ended.segment.first != first {
                std::fs::remove_file(&ended.segment.path)?;
            }
        } else {
            self.full.push(ended.segment);
        }
        Ok(())
    }
}

/// Puts a file that is done with in its place, to be written over.
pub(super) fn reuse(done: &Path, place: &Place) -> io::Result<File> {
    std::fs::rename(done, &place.path)?;
    preallocate(&place.path, place.bytes, false)
}

/// Opens a file with room for so many bytes, empty or as it is; where the file system can't promise room, the size is
/// only set.
fn preallocate(path: &Path, bytes: u64, empty: bool) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(empty).open(path)?;
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => {}
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(bytes)?,
        Err(error) => return Err(error.into()),
    }
    Ok(file)
}
