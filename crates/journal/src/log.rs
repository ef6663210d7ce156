//! Streams of messages.

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use waybill_event::LogTime;

/// The streams there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Every edit of configuration; kept for ever. Subjects `wb.config.<entity>.<id>`.
    Config,
    /// Sealed credentials, the newest two per subject. Subjects `wb.secret.<kind>.<id>`.
    Secret,
    /// What happened. Subjects `wb.traffic.0.proxy`, `.control`, `.upkeep`.
    Traffic,
}

/// The refusal of a purge of a stream that is kept for ever.
#[must_use]
pub fn kept_for_ever(stream: Stream) -> AppendError {
    AppendError::Refused { reason: format!("{} is kept for ever", stream.name()) }
}

impl Stream {
    /// All streams.
    pub const ALL: [Self; 3] = [Self::Config, Self::Secret, Self::Traffic];

    /// The stream's name in the log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Config => "WB_CONFIG",
            Self::Secret => "WB_SECRET",
            Self::Traffic => "WB_TRAFFIC_0",
        }
    }

    /// The subjects it takes.
    #[must_use]
    pub const fn subjects(self) -> &'static str {
        match self {
            Self::Config => "wb.config.>",
            Self::Secret => "wb.secret.>",
            Self::Traffic => "wb.traffic.0.>",
        }
    }
}

/// A message in a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its subject.
    pub subject: String,
    /// Its sequence in the stream, from 1.
    pub sequence: u64,
    /// When the store took it, by the store's clock.
    pub stored_at: LogTime,
    /// Its content.
    pub payload: Bytes,
}

/// A message to be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its subject.
    pub subject: String,
    /// The same id within the store's window is stored once.
    pub message_id: Option<String>,
    /// Its content.
    pub payload: Bytes,
}

/// What must hold for an append to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Nothing.
    Anything,
    /// The stream's last sequence is this (0: the stream has never held anything).
    LastInStream(u64),
    /// The last sequence of the record's subject is this (0: none).
    LastOfSubject(u64),
}

/// A taken append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The message's sequence; of several messages the last one's.
    pub sequence: u64,
    /// Whether the store had it already by its message id.
    pub duplicate: bool,
}

/// Why an append was not, or perhaps not, taken.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// What was expected doesn't hold: reload, decide again.
    #[error("the log has moved on meanwhile")]
    Conflict,
    /// The stream is full.
    #[error("the stream is full")]
    Full,
    /// The store refused it: permissions, size, a missing stream.
    #[error("the log refused the message: {reason}")]
    Refused {
        /// The store's words.
        reason: String,
    },
    /// Nobody can tell whether it was taken: resend with the same message id, or read back.
    #[error("the log did not answer: {reason}")]
    Unknown {
        /// What happened.
        reason: String,
    },
}

/// Why reading failed. All kinds may pass.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// The store didn't answer within the deadline, or is out of reach.
    #[error("the log is out of reach: {reason}")]
    Unavailable {
        /// What happened.
        reason: String,
    },
    /// Messages between two sequences are missing.
    #[error("messages of {stream} are missing: expected {expected}, met {met}")]
    Gap {
        /// The stream's name.
        stream: &'static str,
        /// The sequence that should have come.
        expected: u64,
        /// The sequence that came.
        met: u64,
    },
}

/// What a stream holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounds {
    /// Sequence of the first message; one more than `last` when it is empty.
    pub first: u64,
    /// Sequence of the last message; 0 when there was never one.
    pub last: u64,
    /// Bytes held.
    pub bytes: u64,
    /// Bytes it may hold; 0 is unlimited.
    pub max_bytes: u64,
}

/// Where following begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At this sequence (or the first one after it that still exists).
    At(u64),
    /// With the newest message of each subject, in order of sequence, then everything new.
    LastPerSubject,
    /// With what comes from now on.
    New,
}

/// An endless stream of messages. After an error it goes on by itself: nothing is skipped and nothing comes twice.
pub type Following = BoxStream<'static, Result<Message, ReadError>>;

/// Streams of messages. Every call has a deadline of the implementation's.
#[async_trait]
pub trait Log: Send + Sync + 'static {
    /// Appends one message.
    ///
    /// # Errors
    /// [`AppendError`].
    async fn append(&self, stream: Stream, record: Record, expect: Expect) -> Result<Appended, AppendError>;

    /// Appends all messages or none, if the stream's last sequence is `expected_last`. At most 500 messages.
    ///
    /// # Errors
    /// [`AppendError`].
    async fn append_all(
        &self,
        stream: Stream,
        records: Vec<Record>,
        expected_last: u64,
    ) -> Result<Appended, AppendError>;

    /// What the stream holds now.
    ///
    /// # Errors
    /// [`ReadError::Unavailable`].
    async fn bounds(&self, stream: Stream) -> Result<Bounds, ReadError>;

    /// Up to `limit` messages from `from` on that are there now, in order; missing sequences are passed over.
    ///
    /// # Errors
    /// [`ReadError::Unavailable`].
    async fn read(&self, stream: Stream, from: u64, limit: usize) -> Result<Vec<Message>, ReadError>;

    /// The newest message of a subject.
    ///
    /// # Errors
    /// [`ReadError::Unavailable`].
    async fn last_of_subject(&self, stream: Stream, subject: &str) -> Result<Option<Message>, ReadError>;

    /// Removes the messages before `first`, for ever, and returns how many that were. Sequences go on as before. Only
    /// the traffic stream can be purged, and of it only what every fold has passed may be.
    ///
    /// # Errors
    /// [`AppendError::Refused`] for any other stream and without the right to do so, and by a log that keeps everything;
    /// [`AppendError::Unknown`] when nobody can tell whether it was done: do it again.
    async fn purge_before(&self, stream: Stream, first: u64) -> Result<u64, AppendError> {
        let reason = format!("{} can't be purged before {first}: this log keeps everything", stream.name());
        Err(AppendError::Refused { reason })
    }

    /// Follows the stream.
    fn follow(&self, stream: Stream, start: Start) -> Following;
}
