//! The streams.

use std::collections::VecDeque;
use std::time::Duration;

use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use async_nats::jetstream::{self};
use async_nats::{Client, HeaderMap};
use async_trait::async_trait;
use futures_util::StreamExt;
use waybill_journal::log::{Following, kept_for_ever};
use waybill_journal::resume::FollowPoint;
use waybill_journal::{AppendError, Appended, Bounds, Expect, Log, Message, ReadError, Record, Start, Stream};

use crate::consume::{Follower, Happened, Tasks};
use crate::convert::{purge_error, time, unavailable};
use crate::publish::Publisher;

const BATCH_ID: &str = "Nats-Batch-Id";
const BATCH_SEQUENCE: &str = "Nats-Batch-Sequence";
const BATCH_COMMIT: &str = "Nats-Batch-Commit";
const EXPECTED_LAST_SEQUENCE: &str = "Nats-Expected-Last-Sequence";
const MESSAGE_ID: &str = "Nats-Msg-Id";

/// Messages of one batch, as the port promises; the server would take 1,000.
const MAX_BATCH: usize = 500;

/// The log over JetStream.
pub(crate) struct NatsLog {
    client: Client,
    context: jetstream::Context,
    publisher: Publisher,
    tasks: Tasks,
    deadline: Duration,
}

impl NatsLog {
    pub(crate) const fn new(
        client: Client,
        context: jetstream::Context,
        publisher: Publisher,
        tasks: Tasks,
        deadline: Duration,
    ) -> Self {
        Self { client, context, publisher, tasks, deadline }
    }

    async fn info(&self, stream: Stream) -> Result<jetstream::stream::Info, ReadError> {
        let found = self.context.get_stream_no_info(stream.name()).await.map_err(|e| unavailable(&e))?;
        let asked = tokio::time::timeout(self.deadline, found.get_info());
        asked.await.map_err(|_| silent())?.map_err(|e| unavailable(&e))
    }
}

impl NatsLog {
    /// A message that was taken before meets its own trace: one node then speaks of a conflict, a cluster of a
    /// duplicate, a batch of a duplicate id. All three are the same: it is there.
    async fn or_taken_before(
        &self,
        stream: Stream,
        subject: &str,
        message_id: Option<&str>,
        published: Result<Appended, AppendError>,
    ) -> Result<Appended, AppendError> {
        let (Some(id), Err(error @ (AppendError::Conflict | AppendError::Refused { .. }))) = (message_id, &published)
        else {
            return published;
        };
        let last = async {
            let found = self.context.get_stream_no_info(stream.name()).await.ok()?;
            found.get_last_raw_message_by_subject(subject).await.ok()
        };
        match tokio::time::timeout(self.deadline, last).await {
            Ok(Some(last)) if last.headers.get(MESSAGE_ID).is_some_and(|held| held.as_str() == id) => {
                Ok(Appended { sequence: last.sequence, duplicate: true })
            }
            Ok(_) => Err(error.clone()),
            Err(_) => Err(AppendError::Unknown { reason: "a conflict that can't be looked into".to_owned() }),
        }
    }
}

fn silent() -> ReadError {
    ReadError::Unavailable { reason: "no answer within the deadline".to_owned() }
}

#[async_trait]
impl Log for NatsLog {
    async fn append(&self, stream: Stream, record: Record, expect: Expect) -> Result<Appended, AppendError> {
        belongs(stream, &record)?;
        let mut message = PublishMessage::build().payload(record.payload);
        if let Some(id) = &record.message_id {
            message = message.message_id(id);
        }
        message = match expect {
            Expect::Anything => message,
            Expect::LastInStream(sequence) => message.expected_last_sequence(sequence),
            Expect::LastOfSubject(sequence) => message.expected_last_subject_sequence(sequence),
        };
        let published = self.publisher.publish(&record.subject, message).await;
        self.or_taken_before(stream, &record.subject, record.message_id.as_deref(), published).await
    }

    async fn append_all(
        &self,
        stream: Stream,
        records: Vec<Record>,
        expected_last: u64,
    ) -> Result<Appended, AppendError> {
        records.iter().try_for_each(|record| belongs(stream, record))?;
        let mut records = VecDeque::from(records);
        if records.len() > MAX_BATCH {
            return Err(AppendError::Refused { reason: format!("a batch of more than {MAX_BATCH} messages") });
        }
        let Some(last) = records.pop_back() else {
            return Err(AppendError::Refused { reason: "an empty batch".to_owned() });
        };
        if records.is_empty() {
            return self.append(stream, last, Expect::LastInStream(expected_last)).await;
        }
        let batch = self.client.new_inbox().replace(['.', '_'], "");
        let count = records.len();
        for (number, record) in (1_u64..).zip(records) {
            let mut headers = batch_headers(&batch, number, record.message_id.as_deref());
            if number == 1 {
                headers.insert(EXPECTED_LAST_SEQUENCE, expected_last.to_string().as_str());
            }
            // Nothing of a batch is stored before its last message commits it.
            let unsent = |reason: String| AppendError::Unknown { reason };
            let sending = self.client.publish_with_headers(record.subject, headers, record.payload);
            let sent = tokio::time::timeout(self.deadline, sending).await;
            sent.map_err(|_| unsent("the batch can't be sent in time".to_owned()))?
                .map_err(|error| unsent(error.to_string()))?;
        }
        let number = u64::try_from(count).unwrap_or(u64::MAX).saturating_add(1);
        let mut headers = batch_headers(&batch, number, last.message_id.as_deref());
        headers.insert(BATCH_COMMIT, "1");
        let message = PublishMessage::build().payload(last.payload).headers(headers);
        let published = self.publisher.publish(&last.subject, message).await;
        self.or_taken_before(stream, &last.subject, last.message_id.as_deref(), published).await
    }

    async fn bounds(&self, stream: Stream) -> Result<Bounds, ReadError> {
        let info = self.info(stream).await?;
        let (state, config) = (info.state, info.config);
        let first = if state.messages == 0 { state.last_sequence + 1 } else { state.first_sequence };
        let max_bytes = u64::try_from(config.max_bytes).unwrap_or(0);
        Ok(Bounds { first, last: state.last_sequence, bytes: state.bytes, max_bytes })
    }

    async fn read(&self, stream: Stream, from: u64, limit: usize) -> Result<Vec<Message>, ReadError> {
        let last = self.bounds(stream).await?.last;
        let mut found = Vec::new();
        if from > last || limit == 0 {
            return Ok(found);
        }
        let mut messages = self.follow(stream, Start::At(from));
        loop {
            let next = tokio::time::timeout(self.deadline, messages.next()).await.map_err(|_| silent())?;
            match next.ok_or_else(silent)? {
                Ok(message) if message.sequence > last => return Ok(found),
                Ok(message) => {
                    let sequence = message.sequence;
                    found.push(message);
                    if sequence >= last || found.len() >= limit {
                        return Ok(found);
                    }
                }
                // Sequences that are missing are passed over by whoever reads a page.
                Err(ReadError::Gap { met, .. }) if met > last => return Ok(found),
                Err(ReadError::Gap { .. }) => {}
                Err(error @ ReadError::Unavailable { .. }) => return Err(error),
            }
        }
    }

    async fn last_of_subject(&self, stream: Stream, subject: &str) -> Result<Option<Message>, ReadError> {
        let found = self.context.get_stream_no_info(stream.name()).await.map_err(|e| unavailable(&e))?;
        let asked = tokio::time::timeout(self.deadline, found.get_last_raw_message_by_subject(subject));
        match asked.await.map_err(|_| silent())? {
            Ok(message) => Ok(Some(Message {
                subject: message.subject.to_string(),
                sequence: message.sequence,
                stored_at: time(message.time),
                payload: message.payload,
            })),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(unavailable(&error)),
        }
    }

    async fn purge_before(&self, stream: Stream, first: u64) -> Result<u64, AppendError> {
        if stream != Stream::Traffic {
            return Err(kept_for_ever(stream));
        }
        let found = self.context.get_stream_no_info(stream.name()).await;
        let found = found.map_err(|error| AppendError::Unknown { reason: error.to_string() })?;
        let purging = async { found.purge().sequence(first).await.map_err(|error| purge_error(&error)) };
        let subject = format!("$JS.API.STREAM.PURGE.{}", stream.name());
        Ok(self.publisher.ask(&subject, purging).await?.purged)
    }

    fn follow(&self, stream: Stream, start: Start) -> Following {
        let follower = Messages { stream, start, point: None };
        self.tasks.follow(self.context.clone(), stream.name(), stream.subjects().to_owned(), follower)
    }
}

/// The server would store a message in whatever stream takes its subject.
fn belongs(stream: Stream, record: &Record) -> Result<(), AppendError> {
    let prefix = stream.subjects().trim_end_matches('>');
    if record.subject.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty()) {
        return Ok(());
    }
    Err(AppendError::Refused { reason: format!("{} is no subject of {}", record.subject, stream.name()) })
}

fn batch_headers(batch: &str, number: u64, message_id: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(BATCH_ID, batch);
    headers.insert(BATCH_SEQUENCE, number.to_string().as_str());
    if let Some(id) = message_id {
        headers.insert(MESSAGE_ID, id);
    }
    headers
}

/// Follows a stream, without gaps and without repetition.
struct Messages {
    stream: Stream,
    start: Start,
    /// Known once the stream's last sequence is.
    point: Option<FollowPoint>,
}

impl Follower for Messages {
    type Item = Result<Message, ReadError>;

    fn start(&self) -> Start {
        self.point.map_or(self.start, |point| point.start())
    }

    fn take(&mut self, happened: Happened) -> Vec<Self::Item> {
        match happened {
            Happened::Found { last } => {
                let point = self.point.get_or_insert_with(|| FollowPoint::new(self.start, last));
                if point.has_told() && point.told() > last {
                    // The store was replaced by an older one; what it writes next would pass for told already.
                    let reason = format!("the stream ends at {last}, before {} which was told", point.told());
                    return vec![Err(ReadError::Unavailable { reason })];
                }
                Vec::new()
            }
            Happened::Began { .. } => Vec::new(),
            Happened::Failed(error) => vec![Err(error)],
            Happened::Delivered(delivered) => {
                let Ok(info) = delivered.message.info() else { return Vec::new() };
                let (sequence, stored_at) = (info.stream_sequence, time(info.published));
                let Some(point) = &mut self.point else { return Vec::new() };
                let mut told = Vec::new();
                // Of the credentials only the newest are kept: holes are as it should be.
                if self.stream != Stream::Secret
                    && let Some(expected) = point.hole_before(sequence)
                {
                    told.push(Err(ReadError::Gap { stream: self.stream.name(), expected, met: sequence }));
                    point.pass_hole(sequence);
                }
                if point.admit(sequence) {
                    told.push(Ok(Message {
                        subject: delivered.message.subject.to_string(),
                        sequence,
                        stored_at,
                        payload: delivered.message.payload.clone(),
                    }));
                }
                told
            }
        }
    }
}
