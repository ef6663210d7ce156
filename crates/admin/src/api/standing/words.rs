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
        say(&mut text, format_args!("{word} {} ({} left)", short(until), span(until.since(look.now))));
    }
    let ends = match reason.ends {
        Ends::Time => "it ends by itself",
        Ends::Room => "it serves again when a request ends",
        Ends::Requests => "requests that go well then close it",
        Ends::Probe => "a probe that goes well brings it back",
        Ends::Refresh => "upkeep's next refresh brings it back",
        Ends::Login => "it takes another login",
        Ends::Operator => "it takes an operator",
    };
    say(&mut text, format_args!("; {ends}"));
    if let Some(command) = command(reason, look) {
        let word = if matches!(reason.ends, Ends::Login | Ends::Operator) { ":" } else { ", or" };
        say(&mut text, format_args!("{word} `waybill {command}`"));
    }
    text
}

/// What an operator may do about it, if something ends it.
fn command(reason: &Reason, look: &Look<'_>) -> Option<String> {
    let (kind, source) = (look.entity.kind(), look.entity.source());
    // Names may need quoting; what doesn't is easier to read than an id.
    let plain = |name: &&str| {
        name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
            && name.parse::<u64>().is_err()
    };
    let which = Some(look.entity.name()).filter(plain).map_or_else(|| look.entity.id().to_string(), str::to_owned);
    match (reason.why, reason.ends) {
        ("no_credential", Ends::Operator) => Some(format!("{kind} edit {which} --credential-file FILE")),
        (_, Ends::Login) => Some(format!("{kind} edit {which} --token-file FILE")),
        ("disabled_by_operator", _) => Some(format!("{kind} enable {which}")),
        ("no_models", _) => Some(format!("{kind} edit {which} --model MODEL")),
        ("no_group", _) => Some(format!("{kind} edit {which} --group GROUP")),
        ("held_open", _) => Some(match &reason.model {
            Some(model) => format!("source close {source} --model {model}"),
            None => format!("source close {source}"),
        }),
        ("disabled_by_verdict" | "hard_blocked" | "hint_blocked" | "soft_blocked", _) => {
            Some(format!("source lift {source}"))
        }
        _ => None,
    }
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
pub(in crate::api) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 86_400, seconds % 86_400 / 3_600, seconds % 3_600 / 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, 0) => format!("{minutes} min"),
        (0, hours, 0, _) if hours > 0 => format!("{hours} h"),
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
        let check = |seconds, expected: &str| assert_eq!(span(Duration::from_secs(seconds)), expected);
        check(0, "0 s");
        check(61, "1 min 1 s");
        check(900, "15 min");
        check(3_600 * 4 + 59, "4 h");
        check(86_400 * 6 + 3_600 * 2, "6 d 2 h");
        assert_eq!(short("2026-11-30T12:00:00.25Z".parse().unwrap()), "2026-11-30T12:00:00Z");
    }
}
