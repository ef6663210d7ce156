//! A source's story in words: what happened to it and what was done to it, a line each.

use serde::Serialize;
use serde_json::Value;
use waybill_event::{ConfigPosition, LogTime, Position, RequestId};

use super::{ConfigHistoryRow, TransitionRow};

/// The attempt that caused a transition, as far as it can be found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CauseAttempt {
    /// Its request.
    pub request: RequestId,
    /// The rule that judged it.
    pub rule: Option<String>,
    /// The upstream's status.
    pub status: Option<u16>,
    /// What the upstream said, masked.
    pub message: Option<String>,
}

/// One thing in a source's story.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoryLine {
    /// When it was.
    pub at: LogTime,
    /// The event's type.
    pub event: String,
    /// The model that it is about; absent for the source as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What it says, in a sentence.
    pub text: String,
    /// Further facts, one each.
    pub details: Vec<String>,
    /// Where it stands in the traffic log, if it stands there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// Where it stands in the configuration log, if it stands there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigPosition>,
    /// The attempt that caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<CauseAttempt>,
}

impl StoryLine {
    /// What happened.
    #[must_use]
    pub fn happened(row: &TransitionRow, cause: Option<CauseAttempt>) -> Self {
        let says = |name: &str| words(row.detail.get(name));
        let until = || row.until.map_or_else(String::new, |until| format!(" until {until}"));
        let text = match row.kind.as_str() {
            "breaker_opened" => format!("breaker opened{}: {} failed, {} went well", until(), says("fail"), says("ok")),
            "breaker_half_opened" => "breaker half open: a probe was claimed".to_owned(),
            "breaker_closed" => "breaker closed".to_owned(),
            "block_set" => format!("blocked ({}) because of {}{}", says("strength"), says("kind"), until()),
            "block_lifted" => "block lifted".to_owned(),
            "source_disabled" => format!("disabled because of {}; comes back by {}", says("kind"), says("recovery")),
            "source_enabled" => "enabled again".to_owned(),
            "probe_finished" => format!("probed: {}", result(&row.detail)),
            "source_checked" => format!("checked by {}: {}", says("by"), result(&row.detail)),
            "credential_refreshed" => format!("credential refreshed ({}); it serves{}", says("why"), until()),
            "credential_refresh_failed" if row.detail.get("final") == Some(&Value::Bool(true)) => {
                "credential can't be refreshed: it takes another login".to_owned()
            }
            "credential_refresh_failed" => {
                format!("credential can't be refreshed for now; the present one serves{}", until())
            }
            other => other.to_owned(),
        };
        let mut details =
            told(&row.detail, &[("upstream_model", "asked for"), ("rule", "by rule"), ("message", "said")]);
        if let Some(cause) = &cause {
            details.push(format!("caused by request {}", cause.request));
            details.extend(cause.rule.as_ref().map(|rule| format!("by rule {rule}")));
            details.extend(cause.status.map(|status| format!("HTTP {status}")));
            details.extend(cause.message.as_ref().map(|message| format!("said: {message}")));
        }
        Self {
            at: row.since,
            event: row.kind.clone(),
            model: row.model.clone(),
            text,
            details,
            position: Some(row.position),
            config: None,
            cause,
        }
    }

    /// What was done by people.
    #[must_use]
    pub fn edited(row: &ConfigHistoryRow) -> Self {
        let by = row.actor_name.clone().or_else(|| row.actor_kind.clone()).unwrap_or_else(|| "nobody".to_owned());
        let fields = if row.changed.is_empty() { String::new() } else { format!(": {}", row.changed.join(", ")) };
        let text = match row.entity.as_str() {
            "intervention" => format!("{} by {by}", by_hand(row)),
            entity => format!("{entity} {} by {by}{fields}", row.change.as_str()),
        };
        let details: Vec<String> = row.reason.iter().map(|reason| format!("because: {reason}")).collect();
        let model = row.state.pointer("/scope/model").and_then(Value::as_str).map(str::to_owned);
        let event = format!("{}_{}", row.entity, row.change.as_str());
        Self { at: row.at, event, model, text, details, position: None, config: Some(row.position), cause: None }
    }
}

/// What an operator did by hand, in words.
fn by_hand(row: &ConfigHistoryRow) -> String {
    let set = |name: &str| row.state.get(name).is_some_and(|value| !value.is_null() && value.as_u64() != Some(0));
    let all = ["held", "reset", "lifted", "probe"];
    // The first one changed what there wasn't before.
    let done = all.into_iter().filter(|name| match row.changed.is_empty() {
        true => set(name),
        false => row.changed.iter().any(|changed| changed == name),
    });
    let word = |name: &str| match (name, row.state.pointer("/held/until").and_then(Value::as_str)) {
        ("held", Some(until)) => format!("held open until {until}"),
        ("held", None) if set("held") => "held open".to_owned(),
        ("held", None) => "closed".to_owned(),
        ("reset", _) => "reset".to_owned(),
        ("lifted", _) => "blocks lifted".to_owned(),
        _ => "probe asked for".to_owned(),
    };
    let words: Vec<String> = done.map(word).collect();
    if words.is_empty() { format!("intervention {}", row.change.as_str()) } else { words.join(", ") }
}

fn result(detail: &Value) -> String {
    let works = if detail.get("ok") == Some(&Value::Bool(true)) { "works" } else { "doesn't work" };
    format!("{works} ({})", words(detail.get("kind")))
}

fn told(detail: &Value, names: &[(&str, &str)]) -> Vec<String> {
    let present = |value: &&Value| !value.is_null() && value.as_u64() != Some(0);
    let line = |(name, words_for): &(&str, &str)| {
        detail.get(*name).filter(present).map(|value| format!("{words_for}: {}", words(Some(value))))
    };
    names.iter().filter_map(line).collect()
}

fn words(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
