//! From JetStream's errors and times to the port's.

use std::error::Error;

use async_nats::jetstream;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::stream::PurgeError;
use waybill_event::LogTime;
use waybill_journal::{AppendError, ReadError};

/// What a failed publish means. A conflict carries two codes, the second only on clusters; a missing leader looks like
/// a missing stream and may pass.
pub(crate) fn append_error(error: &PublishError) -> AppendError {
    let reason = || chain(error);
    if let Some(code) = error.source().and_then(|s| s.downcast_ref::<jetstream::Error>()) {
        let (code, text) = (code.error_code(), code.to_string());
        return match code {
            ErrorCode::STREAM_WRONG_LAST_SEQUENCE | ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT => {
                AppendError::Conflict
            }
            ErrorCode::STREAM_STORE_FAILED if text.contains("maximum") => AppendError::Full,
            ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
            | ErrorCode::MEMORY_RESOURCES_EXCEEDED
            | ErrorCode::STORAGE_RESOURCES_EXCEEDED => AppendError::Full,
            _ if is_passing(code) => AppendError::Unknown { reason: text },
            _ => AppendError::Refused { reason: text },
        };
    }
    match error.kind() {
        PublishErrorKind::WrongLastSequence => AppendError::Conflict,
        PublishErrorKind::MaxPayloadExceeded | PublishErrorKind::WrongLastMessageId => {
            AppendError::Refused { reason: reason() }
        }
        PublishErrorKind::StreamNotFound
        | PublishErrorKind::TimedOut
        | PublishErrorKind::BrokenPipe
        | PublishErrorKind::MaxAckPending
        | PublishErrorKind::Other => AppendError::Unknown { reason: reason() },
    }
}

/// Whether another write to the subject, or of the same message id, has not ended yet: what is expected is judged only
/// after it. Clusters alone say so.
pub(crate) fn is_under_way(error: &PublishError) -> bool {
    let refusal = error.source().and_then(|s| s.downcast_ref::<jetstream::Error>());
    refusal.is_some_and(|refusal| {
        [
            ErrorCode::STREAM_DUPLICATE_MESSAGE_CONFLICT,
            ErrorCode::STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_NOT_READY,
            ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT,
        ]
        .contains(&refusal.error_code())
    })
}

/// Codes that say that the store can't just now.
fn is_passing(code: ErrorCode) -> bool {
    [
        ErrorCode::CLUSTER_NOT_AVAILABLE,
        ErrorCode::CLUSTER_NOT_LEADER,
        ErrorCode::INSUFFICIENT_RESOURCES,
        ErrorCode::STREAM_DUPLICATE_MESSAGE_CONFLICT,
        ErrorCode::STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_NOT_READY,
        ErrorCode::STREAM_STORE_FAILED,
    ]
    .contains(&code)
}

/// What a failed purge means.
pub(crate) fn purge_error(error: &PurgeError) -> AppendError {
    match error.source().and_then(|s| s.downcast_ref::<jetstream::Error>()) {
        Some(refusal) if !is_passing(refusal.error_code()) => AppendError::Refused { reason: refusal.to_string() },
        Some(_) | None => AppendError::Unknown { reason: chain(error) },
    }
}

/// Any failed question.
pub(crate) fn unavailable(error: &(dyn Error + 'static)) -> ReadError {
    ReadError::Unavailable { reason: chain(error) }
}

fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// The store's time.
pub(crate) fn time(at: async_nats::datetime::DateTime) -> LogTime {
    let micros = at.unix_timestamp_nanos().div_euclid(1_000);
    LogTime::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
}
