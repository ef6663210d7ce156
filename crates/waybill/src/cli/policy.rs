//! `waybill policy`.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::Usage;
use super::api::Api;
use super::output::{inner, list, member};
use super::reason::Reason;

/// The numbers that requests, breakers and blocks go by.
#[derive(Debug, Subcommand)]
pub(crate) enum Policy {
    /// Show the numbers in force, and which scope sets which.
    Get(Get),
    /// Change numbers of a policy.
    Set(Set),
}

/// Showing numbers.
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// Only this scope, and what is in force there.
    #[arg(long)]
    scope: Option<String>,
}

/// Changing numbers.
#[derive(Debug, Args)]
pub(crate) struct Set {
    /// What they apply to: global, provider:NAME, channel:X, channel:X/UPSTREAM_MODEL, group:X, route:X or key:X, where X
    /// is an id or a name.
    #[arg(long, default_value = "global")]
    scope: String,
    /// Numbers, as NAME=VALUE, e.g. selector.source_breaker.open_ms=10000 or request.strategy=least_busy; without a
    /// value the scope no longer sets it.
    #[arg(required = true, value_name = "NAME=VALUE")]
    numbers: Vec<String>,
    #[command(flatten)]
    reason: Reason,
}

impl Policy {
    pub(super) async fn run(self, api: &Api) -> anyhow::Result<()> {
        match self {
            Self::Get(Get { scope }) => {
                let one = scope.is_some();
                let shown = api.get(&["policy"], &[("scope", scope)]).await?;
                if api.wants_json() {
                    return Ok(api.out().json(&shown)?);
                }
                Ok(api.out().line(&if one { told_one(&shown) } else { told_all(&shown) })?)
            }
            Self::Set(set) => set.run(api).await,
        }
    }
}

fn told_all(policies: &Value) -> String {
    let mut lines = vec![told_one(policies.get("global").unwrap_or(&Value::Null))];
    for policy in list(policies, "policies").iter().filter(|policy| member(policy, "scope") != "global") {
        lines.push(format!("{} sets (version {})", member(policy, "scope"), member(policy, "version")));
        lines.extend(numbers(policy));
    }
    lines.join("\n")
}

fn told_one(policy: &Value) -> String {
    let scope = member(policy, "scope");
    let head = match member(policy, "version").as_str() {
        "0" => format!("in force for {scope}, which sets nothing itself"),
        version => format!("in force for {scope} (version {version}; * is set here)"),
    };
    let mut lines = vec![head];
    let set = numbers(policy);
    for number in numbers(policy.get("in_force").unwrap_or(&Value::Null)) {
        lines.push(if set.contains(&number) { format!("{number} *") } else { number });
    }
    lines.join("\n")
}

/// One line for each number.
fn numbers(policy: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for part in ["selector", "request"] {
        flatten(part, policy.get(part).unwrap_or(&Value::Null), &mut lines);
    }
    lines
}

fn flatten(name: &str, value: &Value, lines: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            fields.iter().for_each(|(inner, value)| flatten(&format!("{name}.{inner}"), value, lines))
        }
        Value::String(word) => lines.push(format!("  {name} = {word}")),
        value => lines.push(format!("  {name} = {value}")),
    }
}

/// Puts a number where `text` says, or takes it away. Only what is built in can be set.
fn change(held: &mut Value, built_in: &Value, text: &str) -> Result<(), Usage> {
    let form = || Usage(format!("{text:?} isn't of the form NAME=VALUE"));
    let (name, value) = text.split_once('=').map(|(name, value)| (name.trim(), value.trim())).ok_or_else(form)?;
    let pointer = |name: &str| format!("/{}", name.replace('.', "/"));
    let known = |name: &str| built_in.pointer(&pointer(name)).is_some_and(|value| !value.is_object());
    // The part may be left out where the name alone tells it.
    let full = [name.to_owned(), format!("selector.{name}"), format!("request.{name}")];
    let full = full.into_iter().find(|name| known(name));
    let full = full.ok_or_else(|| Usage(format!("there is no number {name:?}; see `waybill policy get`")))?;
    let mut parts: Vec<&str> = full.split('.').collect();
    let last = parts.pop().unwrap_or_default();
    let mut inside = held;
    for part in parts {
        if !inside.is_object() {
            *inside = Value::Object(Map::new());
        }
        let Some(fields) = inside.as_object_mut() else { return Ok(()) };
        inside = fields.entry(part).or_insert_with(|| Value::Object(Map::new()));
    }
    let Some(fields) = inside.as_object_mut() else { return Ok(()) };
    if value.is_empty() {
        fields.remove(last);
    } else {
        let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        fields.insert(last.to_owned(), value);
    }
    Ok(())
}

impl Set {
    async fn run(self, api: &Api) -> anyhow::Result<()> {
        let policies = api.get(&["policy"], &[]).await?;
        let built_in = policies.get("built_in").cloned().unwrap_or_default();
        let held = api.get(&["policy"], &[("scope", Some(self.scope.clone()))]).await?;
        let part = |name: &str| held.get(name).cloned().unwrap_or_default();
        let mut set = json!({"selector": part("selector"), "request": part("request")});
        for number in &self.numbers {
            change(&mut set, &built_in, number)?;
        }
        let version = held.get("version").cloned().unwrap_or_default();
        if let Some(body) = set.as_object_mut() {
            body.insert("scope".to_owned(), self.scope.clone().into());
            body.insert("expected_version".to_owned(), version);
            self.reason.put(body);
        }
        let answer = api.put(&["policy"], &set).await?;
        if api.wants_json() {
            return Ok(api.out().json(&answer)?);
        }
        let (version, position) = (inner(&answer, "/policy/version"), member(&answer, "position"));
        Ok(api.out().line(&format!("policy of {} set, version {version}, at position {position}", self.scope))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_that_exist_are_changed() {
        let built_in = json!({
            "selector": {"source_breaker": {"open_ms": 1}, "late_after_ms": 2},
            "request": {"strategy": "smooth_wrr", "max_walk": 3},
        });
        let mut set = json!({"selector": {}, "request": {"max_walk": 4}});
        for text in
            ["source_breaker.open_ms=500", "selector.late_after_ms = 9", "request.strategy=least_busy", "max_walk="]
        {
            change(&mut set, &built_in, text).unwrap();
        }
        let expected = json!({
            "selector": {"source_breaker": {"open_ms": 500}, "late_after_ms": 9},
            "request": {"strategy": "least_busy"},
        });
        assert_eq!(set, expected);
        for wrong in ["open_ms=1", "source_breaker=1", "late_after_ms", "request.none=2"] {
            assert!(change(&mut set, &built_in, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_in_force_is_told_number_by_number() {
        let policy = json!({"scope": "route:1", "version": 2, "request": {"max_walk": 4},
            "in_force": {"request": {"max_walk": 4, "strategy": "smooth_wrr"}}});
        let expected = "in force for route:1 (version 2; * is set here)\n  request.max_walk = 4 *\n  request.strategy = smooth_wrr";
        assert_eq!(told_one(&policy), expected);
    }
}
