//! One stream in memory.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use waybill_event::LogTime;

use crate::log::{AppendError, Appended, Bounds, Expect, Message, ReadError, Record, Start, Stream};

/// How long a message id is remembered.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);
/// Messages that `WB_SECRET` keeps for each subject.
const SECRETS_KEPT: usize = 2;

pub(super) struct StreamState {
    stream: Stream,
    messages: BTreeMap<u64, Message>,
    last: u64,
    bytes: u64,
    max_bytes: u64,
    by_subject: BTreeMap<String, VecDeque<u64>>,
    ids: BTreeMap<String, u64>,
    ids_by_age: VecDeque<(LogTime, String)>,
    duplicate_window: Duration,
}

/// Where a follower is.
pub(super) struct Follower {
    after: u64,
    /// Whether it has told a message: from then on a hole is an error.
    begun: bool,
    snapshot: VecDeque<Message>,
}

impl StreamState {
    pub(super) const fn new(stream: Stream) -> Self {
        Self {
            stream,
            messages: BTreeMap::new(),
            last: 0,
            bytes: 0,
            max_bytes: 0,
            by_subject: BTreeMap::new(),
            ids: BTreeMap::new(),
            ids_by_age: VecDeque::new(),
            duplicate_window: DUPLICATE_WINDOW,
        }
    }

    pub(super) const fn set_max_bytes(&mut self, max_bytes: u64) {
        self.max_bytes = max_bytes;
    }

    pub(super) const fn set_duplicate_window(&mut self, window: Duration) {
        self.duplicate_window = window;
    }

    /// Appends all or none.
    pub(super) fn append(
        &mut self,
        records: Vec<Record>,
        expect: Expect,
        now: LogTime,
    ) -> Result<Appended, AppendError> {
        self.forget_ids(now);
        let known = records.iter().rev().find_map(|record| self.ids.get(record.message_id.as_ref()?));
        if let Some(&sequence) = known {
            return Ok(Appended { sequence, duplicate: true });
        }
        let Some(first) = records.first() else {
            return Err(AppendError::Refused { reason: "no message".to_owned() });
        };
        let holds = match expect {
            Expect::Anything => true,
            Expect::LastInStream(last) => last == self.last,
            Expect::LastOfSubject(last) => last == self.last_of(&first.subject).map_or(0, |message| message.sequence),
        };
        if !holds {
            return Err(AppendError::Conflict);
        }
        let prefix = self.stream.subjects().trim_end_matches('>');
        if let Some(stray) = records.iter().find(|record| !record.subject.starts_with(prefix)) {
            return Err(AppendError::Refused {
                reason: format!("{} is not a subject of {}", stray.subject, self.stream.name()),
            });
        }
        let more: u64 = records.iter().map(|record| size(&record.subject, record.payload.len())).sum();
        if self.max_bytes > 0 && self.bytes + more > self.max_bytes {
            return Err(AppendError::Full);
        }
        for record in records {
            self.store(record, now);
        }
        Ok(Appended { sequence: self.last, duplicate: false })
    }

    fn store(&mut self, record: Record, now: LogTime) {
        self.last += 1;
        let sequence = self.last;
        if let Some(id) = record.message_id {
            self.ids.insert(id.clone(), sequence);
            self.ids_by_age.push_back((now, id));
        }
        self.bytes += size(&record.subject, record.payload.len());
        let of_subject = self.by_subject.entry(record.subject.clone()).or_default();
        of_subject.push_back(sequence);
        let surplus =
            (self.stream == Stream::Secret && of_subject.len() > SECRETS_KEPT).then(|| of_subject.pop_front());
        if let Some(oldest) = surplus.flatten() {
            self.remove(oldest);
        }
        let message = Message { subject: record.subject, sequence, stored_at: now, payload: record.payload };
        self.messages.insert(sequence, message);
    }

    /// Removes the messages before `first`, and returns how many that were.
    pub(super) fn remove_before(&mut self, first: u64) -> u64 {
        let mut removed = 0;
        while let Some((&oldest, _)) = self.messages.first_key_value().filter(|(oldest, _)| **oldest < first) {
            self.remove(oldest);
            removed += 1;
        }
        removed
    }

    pub(super) fn bounds(&self) -> Bounds {
        let first = self.messages.first_key_value().map_or(self.last + 1, |(first, _)| *first);
        Bounds { first, last: self.last, bytes: self.bytes, max_bytes: self.max_bytes }
    }

    pub(super) fn after(&self, sequence: u64) -> impl Iterator<Item = &Message> {
        self.messages.range(sequence.saturating_add(1)..).map(|(_, message)| message)
    }

    pub(super) fn last_of(&self, subject: &str) -> Option<&Message> {
        self.messages.get(self.by_subject.get(subject)?.back()?)
    }

    pub(super) fn follower(&self, start: Start) -> Follower {
        match start {
            Start::At(from) => Follower { after: from.saturating_sub(1), begun: false, snapshot: VecDeque::new() },
            Start::New => Follower { after: self.last, begun: true, snapshot: VecDeque::new() },
            Start::LastPerSubject => {
                let mut snapshot: Vec<Message> =
                    self.by_subject.keys().filter_map(|subject| self.last_of(subject)).cloned().collect();
                snapshot.sort_by_key(|message| message.sequence);
                Follower { after: self.last, begun: true, snapshot: snapshot.into() }
            }
        }
    }

    /// What a follower is told next, if there is something.
    pub(super) fn next(&self, follower: &mut Follower) -> Option<Result<Message, ReadError>> {
        if let Some(message) = follower.snapshot.pop_front() {
            return Some(Ok(message));
        }
        let message = self.after(follower.after).next()?;
        let expected = follower.after + 1;
        if follower.begun && message.sequence != expected && self.stream != Stream::Secret {
            follower.after = message.sequence - 1;
            return Some(Err(ReadError::Gap { stream: self.stream.name(), expected, met: message.sequence }));
        }
        follower.begun = true;
        follower.after = message.sequence;
        Some(Ok(message.clone()))
    }

    fn remove(&mut self, sequence: u64) {
        let Some(message) = self.messages.remove(&sequence) else { return };
        self.bytes -= size(&message.subject, message.payload.len());
        if let Some(of_subject) = self.by_subject.get_mut(&message.subject) {
            of_subject.retain(|other| *other != sequence);
        }
    }

    fn forget_ids(&mut self, now: LogTime) {
        let window = self.duplicate_window;
        while let Some((_, id)) = self.ids_by_age.pop_front_if(|(at, _)| now.since(*at) > window) {
            self.ids.remove(&id);
        }
    }
}

fn size(subject: &str, payload: usize) -> u64 {
    u64::try_from(subject.len() + payload).unwrap_or(u64::MAX)
}
