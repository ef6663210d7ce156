//! How long an upstream asks to wait, from response headers.

use std::time::Duration;

use http::header::{HeaderName, RETRY_AFTER};
use http::{HeaderMap, HeaderValue};

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
/// What a date in the past is taken as: the server meant a wait.
const PAST_DATE: Duration = Duration::from_secs(1);

/// The wait that headers ask for: `retry-after-ms` before `retry-after` in seconds before its HTTP date.
/// `now_ms` is UTC in milliseconds since 1970. Zero, negative and unreadable values are no hints. The caller caps.
#[must_use]
pub fn retry_hint(headers: &HeaderMap, now_ms: i64) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    let from_ms = text(RETRY_AFTER_MS).and_then(|value| positive(value, 1e-3));
    from_ms.or_else(|| {
        let value = text(RETRY_AFTER)?;
        positive(value, 1.0).or_else(|| until(value, now_ms))
    })
}

/// The headers that [`retry_hint`] reads, in memory of their own: all of an answer's headers would hold on to the buffer of
/// the connection that they came over.
#[must_use]
pub fn hints(headers: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for name in [RETRY_AFTER_MS, RETRY_AFTER] {
        if let Some(Ok(value)) = headers.get(&name).map(|value| HeaderValue::from_bytes(value.as_bytes())) {
            kept.insert(name, value);
        }
    }
    kept
}

fn positive(value: &str, seconds: f64) -> Option<Duration> {
    let number: f64 = value.parse().ok()?;
    Duration::try_from_secs_f64(number * seconds).ok().filter(|wait| !wait.is_zero())
}

fn until(date: &str, now_ms: i64) -> Option<Duration> {
    let wait_ms = http_date_ms(date)?.saturating_sub(now_ms);
    Some(u64::try_from(wait_ms).map_or(PAST_DATE, Duration::from_millis).max(PAST_DATE))
}

/// An HTTP date of the preferred form, `Sun, 06 Nov 1994 08:49:37 GMT`, in milliseconds since 1970.
fn http_date_ms(text: &str) -> Option<i64> {
    let mut parts = text.split_ascii_whitespace();
    let (_, day, month, year, time, zone) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if zone != "GMT" || parts.next().is_some() {
        return None;
    }
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = i64::try_from(months.iter().position(|name| *name == month)?).ok()? + 1;
    let mut clock = time.splitn(3, ':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let (day, year) = (day.parse::<i64>().ok()?, year.parse::<i64>().ok()?);
    let fits = (1..=31).contains(&day)
        && (1970..=9999).contains(&year)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..=60).contains(&second);
    fits.then(|| (days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second) * 1000)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar, by counting in 400-year eras that begin in March.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1994-11-06T08:49:37Z.
    const THEN_MS: i64 = 784_111_777_000;

    fn check(given: &[(&'static str, &str)], expected_ms: Option<u64>) {
        let headers: HeaderMap =
            given.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect();
        assert_eq!(retry_hint(&headers, THEN_MS), expected_ms.map(Duration::from_millis), "{given:?}");
    }

    #[test]
    fn the_finer_hint_wins() {
        check(&[("retry-after-ms", "250"), ("retry-after", "3")], Some(250));
        check(&[("retry-after-ms", "soon"), ("retry-after", "3")], Some(3000));
        check(&[("retry-after", "1.5")], Some(1500));
        check(&[], None);
    }

    #[test]
    fn what_is_kept_hints_as_before() {
        let pairs = [("retry-after", "7"), ("retry-after-ms", "250"), ("x-request-id", "r")];
        let all: HeaderMap = pairs
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .into_iter()
            .collect();
        let kept = hints(&all);
        assert_eq!((kept.len(), retry_hint(&kept, 0)), (2, retry_hint(&all, 0)));
        assert_eq!(hints(&HeaderMap::new()), HeaderMap::new());
    }

    #[test]
    fn dates_count_from_the_given_now() {
        check(&[("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT")], Some(60_000));
        check(&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], Some(1000));
        check(&[("retry-after", "Sat, 05 Nov 1994 08:49:37 GMT")], Some(1000));
        assert_eq!(http_date_ms("Thu, 29 Feb 2024 00:00:00 GMT"), Some(1_709_164_800_000));
        assert_eq!(http_date_ms("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
    }

    #[test]
    fn what_is_no_wait_is_no_hint() {
        for value in [
            "0",
            "-1",
            "nan",
            "inf",
            "1e400",
            "soon",
            "",
            "Sun, 06 Nov 1994 08:50:37 CET",
            "Sun, 99 Nov 1994 08:50:37 GMT",
        ] {
            check(&[("retry-after", value)], None);
        }
    }
}
