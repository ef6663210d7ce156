//! A log that says that it has a message before it has: a publisher over it trims before the acknowledgement.

use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::task::TaskTracker;
use waybill_journal::log::Following;
use waybill_journal::{AppendError, Appended, Bounds, Expect, Log, Message, ReadError, Record, Start, Stream};

/// A log that answers too soon.
pub struct Hasty {
    inner: Arc<dyn Log>,
    tasks: TaskTracker,
}

impl Hasty {
    /// Over this log; what is under way is in `tasks`.
    #[must_use]
    pub fn over(inner: Arc<dyn Log>, tasks: TaskTracker) -> Self {
        Self { inner, tasks }
    }
}

#[async_trait]
impl Log for Hasty {
    async fn append(&self, stream: Stream, record: Record, expect: Expect) -> Result<Appended, AppendError> {
        let inner = Arc::clone(&self.inner);
        self.tasks.spawn(async move {
            // Nobody waits for the answer: that is the mistake.
            let _nobody_asks = inner.append(stream, record, expect).await;
        });
        Ok(Appended { sequence: 0, duplicate: false })
    }

    async fn append_all(
        &self,
        stream: Stream,
        records: Vec<Record>,
        expected_last: u64,
    ) -> Result<Appended, AppendError> {
        self.inner.append_all(stream, records, expected_last).await
    }

    async fn bounds(&self, stream: Stream) -> Result<Bounds, ReadError> {
        self.inner.bounds(stream).await
    }

    async fn read(&self, stream: Stream, from: u64, limit: usize) -> Result<Vec<Message>, ReadError> {
        self.inner.read(stream, from, limit).await
    }

    async fn last_of_subject(&self, stream: Stream, subject: &str) -> Result<Option<Message>, ReadError> {
        self.inner.last_of_subject(stream, subject).await
    }

    fn follow(&self, stream: Stream, start: Start) -> Following {
        self.inner.follow(stream, start)
    }
}
