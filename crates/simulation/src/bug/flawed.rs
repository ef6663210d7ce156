//! A journal through which a leader of the selector's fold sees, or writes, what a mistaken one would.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::Value;
use waybill_event::control::ConfigApplied;
use waybill_event::{ConfigPosition, Draft, Event, Identity, LogTime, decode_batch};
use waybill_journal::keyed::Watching;
use waybill_journal::log::Following;
use waybill_journal::memory::Memory;
use waybill_journal::{
    AppendError, Appended, Bounds, Bucket, Entry, Expect, Held, Journal, Keyed, Log, Message, ReadError, Record, Start,
    Stream,
};

use super::Bug;

/// A journal with a planted mistake.
#[derive(Clone)]
pub struct Flawed {
    inner: Journal,
    memory: Memory,
    bug: Bug,
}

impl Flawed {
    /// Over this journal, whose store is `memory`.
    #[must_use]
    pub fn over(inner: Journal, memory: Memory, bug: Bug) -> Self {
        Self { inner, memory, bug }
    }

    fn seen(&self, message: Message) -> Message {
        match self.bug {
            Bug::LateCounted => in_time(message),
            Bug::MarkerEarly => adopting(message, &self.memory),
            Bug::AckDropped | Bug::OrdinalNotStored | Bug::EpochUnchecked | Bug::TornTailRead => message,
        }
    }
}

/// The message as if it had come when its last event happened.
fn in_time(message: Message) -> Message {
    let times = decode_batch(&message.payload).unwrap_or_default().into_iter().flatten().map(|event| event.draft.at);
    match times.max() {
        Some(last) => Message { stored_at: message.stored_at.min(last), ..message },
        None => message,
    }
}

/// The message with a marker at its end for all configuration there is by now.
fn adopting(message: Message, memory: &Memory) -> Message {
    let bounds = Log::bounds(memory, Stream::Config).now_or_never();
    let Some(Ok(bounds)) = bounds else { return message };
    let position = ConfigPosition(bounds.last);
    let identity = Identity::Derived { id: format!("early:{position}"), producer: "nobody".parse().unwrap() };
    let marker = Event { identity, draft: Draft::new(LogTime::default(), ConfigApplied { position, epoch: 0 }) };
    let encoded = marker.encode().unwrap();
    let Some(open) = message.payload.strip_suffix(b"]") else { return message };
    let payload = Bytes::from([open, b",", &encoded, b"]"].concat());
    Message { payload, ..message }
}

#[async_trait]
impl Log for Flawed {
    async fn append(&self, stream: Stream, record: Record, expect: Expect) -> Result<Appended, AppendError> {
        self.inner.log.append(stream, record, expect).await
    }

    async fn append_all(
        &self,
        stream: Stream,
        records: Vec<Record>,
        expected_last: u64,
    ) -> Result<Appended, AppendError> {
        self.inner.log.append_all(stream, records, expected_last).await
    }

    async fn bounds(&self, stream: Stream) -> Result<Bounds, ReadError> {
        self.inner.log.bounds(stream).await
    }

    async fn read(&self, stream: Stream, from: u64, limit: usize) -> Result<Vec<Message>, ReadError> {
        self.inner.log.read(stream, from, limit).await
    }

    async fn last_of_subject(&self, stream: Stream, subject: &str) -> Result<Option<Message>, ReadError> {
        self.inner.log.last_of_subject(stream, subject).await
    }

    fn follow(&self, stream: Stream, start: Start) -> Following {
        let following = self.inner.log.follow(stream, start);
        if stream != Stream::Traffic {
            return following;
        }
        let flawed = self.clone();
        following.map(move |told| told.map(|message| flawed.seen(message))).boxed()
    }
}

#[async_trait]
impl Keyed for Flawed {
    async fn get(&self, bucket: Bucket, key: &str) -> Result<Option<Entry>, ReadError> {
        self.inner.keyed.get(bucket, key).await
    }

    async fn write(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        held: Held,
        ttl: Option<Duration>,
    ) -> Result<u64, AppendError> {
        let (value, held) = match (bucket, self.bug) {
            (Bucket::Selector, Bug::EpochUnchecked) => (value, Held::Anything),
            (Bucket::Selector, Bug::OrdinalNotStored) => (without_ordinals(value), held),
            _ => (value, held),
        };
        self.inner.keyed.write(bucket, key, value, held, ttl).await
    }

    async fn delete(&self, bucket: Bucket, key: &str, held: Held) -> Result<(), AppendError> {
        self.inner.keyed.delete(bucket, key, held).await
    }

    fn watch(&self, bucket: Bucket) -> Watching {
        self.inner.keyed.watch(bucket)
    }
}

/// A checkpoint without the ordinals that were had.
fn without_ordinals(value: Bytes) -> Bytes {
    let Ok(Value::Object(mut checkpoint)) = serde_json::from_slice::<Value>(&value) else { return value };
    match checkpoint.get_mut("seen") {
        Some(seen) => *seen = Value::Object(serde_json::Map::new()),
        None => return value,
    }
    Bytes::from(Value::Object(checkpoint).to_string())
}
