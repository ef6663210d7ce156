//! The publisher: sends what the outbox holds to the log, in order, one message at a time.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use waybill_event::control::OutboxDrained;
use waybill_event::{Boot, Draft};

use super::Shared;
use super::batch::{Batch, Cut};
use super::directory::{Bookmark, Leftover, SegmentFile};
use super::reader::{SegmentReader, Step};
use super::segment;
use super::state::Room;
use crate::dice::spread;
use crate::log::{AppendError, Expect, Log, Record, Stream};

/// How long the file system is left alone after it failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Sends what an outbox holds; there is one for each.
pub struct Publisher {
    shared: Arc<Shared>,
    bookmark: Bookmark,
    leftovers: Vec<Leftover>,
    /// Files of earlier boots that are drained, each with the ordinal of the notice that says so.
    retired: Vec<(u64, Vec<PathBuf>)>,
    /// The next ordinal of this boot to be sent.
    next: u64,
    /// The room of the last payload, once the log has let go of it.
    room: Option<BytesMut>,
    /// Where the publisher reads while more waits than is kept in memory.
    catching_up: Option<(SegmentFile, io::Result<SegmentReader>)>,
}

/// Why a publisher stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The outbox was closed and everything is in the log.
    Drained,
    /// It was cancelled; the next boot sends the rest.
    Cancelled,
}

/// What is to be done next.
enum Next {
    Send(Batch),
    ReadFile,
    Wait(Option<Instant>),
    Finish,
}

impl Publisher {
    pub(super) fn new(shared: Arc<Shared>, bookmark: Bookmark, leftovers: Vec<Leftover>) -> Self {
        Self { shared, bookmark, leftovers, retired: Vec::new(), next: 1, room: None, catching_up: None }
    }

    /// Sends first what earlier boots left, then this boot's events, until the outbox is closed or `cancelled`.
    pub async fn run(mut self, log: Arc<dyn Log>, cancelled: CancellationToken) -> Stopped {
        let stopped = match cancelled.run_until_cancelled(self.publish(log.as_ref())).await {
            Some(()) => Stopped::Drained,
            None => Stopped::Cancelled,
        };
        self.shared.progress.change(|progress| {
            progress.drained = stopped == Stopped::Drained;
            progress.ended = true;
        });
        stopped
    }

    async fn publish(&mut self, log: &dyn Log) {
        for leftover in std::mem::take(&mut self.leftovers) {
            self.drain(leftover, log).await;
        }
        let mut noticed = false;
        loop {
            match self.next(noticed) {
                Next::Send(batch) => {
                    self.catching_up = None;
                    self.send_own(batch, log).await;
                }
                Next::ReadFile => {
                    if let Some(batch) = self.read_own().await {
                        self.send_own(batch, log).await;
                    }
                }
                Next::Wait(None) => self.shared.work.notified().await,
                Next::Wait(Some(until)) => {
                    let linger = tokio::time::timeout_at(until, self.shared.work.notified());
                    // Both ends of this wait mean the same: look again.
                    let _ = linger.await;
                }
                Next::Finish if noticed => break,
                Next::Finish => {
                    noticed = self.notice(self.shared.boot, None).is_some();
                    if !noticed {
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        }
        self.finish();
    }

    fn next(&mut self, noticed: bool) -> Next {
        let limits = self.shared.config.batch;
        let mut state = self.shared.state.lock();
        if self.next > state.appended {
            state.queue.caught_up();
            return if state.closing { Next::Finish } else { Next::Wait(None) };
        }
        if let Some(until) = state.queue.lingering(self.next, limits).filter(|_| !noticed && !state.closing)
            && until > Instant::now()
        {
            return Next::Wait(Some(until));
        }
        state.queue.cut(self.next, limits, self.room.take()).map_or(Next::ReadFile, Next::Send)
    }

    async fn send_own(&mut self, batch: Batch, log: &dyn Log) {
        send(&self.shared, self.shared.boot, &batch, log).await;
        self.next = batch.last + 1;
        let done = self.shared.state.lock().acknowledge(batch.last, batch.record_bytes);
        if let Err(error) = self.bookmark.write(batch.last) {
            tracing::warn!(%error, "outbox: the acknowledged position can't be kept; more will be sent again");
        }
        let retired = self.retired.extract_if(.., |(notice, _)| *notice <= batch.last);
        retired.flat_map(|(_, paths)| paths).for_each(|path| remove(&path));
        done.into_iter().for_each(|path| self.reuse(path));
        self.shared.progress.change(|progress| progress.acknowledged = batch.last);
        self.room = batch.payload.try_into_mut().ok();
    }

    /// A segment is done with: it stands ready to be written over, or goes.
    fn reuse(&self, done: PathBuf) {
        let place = self.shared.state.lock().place_for_spare();
        let Some(place) = place else { return remove(&done) };
        match segment::reuse(&done, &place) {
            Ok(file) => self.shared.state.lock().segments.add_spare(file, place),
            Err(error) => {
                tracing::warn!(%error, path = %done.display(), "outbox: a drained file can't be used again");
                remove(&done);
                remove(&place.path);
            }
        }
    }

    /// The next batch of this boot from its files.
    async fn read_own(&mut self) -> Option<Batch> {
        let limits = self.shared.config.batch;
        let next = self.next;
        let (at_hand, (segment, reader)) = match self.catching_up.take() {
            Some(opened) => (true, opened),
            None => {
                let segment = self.shared.state.lock().segments.holding(next)?;
                let reader = SegmentReader::open(&segment);
                (false, (segment, reader))
            }
        };
        // What a failed write left behind bears ordinals that were given again later, or not yet.
        let end = {
            let state = self.shared.state.lock();
            let written = state.appended + 1;
            state.segments.end_of(segment.first).map_or(written, |end| end.min(written))
        };
        let work = move |mut reader: SegmentReader| {
            let mut cut = Cut::new(limits);
            read_into(&mut cut, &mut reader, next, end)?;
            Ok((cut.finish(), reader))
        };
        let failure = match blocking(reader, work).await {
            Ok((Some(batch), reader)) => {
                self.catching_up = Some((segment, Ok(reader)));
                return Some(batch);
            }
            // The end of a segment: its successor is opened the next time.
            Ok((None, _)) if at_hand => return None,
            Ok((None, _)) => io::Error::other("the next event isn't in its segment"),
            Err(error) => error,
        };
        tracing::error!(error = %failure, next, "outbox: the file can't be read back; trying again");
        tokio::time::sleep(PAUSE).await;
        None
    }

    /// Sends what an earlier boot left, and announces that it is drained.
    async fn drain(&mut self, mut leftover: Leftover, log: &dyn Log) {
        let boot = leftover.boot;
        let all_bytes = leftover.bytes();
        tracing::info!(%boot, acknowledged = leftover.acknowledged, last = leftover.last, "outbox: draining an earlier boot");
        let mut released = 0;
        let mut next = leftover.acknowledged + 1;
        let mut segments = std::mem::take(&mut leftover.segments);
        let mut done = Vec::new();
        while let Some(segment) = segments.pop_front() {
            let end = segments.front().map_or(u64::MAX, |successor| successor.first);
            next = self.drain_segment(boot, &segment, next, end, log, &mut released).await;
            done.push(segment.path);
        }
        // The files go when the log has the notice: whatever happens before only repeats it.
        let noticed = self.notice(boot, Some(leftover.last.max(next - 1)));
        let bookmark = {
            let mut state = self.shared.state.lock();
            state.used = state.used.saturating_sub(all_bytes - released);
            state.segments.directory().bookmark(boot)
        };
        self.shared.counters.earlier_boots.fetch_sub(1, Ordering::Relaxed);
        if let Some(notice) = noticed {
            done.push(bookmark);
            self.retired.push((notice, done));
        }
    }

    async fn drain_segment(
        &self,
        boot: Boot,
        segment: &SegmentFile,
        mut next: u64,
        end: u64,
        log: &dyn Log,
        released: &mut u64,
    ) -> u64 {
        let bookmark = self.shared.state.lock().segments.directory().bookmark(boot);
        let limits = self.shared.config.batch;
        let mut reader = SegmentReader::open(segment);
        loop {
            let work = move |mut reader: SegmentReader| {
                let mut cut = Cut::new(limits);
                let torn = read_into(&mut cut, &mut reader, next, end)?;
                Ok((cut.finish(), torn, reader))
            };
            let (batch, torn, again) = match blocking(reader, work).await {
                Ok(read) => read,
                Err(error) => {
                    tracing::error!(%error, %boot, next, "outbox: a file of an earlier boot can't be read; trying again");
                    tokio::time::sleep(PAUSE).await;
                    reader = SegmentReader::open(segment);
                    continue;
                }
            };
            reader = Ok(again);
            if torn {
                self.shared.counters.damages.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%boot, path = %segment.path.display(), "outbox: the rest of a file is damaged and can't be sent");
            }
            let Some(batch) = batch else { return next };
            send(&self.shared, boot, &batch, log).await;
            next = batch.last + 1;
            *released += batch.record_bytes;
            let mut state = self.shared.state.lock();
            state.used = state.used.saturating_sub(batch.record_bytes);
            drop(state);
            if let Err(error) = Bookmark::open(&bookmark).and_then(|file| file.write(batch.last)) {
                tracing::warn!(%error, "outbox: the acknowledged position can't be kept; more will be sent again");
            }
            if torn {
                return next;
            }
        }
    }

    /// Appends `outbox_drained` for `boot`, and returns its ordinal; `last` is that too when it closes its own boot.
    fn notice(&self, boot: Boot, last: Option<u64>) -> Option<u64> {
        let at = (self.shared.config.clock)();
        let replica = self.shared.config.producer.clone();
        let mut state = self.shared.state.lock();
        let last = last.unwrap_or(state.appended + 1);
        let draft = Draft::new(at, OutboxDrained { replica, boot, last });
        let appended = match draft.encode() {
            Ok(encoded) => state.append(&[encoded], Room::Notice).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = &appended {
            tracing::error!(%error, %boot, "outbox: the notice that a boot is drained can't be written; the next boot will");
        }
        appended.ok().map(|taken| *taken.ordinals.end())
    }

    fn finish(&mut self) {
        if let Err(error) = self.shared.state.lock().segments.remove_all() {
            tracing::warn!(%error, "outbox: a drained file can't be removed");
        }
    }
}

/// Adds records from `next` up to, not including, `end`. Tells whether the segment's rest is damaged.
fn read_into(cut: &mut Cut, reader: &mut SegmentReader, next: u64, end: u64) -> io::Result<bool> {
    let mut expected = next;
    while !cut.is_full() {
        let before = reader.place();
        match reader.step()? {
            Step::Record { ordinal, .. } if ordinal >= end => return Ok(false),
            Step::Record { ordinal, .. } if ordinal < expected => {}
            Step::Record { ordinal, bytes } => {
                if !cut.fits(1, bytes.len()) {
                    reader.rewind(before);
                    return Ok(false);
                }
                cut.add(&bytes);
                expected = ordinal + 1;
            }
            // Behind the last record that its successor knows of nothing is missing.
            Step::End { torn } => return Ok(torn && expected < end),
        }
    }
    Ok(false)
}

/// Reads a file away from the threads that serve requests. A runtime of one thread, as a simulation's, reads in place:
/// there the order of events must not depend on a second thread.
async fn blocking<T: Send + 'static>(
    reader: io::Result<SegmentReader>,
    work: impl FnOnce(SegmentReader) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let reader = reader?;
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return work(reader);
    }
    tokio::task::spawn_blocking(move || work(reader)).await.map_err(io::Error::other)?
}

/// Sends a batch until the log has taken it.
async fn send(shared: &Shared, boot: Boot, batch: &Batch, log: &dyn Log) {
    let record = Record {
        subject: shared.config.subject.clone(),
        message_id: Some(batch.message_id(&shared.config.producer, boot)),
        payload: batch.payload.clone(),
    };
    let retry = shared.config.retry;
    let mut pause = retry.first;
    loop {
        let pausing = match log.append(Stream::Traffic, record.clone(), Expect::Anything).await {
            Ok(_) => return,
            Err(error @ (AppendError::Unknown { .. } | AppendError::Full)) => {
                tracing::debug!(%error, first = batch.first, last = batch.last, "outbox: a batch will be sent again");
                let pausing = pause;
                pause = (pause * 2).min(retry.longest);
                pausing
            }
            Err(error @ (AppendError::Refused { .. } | AppendError::Conflict)) => {
                shared.counters.refused_by_log.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%error, first = batch.first, last = batch.last, "outbox: the log refuses a batch");
                retry.refused
            }
        };
        shared.counters.resends.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(spread(&shared.config.dice, pausing)).await;
    }
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%error, path = %path.display(), "outbox: a drained file can't be removed");
    }
}
