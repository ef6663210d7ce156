//! What of the stream's beginning may go: never anything that a fold hasn't passed.

use std::time::Duration;

use waybill_event::LogTime;
use waybill_journal::{Bounds, Log, ReadError, Stream};

/// What is purged as one.
const UNIT: Duration = Duration::from_secs(3_600);

/// The beginning of the stream.
pub(super) struct Oldest<'a> {
    pub(super) log: &'a dyn Log,
    pub(super) bounds: Bounds,
    /// Sequence up to which all folds have everything.
    pub(super) passed: u64,
}

impl Oldest<'_> {
    /// The first message after the oldest hour, if all folds have passed that whole hour.
    pub(super) async fn whole_hour(&self) -> Result<Option<u64>, ReadError> {
        let Some((first, began)) = self.stored_at(self.bounds.first).await? else { return Ok(None) };
        let over = end_of_unit(began);
        // The last message that could be the first to stay: everything before it is folded.
        let mut after = self.passed.saturating_add(1).min(self.bounds.last);
        if after <= first || self.stored_at(after).await?.is_none_or(|(_, at)| at < over) {
            return Ok(None);
        }
        // The first message of the next hour lies in (within, after].
        let mut within = first;
        while after - within > 1 {
            let middle = within + (after - within) / 2;
            match self.stored_at(middle).await? {
                Some((_, at)) if at < over => within = middle,
                Some(_) | None => after = middle,
            }
        }
        Ok(Some(after))
    }

    /// The first message to stay so that about so many bytes are left; `None` when all folds have passed nothing.
    pub(super) fn down_to(&self, bytes: u64) -> Option<u64> {
        let Bounds { first, last, bytes: held, .. } = self.bounds;
        let messages = (last + 1).saturating_sub(first);
        let surplus = u128::from(held.saturating_sub(bytes)) * u128::from(messages) / u128::from(held.max(1));
        // One at least, so that it comes to an end.
        let surplus = u64::try_from(surplus).unwrap_or(messages).max(1);
        let cut = first.saturating_add(surplus).min(self.passed.saturating_add(1));
        (cut > first).then_some(cut)
    }

    /// The first message from `sequence` on, and when the store took it.
    async fn stored_at(&self, sequence: u64) -> Result<Option<(u64, LogTime)>, ReadError> {
        let found = self.log.read(Stream::Traffic, sequence, 1).await?;
        Ok(found.first().map(|message| (message.sequence, message.stored_at)))
    }
}

/// When the hour of a moment is over.
fn end_of_unit(at: LogTime) -> LogTime {
    let unit = i64::try_from(UNIT.as_micros()).unwrap_or(i64::MAX);
    let begun = at.as_micros().div_euclid(unit).saturating_mul(unit);
    LogTime::from_micros(begun.saturating_add(unit))
}

#[cfg(test)]
mod tests {
    use waybill_journal::memory::Memory;

    use super::*;

    #[test]
    fn an_hour_is_that_of_the_clock() {
        let at: LogTime = "2026-11-29T12:34:56Z".parse().unwrap();
        assert_eq!(end_of_unit(at).to_string(), "2026-11-29T13:00:00.000000Z");
        let sharp: LogTime = "2026-11-29T13:00:00Z".parse().unwrap();
        assert_eq!(end_of_unit(sharp).to_string(), "2026-11-29T14:00:00.000000Z");
    }

    #[test]
    fn what_goes_is_what_is_too_much_and_no_more_than_is_passed() {
        let memory = Memory::new(std::sync::Arc::new(LogTime::default));
        let cut = |passed, bytes| {
            let bounds = Bounds { first: 101, last: 200, bytes: 1_000, max_bytes: 1_000 };
            Oldest { log: &memory, bounds, passed }.down_to(bytes)
        };
        assert_eq!(cut(200, 800), Some(121));
        assert_eq!(cut(110, 800), Some(111), "only what is passed");
        assert_eq!(cut(100, 800), None);
        assert_eq!(cut(0, 800), None);
        assert_eq!(cut(200, 999), Some(102), "one at least");
    }
}
