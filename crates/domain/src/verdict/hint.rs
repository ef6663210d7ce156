//! The wait that an error's message asks for, read only once the kind is known to be one that waits.

use std::time::Duration;

/// Words after which a time stands.
const BEFORE: [&str; 6] = ["try again in ", "try again after ", "retry after ", "retry in ", "wait ", "available in "];

/// The wait that a message asks for: `6.5s`, `9m38.016s`, `1 seconds`, `250ms`. The caller caps it.
pub(super) fn in_message(message: &str) -> Option<Duration> {
    let lowered = message.to_ascii_lowercase();
    BEFORE.iter().find_map(|words| {
        let start = lowered.find(words)? + words.len();
        leading(lowered.get(start..)?)
    })
}

/// The duration a text begins with; a bare number is seconds.
fn leading(text: &str) -> Option<Duration> {
    let mut rest = text.trim_start();
    let mut seconds = 0.0;
    let mut met = false;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let Some(number) = rest.get(..digits).and_then(|n| n.trim_end_matches('.').parse::<f64>().ok()) else { break };
        rest = rest.get(digits..)?;
        let unit_text = rest.trim_start();
        let letters = unit_text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit_text.len());
        let (unit, after) = unit_text.split_at_checked(letters)?;
        let factor = match unit {
            "ms" | "millisecond" | "milliseconds" => 0.001,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3_600.0,
            "d" | "day" | "days" => 86_400.0,
            "" | "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            _ if met => break,
            _ => return None,
        };
        seconds += number * factor;
        met = true;
        rest = after;
    }
    Duration::try_from_secs_f64(seconds).ok().filter(|wait| met && !wait.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(message: &str, millis: Option<u64>) {
        assert_eq!(in_message(message), millis.map(Duration::from_millis), "{message}");
    }

    #[test]
    fn times_in_messages_are_read() {
        check("Rate limit reached. Please try again in 6.5s.", Some(6_500));
        check("Please try again in 9m38.016s. Need more?", Some(578_016));
        check("please try again after 1 seconds", Some(1_000));
        check("Retry after 250ms", Some(250));
        check("try again in 7", Some(7_000));
    }

    #[test]
    fn what_is_no_time_is_none() {
        check("please try again later", None);
        check("try again in a moment", None);
        check("try again in 0s", None);
        check("", None);
        check("try again in 3 parsecs", None);
    }
}
