//! What every implementation of the port must do: one suite, run against memory, memory with faults and NATS.
//!
//! The checks panic when a promise is broken. They run one after the other on a journal that nobody else writes to and
//! that was empty at first.
#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests that other crates run")]

mod buckets;
mod streams;

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;

use crate::Journal;
use crate::keyed::{Bucket, Held, Watched, Watching};
use crate::log::{AppendError, Appended, Expect, Following, Message, ReadError, Record, Stream};
use crate::settle;

/// Bounds every wait: what has not come by then doesn't come.
const PATIENCE: Duration = Duration::from_secs(20);

/// How well the journal answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    /// Every call is answered; duplicates are told as such.
    Always,
    /// Calls fail now and then, answers get lost, followers are cut.
    Sometimes,
}

/// A journal under test.
pub struct Suite<'a> {
    journal: &'a Journal,
    answers: Answers,
}

impl<'a> Suite<'a> {
    /// A suite over a journal that is empty.
    #[must_use]
    pub const fn new(journal: &'a Journal, answers: Answers) -> Self {
        Self { journal, answers }
    }

    /// Runs every check.
    pub async fn run(&self) {
        // The buckets come first, while they are empty.
        Box::pin(self.run_buckets()).await;
        Box::pin(self.run_streams()).await;
    }

    /// Appends with a message id, again with the same one while nobody can tell.
    async fn append(&self, stream: Stream, record: &Record, expect: Expect) -> Result<Appended, AppendError> {
        assert!(record.message_id.is_some(), "only a message with an id can be sent again");
        patient(async {
            loop {
                match self.journal.log.append(stream, record.clone(), expect).await {
                    Err(AppendError::Unknown { .. }) => {}
                    other => return other,
                }
            }
        })
        .await
    }

    async fn append_all(&self, stream: Stream, records: &[Record], last: u64) -> Result<Appended, AppendError> {
        patient(async {
            loop {
                match self.journal.log.append_all(stream, records.to_vec(), last).await {
                    Err(AppendError::Unknown { .. }) => {}
                    other => return other,
                }
            }
        })
        .await
    }

    async fn last(&self, stream: Stream) -> u64 {
        reading(|| self.journal.log.bounds(stream)).await.last
    }

    async fn read(&self, stream: Stream, from: u64, limit: usize) -> Vec<Message> {
        reading(|| self.journal.log.read(stream, from, limit)).await
    }

    async fn write(
        &self,
        bucket: Bucket,
        key: &str,
        value: &str,
        held: Held,
        ttl: Option<u64>,
    ) -> Result<u64, AppendError> {
        let value = Bytes::from(value.to_owned());
        let ttl = ttl.map(Duration::from_secs);
        settle::write(self.journal.keyed.as_ref(), bucket, key, &value, held, ttl).await
    }

    async fn delete(&self, bucket: Bucket, key: &str, held: Held) -> Result<(), AppendError> {
        settle::delete(self.journal.keyed.as_ref(), bucket, key, held).await
    }

    async fn value(&self, bucket: Bucket, key: &str) -> Option<(u64, String)> {
        let entry = reading(|| self.journal.keyed.get(bucket, key)).await?;
        Some((entry.revision, String::from_utf8_lossy(&entry.value).into_owned()))
    }
}

/// Calls until there is an answer.
async fn reading<T, F: Future<Output = Result<T, ReadError>>>(call: impl Fn() -> F) -> T {
    patient(async {
        loop {
            match call().await {
                Ok(answer) => return answer,
                Err(ReadError::Unavailable { .. }) => {}
                Err(gap @ ReadError::Gap { .. }) => panic!("{gap}"),
            }
        }
    })
    .await
}

async fn patient<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap()
}

/// The next `count` messages of a follower.
async fn messages(following: &mut Following, count: usize) -> Vec<Message> {
    patient(async {
        let mut told = Vec::with_capacity(count);
        while told.len() < count {
            match following.next().await.unwrap() {
                Ok(message) => told.push(message),
                Err(ReadError::Unavailable { .. }) => {}
                Err(gap @ ReadError::Gap { .. }) => panic!("{gap}"),
            }
        }
        told
    })
    .await
}

/// What a watch tells up to and including what `ends` it.
async fn told_until(watching: &mut Watching, mut ends: impl FnMut(&Watched) -> bool) -> Vec<Watched> {
    patient(async {
        let mut told = Vec::new();
        loop {
            if let Ok(watched) = watching.next().await.unwrap() {
                let end = ends(&watched);
                told.push(watched);
                if end {
                    return told;
                }
            }
        }
    })
    .await
}

fn record(subject: &str, id: &str, payload: &str) -> Record {
    Record {
        subject: subject.to_owned(),
        message_id: Some(format!("{subject}/{id}")),
        payload: Bytes::from(payload.to_owned()),
    }
}

fn is_conflict<T>(result: &Result<T, AppendError>) -> bool {
    matches!(result, Err(AppendError::Conflict))
}
