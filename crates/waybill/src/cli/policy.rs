//! `waybill policy`.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::Usage;
use super::api::Api;
use super::output::{inner, member};
use super::reason::Reason;

/// The numbers that breakers and blocks go by.
#[derive(Debug, Subcommand)]
pub(crate) enum Policy {
    /// Show the policies in force.
    Get,
    /// Change numbers of a policy.
    Set(Set),
}

/// Changing numbers.
#[derive(Debug, Args)]
pub(crate) struct Set {
    /// What they apply to: `global`, or a source such as `channel:1`.
    #[arg(long, default_value = "global")]
    scope: String,
    /// Numbers, as NAME=VALUE, e.g. source_breaker.open_ms=10000.
    #[arg(required = true, value_name = "NAME=VALUE")]
    numbers: Vec<String>,
    #[command(flatten)]
    reason: Reason,
}

impl Policy {
    pub(super) async fn run(self, api: &Api) -> anyhow::Result<()> {
        let policies = api.get(&["policy"], &[]).await?;
        match self {
            Self::Get if api.wants_json() => Ok(api.out().json(&policies)?),
            Self::Get => {
                let mut out = api.out();
                let global = policies.get("global").unwrap_or(&Value::Null);
                let version = match member(global, "version").as_str() {
                    "0" => "built in".to_owned(),
                    version => format!("version {version}"),
                };
                out.line(&format!("global ({version})"))?;
                out.line(&numbers(global))?;
                for (source, policy) in policies.get("sources").and_then(Value::as_object).into_iter().flatten() {
                    out.line(&format!("{source} (version {})", member(policy, "version")))?;
                    out.line(&numbers(policy))?;
                }
                Ok(())
            }
            Self::Set(set) => set.run(api, &policies).await,
        }
    }
}

fn numbers(policy: &Value) -> String {
    let Some(selector) = policy.get("selector").and_then(Value::as_object) else { return String::new() };
    let mut lines = Vec::new();
    for (name, value) in selector {
        match value.as_object() {
            Some(inside) => lines.extend(inside.iter().map(|(inner, value)| format!("  {name}.{inner} = {value}"))),
            None => lines.push(format!("  {name} = {value}")),
        }
    }
    lines.join("\n")
}

/// Puts a number where `name` says. Only numbers that are there can be changed.
fn change(selector: &mut Value, text: &str) -> Result<(), Usage> {
    let parts = text.split_once('=').and_then(|(name, value)| Some((name.trim(), value.trim().parse::<u64>().ok()?)));
    let (name, value) = parts.ok_or_else(|| Usage(format!("{text:?} isn't of the form NAME=NUMBER")))?;
    let held = selector.pointer_mut(&format!("/{}", name.replace('.', "/"))).filter(|held| held.is_number());
    *held.ok_or_else(|| Usage(format!("there is no number {name:?}; see `waybill policy get`")))? = value.into();
    Ok(())
}

impl Set {
    async fn run(self, api: &Api, policies: &Value) -> anyhow::Result<()> {
        let global = policies.get("global").cloned().unwrap_or_default();
        let own = if self.scope == "global" {
            Some(&global)
        } else {
            policies.get("sources").and_then(|sources| sources.get(&self.scope))
        };
        // A source without numbers of its own begins with the global ones.
        let mut selector = own.unwrap_or(&global).get("selector").cloned().unwrap_or_default();
        for number in &self.numbers {
            change(&mut selector, number)?;
        }
        let version = own.and_then(|own| own.get("version")).cloned().unwrap_or_else(|| 0.into());
        let mut body = json!({"scope": self.scope, "expected_version": version, "selector": selector});
        if let Some(body) = body.as_object_mut() {
            self.reason.put(body);
        }
        let answer = api.put(&["policy"], &body).await?;
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
        let mut selector = json!({"source_breaker": {"open_ms": 1}, "late_after_ms": 2});
        change(&mut selector, "source_breaker.open_ms=500").unwrap();
        change(&mut selector, "late_after_ms = 9").unwrap();
        assert_eq!(selector, json!({"source_breaker": {"open_ms": 500}, "late_after_ms": 9}));
        for wrong in ["open_ms=1", "source_breaker=1", "late_after_ms=x", "late_after_ms"] {
            assert!(change(&mut selector, wrong).is_err(), "{wrong}");
        }
    }
}
