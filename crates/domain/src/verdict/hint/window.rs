//! Reset headers of windows. They come on successes and on mere bursts too: only a window that is used up says when to
//! come back, and of several of those the one that lasts longest.

use super::{Hinted, moment};
use crate::observation::Observation;
use crate::verdict::rule::{HintUnit, Zone};
use crate::verdict::source::BlockSource;

/// How the reset headers of usage windows of the ChatGPT backend end.
const CODEX_ENDS: [&str; 2] = ["-reset-after-seconds", "-reset-at"];

/// The longest wait of the windows that are used up.
pub(super) fn read(observation: &Observation, zone: Zone) -> Option<Hinted> {
    let headers = &observation.headers;
    let waits = headers.iter().filter(|(name, _)| name.contains("reset") && used_up(observation, name));
    let waits = waits.filter_map(|(name, value)| {
        Some((moment::read(value, HintUnit::Auto, zone, observation.at_ms)?, name)).filter(|(ms, _)| *ms > 0)
    });
    let (ms, name) = waits.max_by_key(|(ms, _)| *ms)?;
    Hinted::of(ms, BlockSource::Header(name.to_owned()))
}

/// Whether the window of a reset header is used up.
fn used_up(observation: &Observation, reset: &str) -> bool {
    let headers = &observation.headers;
    let number = |name: &str| headers.get(name).and_then(|value| value.parse::<f64>().ok());
    if let Some(stem) = CODEX_ENDS.iter().find_map(|end| reset.strip_suffix(end)) {
        return number(&format!("{stem}-used-percent")).is_some_and(|used| used >= 100.0);
    }
    let beside = |word: &str| reset.replacen("reset", word, 1);
    let status = headers.get(&beside("status"));
    if let Some(status) = status {
        return status.eq_ignore_ascii_case("rejected");
    }
    match number(&beside("remaining")) {
        Some(left) => left <= 0.0,
        // Where nothing is said of what is left: the only window there is, or the one that the error names.
        None => {
            let dimension = reset.rsplit_once("reset").map_or("", |(_, dimension)| dimension.trim_start_matches('-'));
            dimension.is_empty() || observation.error.kind.as_deref() == Some(dimension)
        }
    }
}
