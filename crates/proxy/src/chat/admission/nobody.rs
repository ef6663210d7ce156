//! The answers when nobody can be asked.

use std::time::Duration;

use waybill_domain::selector::table::Unavailable;
use waybill_domain::verdict::{PublicCode, all_busy};
use waybill_event::LogTime;

use crate::answer::Refusal;

/// The answer when those that could serve are full: they are fine, and have room again soon.
pub(super) fn full() -> Refusal {
    let told = all_busy(Some(Duration::from_secs(1)));
    Refusal {
        status: told.status,
        retry_after: told.retry_after,
        ..Refusal::saying(told.code, "Every source that could serve this request is at its limit; try again soon.")
    }
}

/// The answer when nobody can be asked.
pub(super) fn nobody(unavailable: Unavailable, now: LogTime) -> Refusal {
    let wait = |at: Option<LogTime>| at.map(|at| at.since(now));
    match unavailable {
        Unavailable::Nothing => Refusal::of(PublicCode::NoSourceAvailable),
        Unavailable::Busy { retry_at } => {
            let told = all_busy(wait(retry_at));
            Refusal { status: told.status, retry_after: told.retry_after, ..Refusal::of(told.code) }
        }
        Unavailable::Down { retry_at } => {
            Refusal { retry_after: wait(retry_at), ..Refusal::of(PublicCode::NoSourceAvailable) }
        }
    }
}
