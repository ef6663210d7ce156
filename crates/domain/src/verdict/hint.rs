//! The wait that an upstream asks for, read only once the kind is known, from wherever it may stand.

pub(crate) mod body;
mod message;
pub(crate) mod moment;
#[cfg(test)]
mod tests;
mod window;

use std::time::Duration;

use chrono::{DateTime, Datelike, Days, Months, NaiveTime, TimeDelta, Timelike};

use super::source::BlockSource;
use crate::observation::Observation;
use crate::verdict::rule::{Calendar, HintRule, HintSource, HintUnit, Zone};

/// What a wait of nothing, or a date that has passed, is taken as: the server meant a wait.
const FLOOR_MS: i64 = 1_000;

/// A wait and where it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hinted {
    /// How long, capped.
    pub(crate) wait: Duration,
    /// Whence.
    pub(crate) from: BlockSource,
}

impl Hinted {
    fn of(ms: i64, from: BlockSource) -> Option<Self> {
        let ms = u64::try_from(ms).ok().filter(|ms| *ms > 0)?;
        Some(Self { wait: Duration::from_millis(ms), from })
    }
}

/// The wait that an upstream asks for: what the rule names, before `retry-after-ms` and `retry-after`, before a member of
/// the body, before the reset header of a window that is used up, before a time in the message, before the calendar. What
/// is past, negative or unreadable is no wait; what is longer than the rule's cap is cut to it.
pub(super) fn read(rule: &HintRule, observation: &Observation) -> Option<Hinted> {
    let reads = |source: HintSource| rule.reads(source);
    let found = None
        .or_else(|| also(rule, observation))
        .or_else(|| reads(HintSource::RetryAfter).then(|| retry_after(observation)).flatten())
        .or_else(|| reads(HintSource::Body).then(|| body::read(observation)).flatten())
        .or_else(|| reads(HintSource::ResetHeader).then(|| window::read(observation, rule.zone)).flatten())
        .or_else(|| reads(HintSource::Message).then(|| in_message(observation, rule.zone)).flatten())
        .or_else(|| rule.calendar.and_then(|calendar| until(calendar, rule.zone, observation.at_ms)))?;
    Some(Hinted { wait: found.wait.min(Duration::from_secs(rule.cap_s)), ..found })
}

fn also(rule: &HintRule, observation: &Observation) -> Option<Hinted> {
    let of = |text: &str, unit| moment::read(text, unit, rule.zone, observation.at_ms);
    rule.also.iter().find_map(|hint| {
        if let Some(header) = &hint.header {
            return Hinted::of(of(observation.headers.get(header)?, hint.unit)?, BlockSource::Header(header.clone()));
        }
        let at = hint.body.as_deref()?;
        let value = observation.body.trees().find_map(|tree| tree.pointer(at))?;
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Hinted::of(of(&text, hint.unit)?, BlockSource::Body(at.trim_start_matches('/').replace('/', ".")))
    })
}

fn retry_after(observation: &Observation) -> Option<Hinted> {
    let of = |name: &'static str, unit: HintUnit| {
        let value = observation.headers.get(name)?;
        let ms = moment::read(value, unit, Zone::default(), observation.at_ms)?;
        // A number below zero means nothing; zero, or a date in the past, meant a wait.
        let ms = match ms {
            1.. => ms,
            _ if value.starts_with('-') => return None,
            _ => FLOOR_MS,
        };
        Hinted::of(ms, BlockSource::Header(name.to_owned()))
    };
    of("retry-after-ms", HintUnit::Millis).or_else(|| of("retry-after", HintUnit::Auto))
}

fn in_message(observation: &Observation, zone: Zone) -> Option<Hinted> {
    let message = observation.error.message.as_deref()?;
    let place = match observation.error.message_at.as_str() {
        "" => "message".to_owned(),
        place => place.to_owned(),
    };
    Hinted::of(message::read(message, zone, observation.at_ms)?, BlockSource::Body(place))
}

/// The end of a window that ends with the calendar of a zone; nothing where nobody knows what time it is.
fn until(calendar: Calendar, zone: Zone, now_ms: i64) -> Option<Hinted> {
    if now_ms == 0 {
        return None;
    }
    let ahead = TimeDelta::minutes(i64::from(zone.minutes()));
    let now = DateTime::from_timestamp_millis(now_ms)?.naive_utc().checked_add_signed(ahead)?;
    let midnight = |day: chrono::NaiveDate| day.and_time(NaiveTime::MIN);
    let today = now.date();
    let end = match calendar {
        Calendar::Hour => midnight(today) + TimeDelta::hours(i64::from(now.hour()) + 1),
        Calendar::Day => midnight(today.checked_add_days(Days::new(1))?),
        Calendar::Week => {
            let left = 7 - u64::from(today.weekday().num_days_from_monday());
            midnight(today.checked_add_days(Days::new(left))?)
        }
        Calendar::Month => midnight(today.with_day(1)?.checked_add_months(Months::new(1))?),
    };
    Hinted::of(end.signed_duration_since(now).num_milliseconds(), BlockSource::Calendar(zone))
}
