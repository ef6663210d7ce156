//! What an upstream tells of the usage windows of a subscription: how much of each is used, and when it begins anew. It
//! is told to people as headroom and decides nothing; that a window is used up says a refusal, and its verdict.

use std::collections::BTreeMap;

use waybill_event::{LogTime, UsageWindow};

use crate::observation::{Ending, Observation};
use crate::verdict::hint::{body, moment};
use crate::verdict::rule::{HintUnit, Zone};

/// Most windows that are read of one answer.
const MOST: usize = 12;
/// Longest name of a window that is kept.
const NAME_MAX: usize = 40;
/// A refusal that names a shorter wait is about a burst, not about a window; in milliseconds.
const WINDOW_MS: i64 = 60_000;
/// What stands among the windows of a plan and is none: what may be bought beyond them.
const NO_WINDOWS: [&str; 2] = ["overage", "fallback"];
/// The name of what is told of a plan as a whole.
const UNIFIED: &str = "unified";

/// What a header tells of its window.
#[derive(Clone, Copy)]
enum Told {
    UsedPart,
    UsedPercent,
    Limit,
    Remaining,
    ResetAfter,
    Reset,
    Minutes,
    Status,
}

#[derive(Default)]
struct Draft {
    used_permille: Option<u32>,
    limit: Option<f64>,
    remaining: Option<f64>,
    reset_ms: Option<i64>,
    minutes: Option<u32>,
    rejected: bool,
    /// It is one of those that a plan has beside what is told of it as a whole.
    of_plan: bool,
}

/// The windows that an answer's headers tell of; names are in lower case. `now` is when it came. Headers that nobody sends
/// cost a comparison each.
pub fn read<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>, now: LogTime) -> Vec<UsageWindow> {
    let mut drafts: BTreeMap<String, Draft> = BTreeMap::new();
    for (name, value) in headers {
        let Some((window, told, of_plan)) = window_of(name) else { continue };
        if window.len() > NAME_MAX || (drafts.len() >= MOST && !drafts.contains_key(window)) {
            continue;
        }
        let draft = drafts.entry(window.to_owned()).or_default();
        draft.of_plan |= of_plan;
        draft.take(told, value, now.as_millis());
    }
    if drafts.iter().any(|(name, draft)| draft.of_plan && name != UNIFIED) {
        drafts.remove(UNIFIED);
    }
    drafts.into_iter().filter_map(|(name, draft)| draft.window(name, now)).collect()
}

/// The windows that a failed attempt tells of: its headers', and the one that a refusal's body says is used up.
#[must_use]
pub fn of_failure(observation: &Observation) -> Vec<UsageWindow> {
    if observation.at_ms <= 0 {
        return Vec::new();
    }
    let now = LogTime::from_micros(observation.at_ms.saturating_mul(1_000));
    let mut windows = read(observation.headers.iter(), now);
    let refused = matches!(observation.ending, Ending::Status { status: 429, .. });
    if refused
        && !windows.iter().any(|window| window.exhausted)
        && let Some(hinted) = body::read(observation)
        && let Ok(ms) = i64::try_from(hinted.wait.as_millis())
        && ms >= WINDOW_MS
    {
        let error = &observation.error;
        let name = error.kind.as_deref().or(error.code.as_deref()).unwrap_or("limit");
        windows.push(UsageWindow {
            name: name.chars().take(NAME_MAX).collect(),
            used_permille: Some(1_000),
            resets_at: Some(after(now, ms)),
            minutes: None,
            exhausted: true,
            seen_at: now,
        });
    }
    windows
}

/// The window that a header is about, what it tells of it, and whether it is one of a plan's.
fn window_of(header: &str) -> Option<(&str, Told, bool)> {
    const ANTHROPIC: [(&str, Told); 5] = [
        ("status", Told::Status),
        ("utilization", Told::UsedPart),
        ("reset", Told::Reset),
        ("limit", Told::Limit),
        ("remaining", Told::Remaining),
    ];
    const CODEX: [(&str, Told); 4] = [
        ("-used-percent", Told::UsedPercent),
        ("-reset-after-seconds", Told::ResetAfter),
        ("-reset-at", Told::Reset),
        ("-window-minutes", Told::Minutes),
    ];
    const GENERIC: [(&str, Told); 3] = [("limit", Told::Limit), ("remaining", Told::Remaining), ("reset", Told::Reset)];
    if let Some(rest) = header.strip_prefix("anthropic-ratelimit-") {
        let (window, last) = rest.rsplit_once('-')?;
        let (_, told) = *ANTHROPIC.iter().find(|(word, _)| *word == last)?;
        let of_plan = window.strip_prefix("unified-");
        let window = of_plan.unwrap_or(window);
        return (!NO_WINDOWS.contains(&window)).then_some((window, told, of_plan.is_some()));
    }
    if let Some(rest) = header.strip_prefix("x-codex-") {
        return CODEX.iter().find_map(|(end, told)| Some((rest.strip_suffix(end)?, *told, false)));
    }
    let rest = header.strip_prefix("x-ratelimit-")?;
    GENERIC.iter().find_map(|(word, told)| match rest.strip_prefix(word)? {
        "" => Some(("requests", *told, false)),
        dimension => Some((dimension.strip_prefix('-')?, *told, false)),
    })
}

impl Draft {
    fn take(&mut self, told: Told, value: &str, now_ms: i64) {
        let number = || value.trim().trim_end_matches('%').parse::<f64>().ok().filter(|number| number.is_finite());
        match told {
            Told::UsedPart => self.used_permille = number().map(|part| permille(part * 1e3)),
            Told::UsedPercent => self.used_permille = number().map(|percent| permille(percent * 10.0)),
            Told::Limit => self.limit = number(),
            Told::Remaining => self.remaining = number(),
            Told::ResetAfter => self.reset_ms = moment::read(value, HintUnit::Seconds, Zone::default(), now_ms),
            // What is told as a distance is nearer to the truth than a moment of another clock.
            Told::Reset if self.reset_ms.is_some() => {}
            Told::Reset => self.reset_ms = moment::read(value, HintUnit::Auto, Zone::default(), now_ms),
            Told::Minutes => self.minutes = value.trim().parse().ok(),
            Told::Status => self.rejected = value.trim().eq_ignore_ascii_case("rejected"),
        }
    }

    fn window(self, name: String, now: LogTime) -> Option<UsageWindow> {
        let counted = match (self.limit, self.remaining) {
            (Some(limit), Some(left)) if limit > 0.0 => Some(permille((limit - left) / limit * 1e3)),
            _ => None,
        };
        let used_permille = self.used_permille.or(counted);
        let resets_at = self.reset_ms.filter(|ms| *ms > 0).map(|ms| after(now, ms));
        let exhausted = self.rejected
            || used_permille.is_some_and(|used| used >= 1_000)
            || self.remaining.is_some_and(|left| left <= 0.0);
        let says = used_permille.is_some() || exhausted || (self.of_plan && resets_at.is_some());
        let minutes = self.minutes;
        says.then_some(UsageWindow { name, used_permille, resets_at, minutes, exhausted, seen_at: now })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is cut to what fits")]
fn permille(part: f64) -> u32 {
    part.round().clamp(0.0, 100_000.0) as u32
}

fn after(now: LogTime, ms: i64) -> LogTime {
    LogTime::from_micros(now.as_micros().saturating_add(ms.saturating_mul(1_000)))
}

#[cfg(test)]
mod tests;
