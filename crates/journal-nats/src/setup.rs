//! The streams and buckets, created or brought up to date. Safe to run again at any time.

use std::time::Duration;

use async_nats::jetstream::kv;
use async_nats::jetstream::stream::{Compression, Config, DiscardPolicy, RetentionPolicy, StorageType};
use async_nats::jetstream::{self};
use waybill_journal::{Bucket, Stream};

/// Window within which the same message id is stored once.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);
/// Life of the markers that tell watchers of an expiry.
const MARKER_TTL: Duration = Duration::from_secs(10);

/// How the log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetupConfig {
    /// Copies of every stream and bucket.
    pub replicas: usize,
    /// Size of the traffic stream, in bytes.
    pub traffic_max_bytes: i64,
    /// Age at which traffic is dropped.
    pub traffic_max_age: Duration,
}

impl SetupConfig {
    /// One node, 4 GiB and 14 days of traffic.
    #[must_use]
    pub const fn single_node() -> Self {
        Self { replicas: 1, traffic_max_bytes: 4 << 30, traffic_max_age: Duration::from_secs(14 * 86_400) }
    }

    /// Three nodes, 16 GiB and 14 days of traffic.
    #[must_use]
    pub const fn three_nodes() -> Self {
        Self { replicas: 3, traffic_max_bytes: 16 << 30, ..Self::single_node() }
    }
}

/// Most that bindings of conversations and the spending of sessions may take.
const STICKY_MAX_BYTES: i64 = 256 << 20;

/// A stream or bucket can't be created or updated.
#[derive(Debug, thiserror::Error)]
#[error("{name} can't be set up: {reason}")]
pub struct SetupError {
    /// Its name.
    pub name: &'static str,
    /// The server's words.
    pub reason: String,
}

/// Creates or updates all streams and buckets.
///
/// # Errors
/// [`SetupError`] for the first that fails; those before it stay.
pub async fn setup(context: &jetstream::Context, config: &SetupConfig) -> Result<(), SetupError> {
    for stream in Stream::ALL {
        let made = context.create_or_update_stream(stream_config(stream, config)).await;
        made.map_err(|e| SetupError { name: stream.name(), reason: e.to_string() })?;
    }
    for bucket in Bucket::ALL {
        let made = context.create_or_update_key_value(bucket_config(bucket, config)).await;
        made.map_err(|e| SetupError { name: bucket.name(), reason: e.to_string() })?;
    }
    Ok(())
}

fn stream_config(stream: Stream, config: &SetupConfig) -> Config {
    let common = Config {
        name: stream.name().to_owned(),
        subjects: vec![stream.subjects().to_owned()],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: config.replicas,
        discard: DiscardPolicy::New,
        allow_direct: true,
        duplicate_window: DUPLICATE_WINDOW,
        max_bytes: -1,
        max_messages: -1,
        max_messages_per_subject: -1,
        max_consumers: -1,
        compression: Some(Compression::S2),
        ..Config::default()
    };
    match stream {
        Stream::Config => Config {
            description: Some("Every edit of configuration, kept for ever".to_owned()),
            deny_delete: true,
            deny_purge: true,
            allow_atomic_publish: true,
            ..common
        },
        // Older credentials make room for newer ones.
        Stream::Secret => Config {
            description: Some("Sealed credentials, the newest two of each source".to_owned()),
            max_messages_per_subject: 2,
            discard: DiscardPolicy::Old,
            ..common
        },
        Stream::Traffic => Config {
            description: Some("What happened".to_owned()),
            max_bytes: config.traffic_max_bytes,
            max_age: config.traffic_max_age,
            ..common
        },
    }
}

fn bucket_config(bucket: Bucket, config: &SetupConfig) -> kv::Config {
    let storage = match (bucket, config.replicas) {
        // A node alone forgets a bucket in memory when it ends, and with it that there is such a bucket.
        (Bucket::Selector | Bucket::Sticky, _) | (Bucket::Permits | Bucket::Presence, 0..=2) => StorageType::File,
        // What lives for seconds need not outlive all nodes of a cluster at once.
        (Bucket::Permits | Bucket::Presence, _) => StorageType::Memory,
    };
    kv::Config {
        bucket: bucket.name().to_owned(),
        history: 1,
        // Conversations are many; without a binding each is served as computed.
        max_bytes: if bucket == Bucket::Sticky { STICKY_MAX_BYTES } else { -1 },
        storage,
        num_replicas: config.replicas,
        limit_markers: Some(MARKER_TTL),
        ..kv::Config::default()
    }
}
