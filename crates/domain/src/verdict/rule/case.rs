//! Recorded failures: what a rule is tested with.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use waybill_event::FailureKind;

use super::Place;

/// A failure as it was recorded: all that the classifier may know, in the fields of the catalogue of failures.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecordedCase {
    /// The provider's kind from the channel's settings.
    pub provider_hint: String,
    /// The protocol that was spoken.
    pub protocol: String,
    /// Where it ended.
    #[serde(rename = "where")]
    pub place: Option<Place>,
    /// The status; none where there was no answer.
    pub status: Option<u16>,
    /// The headers.
    pub headers: Map<String, Value>,
    /// The body: a tree where it was JSON, a text where it was something else, null where there was none.
    pub body: Value,
    /// What the gateway knew beside the answer.
    pub facts: Map<String, Value>,
    /// When, in seconds since 1970 (UTC).
    pub observed_at: i64,
    /// Whether content had gone to the client.
    pub committed: bool,
}

impl RecordedCase {
    const FIELDS: [&'static str; 9] =
        ["provider_hint", "protocol", "where", "status", "headers", "body", "facts", "observed_at", "committed"];

    /// Takes the fields of a recorded failure out of an object that may have more, which aren't looked at. Null is as good
    /// as absent.
    ///
    /// # Errors
    /// When a field has a value that it can't have.
    pub fn of_object(object: &Map<String, Value>) -> Result<Self, serde_json::Error> {
        let told = |(name, value): &(&String, &Value)| Self::FIELDS.contains(&name.as_str()) && !value.is_null();
        let known = object.iter().filter(told);
        serde_json::from_value(Value::Object(known.map(|(name, value)| (name.clone(), value.clone())).collect()))
    }
}

/// A recorded failure and what a rule must say of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleCase {
    /// What was recorded.
    pub given: RecordedCase,
    /// The kind that is expected.
    pub kind: FailureKind,
    /// Fields of the verdict that are expected, by their names in the catalogue.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub verdict: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_known_or_null_is_passed_over() {
        let object = json!({"id": "x", "kind": "success", "status": 429, "headers": null, "facts": null, "body": null});
        let case = RecordedCase::of_object(object.as_object().unwrap()).unwrap();
        assert_eq!(case, RecordedCase { status: Some(429), ..RecordedCase::default() });
        assert!(RecordedCase::of_object(json!({"status": "429"}).as_object().unwrap()).is_err());
    }
}
