//! How the log is kept, as its servers say: what a deployment promises is checked against it.

use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::stream::StorageType;
use waybill_journal::{Bucket, ReadError, Stream};

use crate::convert::unavailable;

/// How one stream is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its name.
    pub stream: String,
    /// Copies of it.
    pub copies: usize,
    /// Whether it is on disk.
    pub on_disk: bool,
}

/// Asks how the log is kept; it outlives no connection.
#[derive(Clone)]
pub struct Keeping {
    context: jetstream::Context,
    deadline: Duration,
}

impl Keeping {
    pub(crate) const fn new(context: jetstream::Context, deadline: Duration) -> Self {
        Self { context, deadline }
    }

    /// How the streams are kept that must outlive everything: configuration, traffic and the selector's state. Every
    /// role's identity may ask.
    ///
    /// # Errors
    /// [`ReadError::Unavailable`].
    pub async fn ask(&self) -> Result<Vec<Kept>, ReadError> {
        let streams = [Stream::Config, Stream::Traffic].map(|stream| stream.name().to_owned());
        let mut all = Vec::new();
        for stream in streams.into_iter().chain([format!("KV_{}", Bucket::Selector.name())]) {
            let asking = async {
                let found = self.context.get_stream_no_info(&stream).await.map_err(|error| unavailable(&error))?;
                found.get_info().await.map_err(|error| unavailable(&error))
            };
            let silent = |_| ReadError::Unavailable { reason: "no answer within the deadline".to_owned() };
            let config = tokio::time::timeout(self.deadline, asking).await.map_err(silent)??.config;
            let on_disk = config.storage == StorageType::File;
            all.push(Kept { stream, copies: config.num_replicas, on_disk });
        }
        Ok(all)
    }
}
