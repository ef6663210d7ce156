//! The bundled catalogue of recorded failures, and what a classifier says of it that isn't expected: what a change of
//! rules is tested with before it is published.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};
use waybill_domain::observation::Observation;
use waybill_domain::verdict::rule::{RecordedCase, Rule};
use waybill_domain::verdict::{Report, Verdict};
use waybill_event::FailureKind;

use crate::observe::recorded;

/// Fields of a verdict that must be met. The others are judged with tolerance, by whoever reads them.
pub const STRICT: [&str; 6] =
    ["class", "retry_elsewhere", "counts_channel_health", "counts_model_health", "block_scope", "reason"];

static BUNDLED: LazyLock<Vec<BundledCase>> = LazyLock::new(|| {
    let lines = include_str!("../cases/provider_failures.jsonl").lines();
    lines.filter_map(|line| read(line).inspect_err(|fault| debug_assert!(false, "{fault}: {line}")).ok()).collect()
});

/// A bundled failure and what is expected of it.
#[derive(Debug, Clone, PartialEq)]
pub struct BundledCase {
    /// Its name.
    pub id: String,
    /// What was recorded.
    pub given: RecordedCase,
    /// The kind that is expected.
    pub kind: FailureKind,
    /// The verdict that is expected, in the catalogue's fields.
    pub verdict: Map<String, Value>,
    /// The fields of the other view, where reasonable people differ: either is met.
    pub alt: Option<Map<String, Value>>,
}

/// A case of which something else is said than is expected.
#[derive(Debug, Clone, PartialEq)]
pub struct Disagreement {
    /// The bundled case's name; of a rule's own case the rule's id with the case's number, from 1.
    pub id: String,
    /// What was said.
    pub told: Report,
    /// The fields that differ: name, what was said, what is expected.
    pub fields: Vec<(String, Value, Value)>,
}

#[derive(Deserialize)]
struct Expected {
    id: String,
    kind: FailureKind,
    verdict: Map<String, Value>,
    disputed: bool,
    #[serde(default)]
    alt: Map<String, Value>,
}

fn read(line: &str) -> Result<BundledCase, serde_json::Error> {
    let object: Map<String, Value> = serde_json::from_str(line)?;
    let given = RecordedCase::of_object(&object)?;
    let Expected { id, kind, verdict, disputed, alt } = serde_json::from_value(Value::Object(object))?;
    Ok(BundledCase { id, given, kind, verdict, alt: disputed.then_some(alt) })
}

/// All bundled cases.
#[must_use]
pub fn bundled() -> &'static [BundledCase] {
    &BUNDLED
}

impl BundledCase {
    /// What of a verdict on this case isn't what is expected: of the two views the one that comes nearer.
    #[must_use]
    pub fn differences(&self, told: &Report) -> Vec<(String, Value, Value)> {
        let strict = |expected: &Map<String, Value>| {
            let mut differ = differences(told, STRICT.iter().filter_map(|name| Some((*name, expected.get(*name)?))));
            // The client's own key is fine, whatever happens to ours.
            if (401..=403).contains(&told.client_status) {
                differ.push(("client_status".to_owned(), told.client_status.into(), Value::Null));
            }
            differ
        };
        let first = strict(&self.verdict);
        let Some(alt) = self.alt.as_ref().filter(|_| !first.is_empty()) else { return first };
        let mut other = self.verdict.clone();
        other.extend(alt.iter().map(|(name, value)| (name.clone(), value.clone())));
        let second = strict(&other);
        if second.is_empty() { second } else { first }
    }
}

fn differences<'a>(told: &Report, expected: impl Iterator<Item = (&'a str, &'a Value)>) -> Vec<(String, Value, Value)> {
    let told = serde_json::to_value(told).unwrap_or_default();
    let said = |name: &str| told.get(name).cloned().unwrap_or_default();
    let differ = expected.filter(|(name, value)| said(name) != **value);
    differ.map(|(name, value)| (name.to_owned(), said(name), value.clone())).collect()
}

/// The bundled cases of which a classifier says something else than is expected.
pub fn disagreements(classify: &dyn Fn(&Observation) -> Verdict) -> Vec<Disagreement> {
    let judge = |case: &BundledCase| {
        let told = told(classify, &case.given);
        let fields = case.differences(&told);
        (!fields.is_empty()).then(|| Disagreement { id: case.id.clone(), told, fields })
    };
    bundled().iter().filter_map(judge).collect()
}

/// The rules' own cases of which a classifier says something else than they expect.
pub fn own_disagreements<'a>(
    rules: impl IntoIterator<Item = &'a Rule>,
    classify: &dyn Fn(&Observation) -> Verdict,
) -> Vec<Disagreement> {
    let cases = rules.into_iter().flat_map(|rule| (1_usize..).zip(&rule.cases).map(move |(at, case)| (rule, at, case)));
    let judge = |(rule, at, case): (&Rule, usize, &waybill_domain::verdict::rule::RuleCase)| {
        let told = told(classify, &case.given);
        let mut fields = differences(&told, case.verdict.iter().map(|(name, value)| (name.as_str(), value)));
        if told.kind != case.kind {
            fields.push(("kind".to_owned(), told.kind.as_str().into(), case.kind.as_str().into()));
        }
        (!fields.is_empty()).then(|| Disagreement { id: format!("{}#{at}", rule.id), told, fields })
    };
    cases.filter_map(judge).collect()
}

fn told(classify: &dyn Fn(&Observation) -> Verdict, case: &RecordedCase) -> Report {
    let seen = recorded(case);
    Report::of(&classify(&seen), &seen)
}
