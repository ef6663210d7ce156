//! Reasons in sentences.

use std::fmt::Write as _;
use std::time::Duration;

use waybill_event::LogTime;

use super::{Ends, Look, Reason};

/// What keeps a source out, until when, and what ends it.
pub(super) fn of(reason: &Reason, look: &Look<'_>) -> String {
    let (limits, used) = (look.entity.limits(), look.in_use);
    let mut text = match reason.why {
        "disabled_by_operator" => "an operator disabled it".to_owned(),
        "disabled_by_verdict" => format!("a verdict disabled it{}", because(reason)),
        "no_models" => "it serves no model".to_owned(),
        "no_group" => "it serves no group that is enabled".to_owned(),
        "no_credential" => "it has no credential".to_owned(),
        "credential_expired" => "its access token has expired".to_owned(),
        "held_open" => "an operator holds its breaker open".to_owned(),
        "hard_blocked" => format!("it is blocked{}", because(reason)),
        "hint_blocked" => format!("its upstream told it to wait{}", because(reason)),
        "soft_blocked" => format!("it is asked only when nothing better is left{}", because(reason)),
        "source_breaker_open" | "model_breaker_open" => "its breaker is open: too many attempts failed".to_owned(),
        "probing" => "its breaker is half open: one request at a time tries it".to_owned(),
        "concurrency" => {
            format!("it is full: {} of {} in flight", used.in_flight, limits.max_concurrent.unwrap_or_default())
        }
        "rpm" => format!(
            "its attempts of this minute are spent: {} of {}",
            used.rate_used,
            limits.requests_per_minute.unwrap_or_default()
        ),
        other => other.to_owned(),
    };
    if let Some(model) = &reason.model {
        text = format!("{model}: {text}");
    }
    if let Some(since) = reason.since {
        say(&mut text, format_args!(" since {}", short(since)));
    }
    if let Some(until) = reason.until {
        let word = if reason.ends == Ends::Probe { ", the next probe at" } else { " until" };
        say(&mut text, format_args!("{word} {} ({} left)", short(until), left(until.since(look.now))));
    }
    let ends = match reason.ends {
        Ends::Time => "it ends by itself",
        Ends::Room => "it serves again when a request ends",
        Ends::Requests => "requests that go well then close it",
        Ends::Probe => "a probe that goes well brings it back",
        Ends::Refresh => "upkeep's next refresh brings it back",
        Ends::Login => "it takes another login",
        Ends::Operator => "it takes an operator's edit",
    };
    say(&mut text, format_args!("; {ends}"));
    text
}

fn because(reason: &Reason) -> String {
    reason.kind.map_or_else(String::new, |kind| format!(" because of {}", kind.as_str()))
}

/// A time to the second.
fn short(at: LogTime) -> String {
    let text = at.to_string();
    match text.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => text,
    }
}

/// How long, in its two largest units.
fn left(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 86_400, seconds % 86_400 / 3_600, seconds % 3_600 / 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

fn say(text: &mut String, more: std::fmt::Arguments<'_>) {
    // A text takes whatever is written to it.
    let _never_fails = text.write_fmt(more);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_their_two_largest_units() {
        let check = |seconds, expected: &str| assert_eq!(left(Duration::from_secs(seconds)), expected);
        check(0, "0 s");
        check(61, "1 min 1 s");
        check(3_600 * 4 + 59, "4 h 0 min");
        check(86_400 * 6 + 3_600 * 2, "6 d 2 h");
        assert_eq!(short("2026-11-30T12:00:00.25Z".parse().unwrap()), "2026-11-30T12:00:00Z");
    }
}
