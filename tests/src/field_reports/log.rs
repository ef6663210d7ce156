//! What the log must hold of each script in the end, and what it must not.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use waybill_testkit::source_text;

use super::Script;
use crate::Bench;

/// How long announcements may take after the last request.
const ANNOUNCED: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Events about sources: type, source, whether a model of it is meant; and how many.
type Counts = BTreeMap<(String, String, bool), usize>;

/// Waits until the log holds what it must, and says what isn't so.
pub(super) async fn check(bench: &Bench, scripts: &[Script], sources: &BTreeMap<String, String>) -> Vec<String> {
    let end = tokio::time::Instant::now() + ANNOUNCED;
    loop {
        let wrong = wrong(&counts(bench).await, scripts, sources);
        if wrong.is_empty() || tokio::time::Instant::now() >= end {
            return wrong;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn counts(bench: &Bench) -> Counts {
    let mut counts = Counts::new();
    for event in bench.fleet.events().await {
        let Some(source) = event.pointer("/data/scope/source") else { continue };
        let of_model = event.pointer("/data/scope/model").is_some_and(Value::is_string);
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        *counts.entry((kind, source_text(source), of_model)).or_default() += 1;
    }
    counts
}

fn wrong(counts: &Counts, scripts: &[Script], sources: &BTreeMap<String, String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for script in scripts {
        for logged in &script.logged {
            let name = script.channel(logged.channel);
            let source = sources.get(&name).cloned().unwrap_or_default();
            let found = counts.get(&(logged.kind.to_owned(), source, logged.of_model)).copied().unwrap_or_default();
            if found != logged.count {
                let whose = if logged.of_model { "models of " } else { "" };
                wrong.push(format!("{}: {found} {} of {whose}{name}, not {}", script.name, logged.kind, logged.count));
            }
        }
    }
    wrong
}
