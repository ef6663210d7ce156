//! Members of an error's body that are made to name a wait.

use serde_json::Value;

use super::{Hinted, moment};
use crate::observation::Observation;
use crate::verdict::rule::{HintUnit, Zone};
use crate::verdict::source::BlockSource;

/// Members and their units, in the order in which they are looked for.
const MEMBERS: [(&str, HintUnit); 13] = [
    ("retryDelay", HintUnit::Duration),
    ("retry_after_ms", HintUnit::Millis),
    ("resets_in_seconds", HintUnit::Seconds),
    ("reset_in_seconds", HintUnit::Seconds),
    ("resets_at", HintUnit::Auto),
    ("reset_at", HintUnit::Auto),
    ("reset_time", HintUnit::Auto),
    ("retry_after_seconds", HintUnit::Seconds),
    ("retry_after", HintUnit::Auto),
    ("retryAfter", HintUnit::Auto),
    ("estimated_time", HintUnit::Seconds),
    ("wait_seconds", HintUnit::Seconds),
    ("retry_after_secs", HintUnit::Seconds),
];
/// Objects in which they stand.
const PLACES: [&str; 7] = ["error", "response.error", "detail", "error.metadata", "error.detail", "base_resp", ""];

/// The first wait that a member names.
pub(crate) fn read(observation: &Observation) -> Option<Hinted> {
    let now_ms = observation.at_ms;
    observation.body.trees().find_map(|tree| {
        PLACES.iter().find_map(|place| {
            let object = place.split('.').filter(|name| !name.is_empty()).try_fold(tree, |at, name| at.get(name))?;
            in_object(object, place, now_ms).or_else(|| {
                let details = object.get("details")?.as_array()?;
                details.iter().find_map(|detail| in_object(detail, &of_detail(place, detail), now_ms))
            })
        })
    })
}

fn in_object(object: &Value, place: &str, now_ms: i64) -> Option<Hinted> {
    let object = object.as_object()?;
    MEMBERS.iter().find_map(|(name, unit)| {
        let text = match object.get(*name)? {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
        };
        let ms = moment::read(&text, *unit, Zone::default(), now_ms)?;
        let place = if place.is_empty() { (*name).to_owned() } else { format!("{place}.{name}") };
        Hinted::of(ms, BlockSource::Body(place))
    })
}

/// `error.details[RetryInfo]`.
fn of_detail(place: &str, detail: &Value) -> String {
    let kind = detail.get("@type").and_then(Value::as_str).unwrap_or_default();
    let kind = kind.rsplit('.').next().unwrap_or_default();
    let dot = if place.is_empty() { "" } else { "." };
    format!("{place}{dot}details[{kind}]")
}
