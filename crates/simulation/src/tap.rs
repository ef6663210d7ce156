//! The store's side of the journal: notes every write that it takes, and sees whether a deposed leader's landed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use waybill_journal::keyed::Watching;
use waybill_journal::log::Following;
use waybill_journal::memory::Memory;
use waybill_journal::{
    AppendError, Appended, Bounds, Bucket, Entry, Expect, Held, Journal, Keyed, Log, Message, ReadError, Record, Start,
    Stream,
};

use crate::ground::Ground;

/// The highest epoch that each of the selector's keys was written under.
pub type Epochs = Mutex<BTreeMap<String, u64>>;

/// The journal as one process's calls reach it.
#[derive(Clone)]
pub struct Tap {
    ground: Arc<Ground>,
    who: Arc<str>,
    memory: Memory,
}

impl Tap {
    /// The store, as this process writes to it.
    #[must_use]
    pub fn journal(ground: &Arc<Ground>, who: &str) -> Journal {
        let tap = Self { ground: Arc::clone(ground), who: who.into(), memory: ground.memory.clone() };
        Journal { log: Arc::new(tap.clone()), keyed: Arc::new(tap) }
    }

    /// Keeps what the store has just taken into the traffic stream, where it may be purged.
    fn took(&self, stream: Stream, last: u64, count: usize) {
        if stream == Stream::Traffic {
            let first = last + 1 - count as u64;
            let messages = self.memory.read(stream, first, count).now_or_never();
            self.ground.took(messages.expect("the store answers").expect("the store answers"));
        }
    }

    fn wrote(&self, bucket: Bucket, key: &str, value: &[u8], revision: u64) {
        self.ground.trace.note_with(format_args!("{} puts {}/{key} {revision}", self.who, bucket.name()), value);
        if bucket != Bucket::Selector {
            return;
        }
        #[derive(serde::Deserialize)]
        struct Epoch {
            epoch: u64,
        }
        let Ok(Epoch { epoch }) = serde_json::from_slice(value) else { return };
        let mut epochs = self.ground.epochs.lock();
        let highest = epochs.entry(key.to_owned()).or_insert(epoch);
        if epoch < *highest {
            let text = format!("{} wrote {key} under epoch {epoch} after one under epoch {highest}", self.who);
            self.ground.violated("a deposed leader's write landed", &text);
        }
        *highest = epoch.max(*highest);
    }
}

#[async_trait]
impl Log for Tap {
    async fn append(&self, stream: Stream, record: Record, expect: Expect) -> Result<Appended, AppendError> {
        let (subject, payload) = (record.subject.clone(), record.payload.clone());
        let appended = self.memory.append(stream, record, expect).await?;
        if !appended.duplicate {
            self.took(stream, appended.sequence, 1);
        }
        // What is sealed is sealed with chance of its own.
        let payload = if stream == Stream::Secret { Bytes::new() } else { payload };
        let what = format_args!("{} appends {subject} {} {}", self.who, appended.sequence, appended.duplicate);
        self.ground.trace.note_with(what, &payload);
        Ok(appended)
    }

    async fn append_all(
        &self,
        stream: Stream,
        records: Vec<Record>,
        expected_last: u64,
    ) -> Result<Appended, AppendError> {
        let count = records.len();
        let appended = self.memory.append_all(stream, records, expected_last).await?;
        if !appended.duplicate {
            self.took(stream, appended.sequence, count);
        }
        self.ground.trace.note(format_args!("{} appends {count} up to {}", self.who, appended.sequence));
        Ok(appended)
    }

    async fn bounds(&self, stream: Stream) -> Result<Bounds, ReadError> {
        Log::bounds(&self.memory, stream).await
    }

    async fn read(&self, stream: Stream, from: u64, limit: usize) -> Result<Vec<Message>, ReadError> {
        self.memory.read(stream, from, limit).await
    }

    async fn last_of_subject(&self, stream: Stream, subject: &str) -> Result<Option<Message>, ReadError> {
        self.memory.last_of_subject(stream, subject).await
    }

    async fn purge_before(&self, stream: Stream, first: u64) -> Result<u64, AppendError> {
        let purged = self.memory.purge_before(stream, first).await?;
        self.ground.purged(purged);
        self.ground.trace.note(format_args!("{} purges {purged} before {first}", self.who));
        Ok(purged)
    }

    fn follow(&self, stream: Stream, start: Start) -> Following {
        self.memory.follow(stream, start)
    }
}

#[async_trait]
impl Keyed for Tap {
    async fn get(&self, bucket: Bucket, key: &str) -> Result<Option<Entry>, ReadError> {
        self.memory.get(bucket, key).await
    }

    async fn write(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        held: Held,
        ttl: Option<Duration>,
    ) -> Result<u64, AppendError> {
        let revision = self.memory.write(bucket, key, value.clone(), held, ttl).await?;
        self.wrote(bucket, key, &value, revision);
        Ok(revision)
    }

    async fn delete(&self, bucket: Bucket, key: &str, held: Held) -> Result<(), AppendError> {
        self.memory.delete(bucket, key, held).await?;
        self.ground.trace.note(format_args!("{} deletes {}/{key}", self.who, bucket.name()));
        Ok(())
    }

    fn watch(&self, bucket: Bucket) -> Watching {
        self.memory.watch(bucket)
    }
}
