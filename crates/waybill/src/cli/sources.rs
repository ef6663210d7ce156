//! `waybill sources`.

use clap::Args;
use serde_json::Value;

use super::api::Api;
use super::output::{Table, inner, list, member};

/// Show the sources with their live state.
#[derive(Debug, Args)]
pub(crate) struct Sources {}

impl Sources {
    pub(super) async fn run(self, api: &Api) -> anyhow::Result<()> {
        let answer = api.get(&["sources"], &[]).await?;
        if api.wants_json() {
            return Ok(api.out().json(&answer)?);
        }
        let head = [
            "source",
            "name",
            "state",
            "available",
            "groups",
            "tier",
            "weight",
            "breaker",
            "ok/fail/busy",
            "p95 ms",
            "position",
            "age ms",
        ];
        let mut table = Table::new(&head);
        let mut notes = Vec::new();
        for source in list(&answer, "sources") {
            let live = |pointer: &str| inner(source, &format!("/live{pointer}"));
            let counts = if source.pointer("/live/scope").is_some() {
                format!("{}/{}/{}", live("/scope/ok"), live("/scope/fail"), live("/scope/busy"))
            } else {
                "-".to_owned()
            };
            table.row([
                member(source, "source"),
                member(source, "name"),
                member(source, "state"),
                member(source, "available"),
                member(source, "groups"),
                member(source, "priority"),
                member(source, "weight"),
                live("/scope/breaker"),
                counts,
                live("/scope/p95_ms"),
                live("/position"),
                live("/age_ms"),
            ]);
            notes.extend(told(source));
        }
        let mut out = api.out();
        out.table(&table, "no sources yet; see `waybill channel create --help`")?;
        for note in notes {
            out.line(&note)?;
        }
        let read = answer.get("read").unwrap_or(&Value::Null);
        let (config, selector) = (member(read, "config_position"), member(read, "selector_position"));
        out.line(&format!("\nas of configuration {config}, selector {selector}, {}", member(read, "at")))?;
        if let Some(fault) = read.get("selector_fault").and_then(Value::as_str) {
            out.line(&format!("the live state can't be read now: {fault}"))?;
        }
        Ok(())
    }
}

/// Why a source or its models can't be asked, and until when.
fn told(source: &Value) -> Vec<String> {
    let name = format!("{} ({})", member(source, "source"), member(source, "name"));
    let mut notes = Vec::new();
    if source.get("enabled") == Some(&Value::Bool(false)) {
        notes.push(format!("{name}: disabled by an operator"));
    }
    if let Some(disabled) = source.pointer("/live/disabled").filter(|disabled| disabled.is_object()) {
        let (kind, since, recovery) =
            (member(disabled, "kind"), member(disabled, "since"), member(disabled, "recovery"));
        notes.push(format!("{name}: disabled because of {kind} since {since}; comes back by {recovery}"));
        if let Some(probe) = source.get("probe").filter(|probe| probe.is_object()) {
            let (tries, last, next) = (member(probe, "tries"), member(probe, "last"), member(probe, "next_at"));
            notes.push(format!("{name}: {tries} probes so far, the last one: {last}; the next at {next}"));
        }
    }
    notes.extend(source.get("token").and_then(|token| of_token(&name, token)));
    if let Some(scope) = source.pointer("/live/scope") {
        notes.extend(scoped(&name, scope));
    }
    for model in list(source, "models") {
        let name = format!("{name}, {}", member(model, "model"));
        if let Some(scope) = model.get("scope").filter(|scope| scope.is_object()) {
            notes.extend(scoped(&name, scope));
        }
        if let Some(skip) = model.get("skip").and_then(Value::as_str) {
            let until = model.get("returns_at").and_then(Value::as_str);
            let until = until.map_or_else(String::new, |until| format!(" until {until}"));
            notes.push(format!("{name}: passed over, {skip}{until}"));
        }
    }
    notes
}

/// How long an account's access token serves.
fn of_token(name: &str, token: &Value) -> Option<String> {
    let end = token.get("expires_at")?.as_str()?;
    let next = match token.get("refreshable") {
        Some(Value::Bool(true)) => "it is refreshed",
        Some(_) | None => "nothing refreshes it",
    };
    let serves = if token.get("expired") == Some(&Value::Bool(true)) { "expired at" } else { "serves until" };
    Some(format!("{name}: its access token {serves} {end}; {next}"))
}

fn scoped(name: &str, scope: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    let breaker = member(scope, "breaker");
    if breaker != "closed" {
        let (until, opening) = (member(scope, "open_until"), member(scope, "opening"));
        notes.push(format!("{name}: breaker {breaker}, open until {until}, opening {opening}"));
    }
    for block in list(scope, "blocks") {
        let (strength, kind, until) = (member(block, "strength"), member(block, "kind"), member(block, "until"));
        notes.push(format!("{name}: blocked ({strength}) because of {kind} until {until}"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_keeps_a_source_out_is_told() {
        let source = json!({
            "source": "channel:1", "name": "a", "enabled": true,
            "live": {"disabled": null, "scope": {"breaker": "open", "open_until": "T", "opening": "source:channel:1@p:b:4",
                "blocks": [{"strength": "soft", "kind": "rate_limited", "until": "U"}]}},
            "models": [{"model": "m", "skip": "source_breaker_open", "returns_at": "T", "scope": null}],
        });
        assert_eq!(
            told(&source),
            [
                "channel:1 (a): breaker open, open until T, opening source:channel:1@p:b:4",
                "channel:1 (a): blocked (soft) because of rate_limited until U",
                "channel:1 (a), m: passed over, source_breaker_open until T",
            ]
        );
    }

    #[test]
    fn how_long_a_token_serves_is_told() {
        let source = |expired: bool, refreshable: bool| {
            let token = json!({"expires_at": "T", "expired": expired, "refreshable": refreshable});
            told(&json!({"source": "account:1", "name": "a", "enabled": true, "token": token})).join("\n")
        };
        assert_eq!(source(false, true), "account:1 (a): its access token serves until T; it is refreshed");
        assert_eq!(source(true, false), "account:1 (a): its access token expired at T; nothing refreshes it");
    }
}
