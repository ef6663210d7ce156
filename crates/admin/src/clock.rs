//! The clock of edits. Edits are ordered by the log, not by time, so the machine's own clock will do for them.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use waybill_event::LogTime;

/// The time of the log, read at the edge.
pub type Clock = Arc<dyn Fn() -> LogTime + Send + Sync>;

/// The machine's clock.
#[must_use]
pub fn system() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        LogTime::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    })
}
