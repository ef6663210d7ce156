//! Real failures of chat upstreams, as they are observed, and what the shipped rules say of them.

use std::time::Duration;

use serde::Deserialize;
use waybill_domain::observation::{Ending, ErrorFields, Fault, Limit, Observation, Phase, Shape, TransportFault};
use waybill_domain::verdict::{Elsewhere, RuleSet, Verdict, classify};
use waybill_event::FailureKind;
use waybill_event::failure::{BlockVerdict, Health, Recovery, Sent};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    id: String,
    provider: String,
    ending: Seen,
    #[serde(default)]
    error: Fields,
    wait_ms: Option<u64>,
    #[serde(default)]
    committed: bool,
    then: Then,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Seen {
    success: bool,
    client_gone: bool,
    local: bool,
    status: Option<u16>,
    wrong2xx: Option<u16>,
    shape: Option<Shape>,
    fault: Option<Fault>,
    phase: Option<Phase>,
    limit: Option<Limit>,
    sent: Option<Sent>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Fields {
    status: Option<u16>,
    code: Option<String>,
    r#type: Option<String>,
    param: Option<String>,
    message: Option<String>,
}

#[derive(Deserialize, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
struct Then {
    kind: FailureKind,
    elsewhere: Elsewhere,
    source: Health,
    model: Health,
    block: String,
    client: Option<u16>,
}

impl Case {
    fn observation(&self) -> Observation {
        let seen = &self.ending;
        let shape = seen.shape.unwrap_or(Shape::Error);
        let sent = seen.sent.unwrap_or(Sent::Request);
        let ending = if let Some(status) = seen.status {
            Ending::Status { status, shape }
        } else if let Some(status) = seen.wrong2xx {
            Ending::Wrong2xx { status, shape }
        } else if let (Some(fault), Some(phase)) = (seen.fault, seen.phase) {
            Ending::Transport(TransportFault { phase, fault, sent, received: 0, detail: String::new() })
        } else if let Some(limit) = seen.limit {
            Ending::TimedOut { limit, sent }
        } else if seen.client_gone {
            Ending::ClientGone
        } else if seen.local {
            Ending::Local
        } else {
            assert!(seen.success, "{}: how did it end?", self.id);
            Ending::Success
        };
        let error = ErrorFields {
            status: self.error.status,
            code: self.error.code.clone(),
            kind: self.error.r#type.clone(),
            param: self.error.param.clone(),
            message: self.error.message.clone(),
            ..ErrorFields::default()
        };
        let mut seen =
            Observation { error, committed: self.committed, ..Observation::new(self.provider.as_str(), ending) };
        if let Some(ms) = self.wait_ms {
            seen.headers.push("retry-after-ms", &ms.to_string());
        }
        seen
    }
}

fn told(verdict: &Verdict) -> Then {
    let block = match &verdict.block {
        None => "none",
        Some(BlockVerdict::Block { model_only: true, .. }) => "model",
        Some(BlockVerdict::Block { model_only: false, .. }) => "source",
        Some(BlockVerdict::Disable { recovery: Recovery::Probe }) => "until_probe",
        Some(BlockVerdict::Disable { recovery: Recovery::Operator }) => "until_operator",
    };
    Then {
        kind: verdict.kind,
        elsewhere: verdict.retry_elsewhere,
        source: verdict.source_health,
        model: verdict.model_health,
        block: block.to_owned(),
        client: verdict.client.map(|client| client.status),
    }
}

#[test]
fn the_shipped_rules_read_real_failures() {
    let cases: Vec<Case> = include_str!("cases/chat_failures.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|fault| panic!("{fault}: {line}")))
        .collect();
    assert!(cases.len() >= 60, "a representative number of cases");
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let verdict = classify(RuleSet::builtin(), &case.observation());
            let told = told(&verdict);
            (told != case.then).then(|| format!("{} by {}: {told:?}, not {:?}", case.id, verdict.rule, case.then))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_verdict_is_cheap() {
    let message = "the upstream said something long and unremarkable about nothing in particular ".repeat(13);
    let observation = Observation {
        error: ErrorFields { message: Some(message), ..ErrorFields::default() },
        ..Observation::new("openai", Ending::Status { status: 500, shape: Shape::Error })
    };
    let best = (0..200)
        .map(|_| {
            let start = std::time::Instant::now();
            std::hint::black_box(classify(RuleSet::builtin(), std::hint::black_box(&observation)));
            start.elapsed()
        })
        .min();
    // 10 µs in a release build; test builds of this crate are optimised a little only.
    assert!(best < Some(Duration::from_micros(100)), "{best:?}");
    println!("best of 200 verdicts on 1 KB: {best:?}");
}
