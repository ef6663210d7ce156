//! The answers when nobody can be asked.

use std::time::Duration;

use waybill_domain::selector::table::Unavailable;
use waybill_domain::verdict::{PublicCode, all_busy};
use waybill_event::LogTime;

use crate::answer::Refusal;
use crate::gates::COME_BACK;

/// The answer when those that could serve are full: they are fine, and the first of them has room again after `room_in`, unless
/// one of those that are out comes back sooner.
pub(super) fn full(room_in: Duration, out: Option<Unavailable>, now: LogTime) -> Refusal {
    let returns = match out {
        Some(Unavailable::Busy { retry_at } | Unavailable::Down { retry_at }) => retry_at.map(|at| at.since(now)),
        Some(Unavailable::Nothing) | None => None,
    };
    let told = all_busy(Some(returns.map_or(room_in, |returns| room_in.min(returns.max(COME_BACK)))));
    Refusal {
        status: told.status,
        retry_after: told.retry_after,
        ..Refusal::saying(told.code, "Every source that could serve this request is at its limit; try again later.")
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
