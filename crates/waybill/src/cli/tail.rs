//! `waybill tail`.

use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;

use super::api::Api;
use super::output::{inner, list, member, plain};

/// Longest line of the feed that is taken: an event is far smaller.
const LINE_BYTES: usize = 4 * 1024 * 1024;
/// Longest summary of an event that isn't known here, in characters.
const SUMMARY_CHARS: usize = 160;

/// Show the log's events as they are appended.
#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// Only of this source, e.g. channel:1.
    #[arg(long)]
    source: Option<String>,
    /// Only of this request.
    #[arg(long)]
    request: Option<String>,
    /// Only of these types, parted by commas; `config` stands for all edits.
    #[arg(long = "type", value_name = "TYPES")]
    types: Option<String>,
}

impl Tail {
    pub(super) async fn run(self, api: &Api) -> anyhow::Result<()> {
        let parameters = [("source", self.source), ("request", self.request), ("type", self.types)];
        let mut answer = api.stream(&["tail"], &parameters).await?;
        let mut lines = Lines::default();
        while let Some(chunk) = answer.chunk().await.context("the feed broke off")? {
            for data in lines.push(&chunk)? {
                let told: Value = serde_json::from_str(&data).context("the feed told what isn't JSON")?;
                if api.wants_json() {
                    // One event a line, for programs that read lines.
                    api.out().line(&told.to_string())?;
                } else {
                    api.out().line(&summary(&told))?;
                }
            }
        }
        bail!("the feed ended")
    }
}

/// Cuts the feed's bytes into the data of its events.
#[derive(Default)]
struct Lines {
    held: Vec<u8>,
}

impl Lines {
    fn push(&mut self, chunk: &[u8]) -> anyhow::Result<Vec<String>> {
        self.held.extend_from_slice(chunk);
        let mut data = Vec::new();
        while let Some(end) = self.held.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.held.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            if let Some(found) = line.trim_end().strip_prefix("data:") {
                data.push(found.trim_start().to_owned());
            }
        }
        if self.held.len() > LINE_BYTES {
            bail!("the feed's line is too long");
        }
        Ok(data)
    }
}

fn summary(told: &Value) -> String {
    if let Some(lost) = told.get("lost") {
        return format!("… {lost} events were too fast to be told");
    }
    let event = told.get("event").unwrap_or(&Value::Null);
    let kind = member(event, "type");
    let mut text = format!("{}  {:<12} {kind}", member(event, "at"), member(told, "position"));
    if let Some(source) = event.get("source") {
        text.push_str(&format!("  {}:{}", member(source, "kind"), member(source, "id")));
    }
    if let Some(request) = event.get("request").and_then(Value::as_str) {
        text.push_str(&format!("  {request}"));
    }
    let said = said(&kind, event);
    if !said.is_empty() {
        text.push_str(&format!("  {said}"));
    }
    text
}

/// The members of an event that tell most.
fn said(kind: &str, event: &Value) -> String {
    let data = event.get("data").unwrap_or(&Value::Null);
    let pick = |names: &[&str]| {
        let shown = names.iter().filter_map(|name| {
            let value = data.get(*name).filter(|value| !value.is_null())?;
            Some(format!("{name}={}", plain(value)))
        });
        shown.collect::<Vec<_>>().join(" ")
    };
    match kind {
        "request_admitted" => pick(&["model", "stream", "key", "group", "candidate_count"]),
        "attempt_started" => pick(&["attempt", "upstream_model", "why", "priority", "place"]),
        "attempt_finished" => pick(&["attempt", "kind", "status", "took_ms", "rule", "next"]),
        "source_outcome" => pick(&["upstream_model", "kind", "source_health", "model_health", "latency_ms", "block"]),
        "request_finished" => pick(&["state", "status", "attempts", "fallback", "took_ms", "error"]),
        "selection_table" => {
            format!("{} candidates={}", pick(&["group", "model", "hash"]), list(data, "candidates").len())
        }
        "breaker_opened" => pick(&["opening", "ok", "fail", "times", "open_until"]),
        "breaker_half_opened" | "breaker_closed" => pick(&["opening", "since"]),
        "block_set" => pick(&["block", "strength", "kind", "until"]),
        "source_disabled" | "source_enabled" => pick(&["disabling", "kind", "recovery"]),
        "credential_refreshed" => pick(&["credential_revision", "why", "expires_at", "took_ms"]),
        "credential_refresh_failed" => pick(&["final", "code", "message", "expires_at"]),
        "probe_finished" => pick(&["scope", "ok", "kind"]),
        "config_applied" => pick(&["position", "epoch"]),
        "outbox_drained" => pick(&["replica", "boot", "last"]),
        _ if data.get("state").is_some_and(Value::is_object) => {
            let what = match data.pointer("/state/scope") {
                Some(scope) => format!("scope={}", plain(scope.get("source").or(scope.get("kind")).unwrap_or(scope))),
                None => format!("id={} name={}", inner(data, "/state/id"), inner(data, "/state/name")),
            };
            let by = match inner(event, "/actor/name").as_str() {
                "-" => inner(event, "/actor/kind"),
                name => name.to_owned(),
            };
            let changed =
                if list(data, "changed").is_empty() { String::new() } else { format!(" {}", pick(&["changed"])) };
            format!("{what}{changed} by={by}")
        }
        _ => data.to_string().chars().take(SUMMARY_CHARS).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_feed_may_be_cut_anywhere() {
        let feed = "event: event\ndata: {\"a\":\"ü\"}\n\n:\n\ndata:{\"b\":2}\r\n\r\n".as_bytes();
        for cut in 0..feed.len() {
            let mut lines = Lines::default();
            let (first, second) = feed.split_at(cut);
            let mut data = lines.push(first).unwrap();
            data.extend(lines.push(second).unwrap());
            assert_eq!(data, ["{\"a\":\"ü\"}", "{\"b\":2}"], "cut at {cut}");
        }
    }

    #[test]
    fn events_are_told_in_a_line() {
        let check = |told: Value, expected: &str| assert_eq!(summary(&told), expected);
        check(
            json!({"stream": "traffic", "position": "0/0/9/1", "event": {"type": "attempt_finished", "at": "T",
                "request": "r", "source": {"kind": "channel", "id": 1, "rev": 2},
                "data": {"attempt": 1, "kind": "server_error", "status": 500, "took_ms": 8, "rule": "x@v1", "next": "elsewhere"}}}),
            "T  0/0/9/1      attempt_finished  channel:1  r  attempt=1 kind=server_error status=500 took_ms=8 rule=x@v1 next=elsewhere",
        );
        check(
            json!({"stream": "config", "position": "7", "event": {"type": "channel_edited", "at": "T",
                "actor": {"kind": "admin_token", "id": 1, "name": "ann"},
                "data": {"state": {"id": 1, "name": "a"}, "changed": ["weight"]}}}),
            "T  7            channel_edited  id=1 name=a changed=weight by=ann",
        );
        check(
            json!({"stream": "config", "position": "8", "event": {"type": "policy_created", "at": "T",
                "actor": {"kind": "operator"}, "data": {"state": {"scope": {"kind": "global"}}}}}),
            "T  8            policy_created  scope=global by=operator",
        );
        check(json!({"lost": 3}), "… 3 events were too fast to be told");
    }
}
