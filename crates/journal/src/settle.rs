//! Writing keyed state so that an answer that got lost is cleared up by reading back.

use std::time::Duration;

use bytes::Bytes;

use crate::keyed::{Bucket, Held, Keyed};
use crate::log::{AppendError, ReadError};

/// How often an ambiguous write is tried before it stays ambiguous.
const ATTEMPTS: u32 = 8;
const PAUSE: Duration = Duration::from_millis(20);

/// Writes as [`Keyed::write`]; after [`AppendError::Unknown`] reads back and writes again if nothing was written. The
/// value must hold a token that no other write bears.
///
/// # Errors
/// As [`Keyed::write`]; [`AppendError::Unknown`] only when the store stays silent.
pub async fn write(
    keyed: &dyn Keyed,
    bucket: Bucket,
    key: &str,
    value: &Bytes,
    held: Held,
    ttl: Option<Duration>,
) -> Result<u64, AppendError> {
    let mut doubt: Option<AppendError> = None;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            tokio::time::sleep(PAUSE * attempt).await;
        }
        match keyed.write(bucket, key, value.clone(), held, ttl).await {
            Err(unknown @ AppendError::Unknown { .. }) => doubt = Some(unknown),
            // The write in doubt may be what is in the way now.
            Err(AppendError::Conflict) if doubt.is_some() => {}
            other => return other,
        }
        match keyed.get(bucket, key).await {
            Ok(Some(entry)) if entry.value == *value => return Ok(entry.revision),
            Ok(found) => {
                let holds = match held {
                    Held::Anything => true,
                    Held::Nothing => found.is_none(),
                    Held::Revision(revision) => found.is_some_and(|entry| entry.revision == revision),
                };
                if !holds {
                    return Err(AppendError::Conflict);
                }
            }
            Err(ReadError::Unavailable { .. } | ReadError::Gap { .. }) => {}
        }
    }
    Err(doubt.unwrap_or(AppendError::Conflict))
}

/// Deletes as [`Keyed::delete`], again while nobody can tell whether it was done.
///
/// # Errors
/// As [`Keyed::delete`]; [`AppendError::Conflict`] also when an earlier try of this call may have deleted it.
pub async fn delete(keyed: &dyn Keyed, bucket: Bucket, key: &str, held: Held) -> Result<(), AppendError> {
    let mut last = AppendError::Unknown { reason: "not tried".to_owned() };
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            tokio::time::sleep(PAUSE * attempt).await;
        }
        match keyed.delete(bucket, key, held).await {
            Err(unknown @ AppendError::Unknown { .. }) => last = unknown,
            Err(AppendError::Conflict) if attempt > 0 => match keyed.get(bucket, key).await {
                Ok(None) => return Ok(()),
                Ok(Some(_)) => return Err(AppendError::Conflict),
                Err(error) => last = AppendError::Unknown { reason: error.to_string() },
            },
            other => return other,
        }
    }
    Err(last)
}
