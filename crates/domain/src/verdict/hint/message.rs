//! A time in an error's message.

use std::sync::LazyLock;

use regex::Regex;

use super::moment;
use crate::verdict::rule::Zone;

/// Most bytes of a message that are looked at.
const MAX_MESSAGE: usize = 2_048;
/// Words after which a duration stands.
const BEFORE: [&str; 11] = [
    "try again in ",
    "try again after ",
    "retry after ",
    "retry in ",
    "resets in ",
    "reset in ",
    "reset after ",
    "resets after ",
    "available in ",
    "available again in ",
    "wait ",
];

/// A date with a time of day, with or without a zone.
static DATE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:T| at | )([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:\.[0-9]+)? ?(Z|UTC|[+-][0-9]{2}:[0-9]{2})?").ok()
});
/// `usage limit reached|1790823600`.
static EPOCH: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\|([0-9]{10}|[0-9]{13})\b").ok());

/// Milliseconds until what a message names: after certain words a duration, else a date, else seconds since 1970 behind a
/// bar. What lies in the past is none.
pub(super) fn read(message: &str, zone: Zone, now_ms: i64) -> Option<i64> {
    let message = message.get(..message.floor_char_boundary(MAX_MESSAGE)).unwrap_or_default();
    let lowered = message.to_ascii_lowercase();
    let duration = BEFORE.iter().find_map(|words| {
        let start = lowered.find(words)? + words.len();
        moment::duration(lowered.get(start..)?).map(|(ms, _)| ms).filter(|ms| *ms > 0)
    });
    let future = |at: i64| (at > now_ms).then(|| at - now_ms);
    duration
        .or_else(|| {
            let found = DATE.as_ref()?.captures(message)?;
            let part = |at: usize| found.get(at).map_or("", |part| part.as_str());
            let (day, time, own) = (part(1), part(2), part(3));
            let zone = if own.is_empty() { zone } else { own.parse().ok()? };
            future(moment::date(&format!("{day} {time}"), zone)?)
        })
        .or_else(|| {
            let number: i64 = EPOCH.as_ref()?.captures(message)?.get(1)?.as_str().parse().ok()?;
            future(if number < 1_000_000_000_000 { number * 1_000 } else { number })
        })
}
