//! Times in the forms in which upstreams write them, as milliseconds from now.

use chrono::{DateTime, NaiveDateTime};

use crate::verdict::rule::{HintUnit, Zone};

/// Numbers from here on are seconds since 1970.
const EPOCH_SECONDS: f64 = 1e9;
/// Numbers from here on are milliseconds since 1970.
const EPOCH_MILLIS: f64 = 1e12;
/// Longest wait that is worth reading, in milliseconds: a century.
const MAX_MS: f64 = 3.2e12;

/// Milliseconds from `now_ms` to what a text names; negative for what has passed. Nothing if it can't be read.
pub(crate) fn read(text: &str, unit: HintUnit, zone: Zone, now_ms: i64) -> Option<i64> {
    let text = text.trim();
    let number = || text.parse::<f64>().ok().filter(|number| number.is_finite());
    match unit {
        HintUnit::Seconds => number().and_then(|n| millis(n * 1e3)),
        HintUnit::Millis => number().and_then(millis),
        HintUnit::EpochSeconds => number().and_then(|n| since(n * 1e3, now_ms)),
        HintUnit::EpochMillis => number().and_then(|n| since(n, now_ms)),
        HintUnit::Duration => duration(text).map(|(ms, _)| ms),
        HintUnit::Date => date(text, zone).map(|at| at - now_ms),
        HintUnit::Auto => match number() {
            Some(n) if n >= EPOCH_MILLIS => since(n, now_ms),
            Some(n) if n >= EPOCH_SECONDS => since(n * 1e3, now_ms),
            Some(n) => millis(n * 1e3),
            None => duration(text)
                .filter(|(_, rest)| rest.is_empty())
                .map(|(ms, _)| ms)
                .or_else(|| date(text, zone).map(|at| at - now_ms)),
        },
    }
}

/// A number of milliseconds, if it is within reason.
#[expect(clippy::cast_possible_truncation, reason = "it is within a century")]
fn millis(ms: f64) -> Option<i64> {
    (ms.abs() <= MAX_MS).then(|| ms.round() as i64)
}

fn since(ms: f64, now_ms: i64) -> Option<i64> {
    // A moment that far off is still one: it is capped by whoever asks.
    millis(ms.min(MAX_MS)).map(|at| at - now_ms)
}

/// A moment in milliseconds since 1970: RFC 3339, an HTTP date, or a date and time of the given zone.
pub(super) fn date(text: &str, zone: Zone) -> Option<i64> {
    if let Ok(moment) = DateTime::parse_from_rfc3339(text) {
        return Some(moment.timestamp_millis());
    }
    if let Ok(moment) = httpdate::parse_http_date(text) {
        return i64::try_from(moment.duration_since(std::time::UNIX_EPOCH).ok()?.as_millis()).ok();
    }
    let forms = ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M"];
    let local = forms.iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())?;
    Some(local.and_utc().timestamp_millis() - i64::from(zone.minutes()) * 60_000)
}

/// The duration a text begins with, in milliseconds, and what follows: `6.5s`, `9m38.016s`, `1 seconds`, `250ms`, `2h`. A
/// bare number is seconds.
pub(super) fn duration(text: &str) -> Option<(i64, &str)> {
    let mut rest = text.trim_start();
    let mut ms = 0.0;
    let mut met = false;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let Some(number) = rest.get(..digits).and_then(|n| n.trim_end_matches('.').parse::<f64>().ok()) else { break };
        let after = rest.get(digits..)?;
        let unit_text = after.trim_start();
        let letters = unit_text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit_text.len());
        let (unit, behind) = unit_text.split_at_checked(letters)?;
        let factor = match unit.to_ascii_lowercase().as_str() {
            "ns" => 1e-6,
            "us" => 1e-3,
            "ms" | "millisecond" | "milliseconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60e3,
            "h" | "hour" | "hours" | "hr" | "hrs" => 3_600e3,
            "d" | "day" | "days" => 86_400e3,
            "" | "s" | "sec" | "secs" | "second" | "seconds" => 1e3,
            _ if met => break,
            _ => return None,
        };
        ms += number * factor;
        met = true;
        rest = behind;
    }
    millis(ms).filter(|_| met).map(|ms| (ms, rest))
}
