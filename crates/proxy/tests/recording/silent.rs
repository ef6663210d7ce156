//! A store that never says whether a permit is granted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use waybill_journal::keyed::Watching;
use waybill_journal::{AppendError, Bucket, Entry, Held, Keyed, ReadError};

/// Keyed state that leaves everybody waiting who writes.
pub struct Silent {
    inner: Arc<dyn Keyed>,
    asked: Arc<AtomicBool>,
}

impl Silent {
    /// Over a store that does answer; says by `asked` that somebody waits.
    pub fn over(inner: Arc<dyn Keyed>, asked: Arc<AtomicBool>) -> Self {
        Self { inner, asked }
    }
}

#[async_trait]
impl Keyed for Silent {
    async fn get(&self, bucket: Bucket, key: &str) -> Result<Option<Entry>, ReadError> {
        self.inner.get(bucket, key).await
    }

    async fn write(&self, _: Bucket, key: &str, _: Bytes, _: Held, _: Option<Duration>) -> Result<u64, AppendError> {
        if key.starts_with("probe.") {
            self.asked.store(true, Ordering::Release);
        }
        std::future::pending().await
    }

    async fn delete(&self, bucket: Bucket, key: &str, held: Held) -> Result<(), AppendError> {
        self.inner.delete(bucket, key, held).await
    }

    fn watch(&self, bucket: Bucket) -> Watching {
        self.inner.watch(bucket)
    }
}
