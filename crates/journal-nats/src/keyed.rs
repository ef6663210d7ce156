//! Keyed state: JetStream's key-value buckets, written by our own publishes, because the library's lose the time to live
//! where a tombstone is.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use async_nats::jetstream::{self};
use async_trait::async_trait;
use bytes::Bytes;
use waybill_journal::keyed::Watching;
use waybill_journal::resume::WatchPoint;
use waybill_journal::{AppendError, Bucket, Entry, Held, Keyed, ReadError, Start, Watched};

use crate::consume::{Follower, Happened, Tasks};
use crate::convert::{time, unavailable};
use crate::graves::Graves;
use crate::publish::Publisher;

const OPERATION: &str = "KV-Operation";
const MARKER: &str = "Nats-Marker-Reason";
const TTL: &str = "Nats-TTL";
/// Life of a tombstone, so that deleted keys don't stay for ever.
const TOMBSTONE_TTL: &str = "10s";

/// Keyed state over JetStream.
pub(crate) struct NatsKeyed {
    context: jetstream::Context,
    publisher: Publisher,
    tasks: Tasks,
    deadline: Duration,
    graves: Graves,
}

impl NatsKeyed {
    pub(crate) fn new(context: jetstream::Context, publisher: Publisher, tasks: Tasks, deadline: Duration) -> Self {
        Self { context, publisher, tasks, deadline, graves: Graves::default() }
    }

    /// The last message of a key, tombstones and markers included, as the stream's leader has it.
    async fn last(&self, bucket: Bucket, key: &str) -> Result<Option<StreamMessage>, ReadError> {
        let stream = self.context.get_stream_no_info(stream_of(bucket)).await.map_err(|e| unavailable(&e))?;
        let asked = stream.get_last_raw_message_by_subject(&subject(bucket, key)).await;
        match asked {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(unavailable(&error)),
        }
    }

    async fn last_in_time(&self, bucket: Bucket, key: &str) -> Result<Option<StreamMessage>, ReadError> {
        let silent = || ReadError::Unavailable { reason: "no answer within the deadline".to_owned() };
        tokio::time::timeout(self.deadline, self.last(bucket, key)).await.map_err(|_| silent())?
    }

    async fn put(&self, bucket: Bucket, key: &str, parts: Parts, held: Held) -> Result<u64, AppendError> {
        let expecting = |revision: u64| message(&parts).expected_last_subject_sequence(revision);
        let subject = subject(bucket, key);
        let send = |message| self.publisher.publish(&subject, message);
        match held {
            Held::Anything => send(message(&parts)).await.map(|a| a.sequence),
            Held::Revision(revision) => send(expecting(revision)).await.map(|a| a.sequence),
            Held::Nothing => match send(expecting(self.graves.revision(bucket, key))).await {
                Ok(appended) => Ok(appended.sequence),
                // A tombstone or an expiry marker is nothing, too; it takes its revision to say so.
                Err(AppendError::Conflict) => {
                    let last = self.last_in_time(bucket, key).await;
                    let last = last.map_err(|error| AppendError::Unknown { reason: error.to_string() })?;
                    match last {
                        Some(last) if !is_value(&last.headers) => {
                            send(expecting(last.sequence)).await.map(|a| a.sequence)
                        }
                        Some(_) => Err(AppendError::Conflict),
                        None => send(expecting(0)).await.map(|a| a.sequence),
                    }
                }
                Err(error) => Err(error),
            },
        }
    }
}

/// What a message is made from; the library's own can't be sent twice.
struct Parts {
    payload: Bytes,
    headers: HeaderMap,
}

fn message(parts: &Parts) -> PublishMessage {
    PublishMessage::build().payload(parts.payload.clone()).headers(parts.headers.clone())
}

pub(crate) fn stream_of(bucket: Bucket) -> &'static str {
    match bucket {
        Bucket::Selector => "KV_wb_selector",
        Bucket::Permits => "KV_wb_permits",
        Bucket::Presence => "KV_wb_presence",
        Bucket::Sticky => "KV_wb_sticky",
    }
}

fn subject(bucket: Bucket, key: &str) -> String {
    format!("$KV.{}.{key}", bucket.name())
}

fn is_value(headers: &HeaderMap) -> bool {
    headers.get(OPERATION).is_none() && headers.get(MARKER).is_none()
}

#[async_trait]
impl Keyed for NatsKeyed {
    async fn get(&self, bucket: Bucket, key: &str) -> Result<Option<Entry>, ReadError> {
        let last = self.last_in_time(bucket, key).await?;
        Ok(last.filter(|message| is_value(&message.headers)).map(|message| Entry {
            key: key.to_owned(),
            value: message.payload,
            revision: message.sequence,
            stored_at: time(message.time),
        }))
    }

    async fn write(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        held: Held,
        ttl: Option<Duration>,
    ) -> Result<u64, AppendError> {
        let mut headers = HeaderMap::new();
        if let Some(ttl) = ttl {
            let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
            headers.insert(TTL, format!("{}s", millis.div_ceil(1_000).max(1)).as_str());
        }
        let revision = self.put(bucket, key, Parts { payload: value, headers }, held).await?;
        self.graves.left(bucket, key, revision);
        Ok(revision)
    }

    async fn delete(&self, bucket: Bucket, key: &str, held: Held) -> Result<(), AppendError> {
        if held == Held::Nothing {
            let found = self.get(bucket, key).await.map_err(|e| AppendError::Unknown { reason: e.to_string() })?;
            return if found.is_some() { Err(AppendError::Conflict) } else { Ok(()) };
        }
        let mut headers = HeaderMap::new();
        headers.insert(OPERATION, "DEL");
        headers.insert(TTL, TOMBSTONE_TTL);
        let revision = self.put(bucket, key, Parts { payload: Bytes::new(), headers }, held).await?;
        self.graves.dug(bucket, key, revision);
        Ok(())
    }

    fn watch(&self, bucket: Bucket) -> Watching {
        let (point, graves) = (WatchPoint::default(), self.graves.clone());
        let follower = Values { bucket, prefix: subject(bucket, ""), point, initial: false, graves };
        self.tasks.follow(self.context.clone(), stream_of(bucket), subject(bucket, ">"), follower)
    }
}

/// Watches a bucket.
struct Values {
    bucket: Bucket,
    prefix: String,
    point: WatchPoint,
    /// What was there when the consumer was made is still being told.
    initial: bool,
    graves: Graves,
}

impl Follower for Values {
    type Item = Result<Watched, ReadError>;

    fn start(&self) -> Start {
        Start::LastPerSubject
    }

    fn take(&mut self, happened: Happened) -> Vec<Self::Item> {
        match happened {
            Happened::Found { last } => {
                self.point.begin(last);
                Vec::new()
            }
            Happened::Began { pending } => {
                self.initial = pending > 0;
                if self.initial { Vec::new() } else { ok(self.point.accept(Watched::Current)) }
            }
            Happened::Failed(error) => vec![Err(error)],
            Happened::Delivered(delivered) => {
                let Ok(info) = delivered.message.info() else { return Vec::new() };
                let subject = delivered.message.subject.as_str();
                let key = subject.strip_prefix(&self.prefix).unwrap_or(subject).to_owned();
                let revision = info.stream_sequence;
                let value = delivered.message.headers.as_ref().is_none_or(is_value);
                if value {
                    self.graves.left(self.bucket, &key, revision);
                } else {
                    self.graves.dug(self.bucket, &key, revision);
                }
                let watched = if value {
                    let stored_at = time(info.published);
                    Watched::Put(Entry { key, value: delivered.message.payload.clone(), revision, stored_at })
                } else {
                    Watched::Gone { key, revision }
                };
                let mut told = self.point.accept(watched);
                if self.initial && delivered.pending == 0 {
                    self.initial = false;
                    told.extend(self.point.accept(Watched::Current));
                }
                ok(told)
            }
        }
    }
}

fn ok(told: Vec<Watched>) -> Vec<Result<Watched, ReadError>> {
    told.into_iter().map(Ok).collect()
}
