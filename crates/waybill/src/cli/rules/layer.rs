//! Showing and changing what a scope says otherwise than the shipped rules.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};

use super::super::api::Api;
use super::super::document;
use super::super::output::{Table, inner, list, member};
use super::super::reason::{Reason, put};

/// Whose rules.
#[derive(Debug, Args)]
pub(crate) struct Scope {
    /// What they apply to: global, provider:NAME or channel:X, where X is an id or a name.
    #[arg(long, default_value = "global")]
    scope: String,
}

/// An edit of a scope's rules.
#[derive(Debug, Args)]
pub(crate) struct Edit {
    #[command(flatten)]
    scope: Scope,
    /// The version you edit; refused when the rules have moved on. By default the newest.
    #[arg(long, value_name = "VERSION")]
    expected_version: Option<u64>,
    #[command(flatten)]
    reason: Reason,
}

/// Showing rules.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Only this scope: global, provider:NAME or channel:X.
    #[arg(long)]
    scope: Option<String>,
}

/// Printing the shipped rules.
#[derive(Debug, Args)]
pub(crate) struct Shipped {}

/// Publishing a layer.
#[derive(Debug, Args)]
pub(crate) struct Set {
    /// The layer, JSON or TOML; `-` is standard input.
    file: PathBuf,
    /// Only let it look on: failures are judged by it too, and what differs is recorded.
    #[arg(long)]
    candidate: bool,
    #[command(flatten)]
    edit: Edit,
}

/// Promoting a candidate.
#[derive(Debug, Args)]
pub(crate) struct Promote {
    #[command(flatten)]
    edit: Edit,
}

/// Dropping a candidate.
#[derive(Debug, Args)]
pub(crate) struct Drop {
    #[command(flatten)]
    edit: Edit,
}

/// Reverting.
#[derive(Debug, Args)]
pub(crate) struct Revert {
    /// The version whose layer is wanted; by default the one before the newest. 0 takes everything back.
    #[arg(long, value_name = "VERSION")]
    to: Option<u64>,
    #[command(flatten)]
    edit: Edit,
}

impl Show {
    pub(crate) async fn run(self, api: &Api) -> anyhow::Result<()> {
        let one = self.scope.is_some();
        let shown = api.get(&["rules"], &[("scope", self.scope)]).await?;
        if one || api.wants_json() {
            return Ok(api.out().json(&shown)?);
        }
        let mut table = Table::new(&["scope", "version", "preset", "rules", "kinds", "without", "candidate"]);
        for rules in list(&shown, "rules") {
            let live = rules.get("live").unwrap_or(&Value::Null);
            let count = |name: &str| match live.get(name) {
                Some(Value::Array(items)) => items.len().to_string(),
                Some(Value::Object(fields)) => fields.len().to_string(),
                _ => "-".to_owned(),
            };
            let candidate = rules.get("candidate").is_some_and(|candidate| !candidate.is_null());
            let looks_on = if candidate { "looks on" } else { "-" };
            table.row([
                member(rules, "scope"),
                member(rules, "version"),
                member(live, "preset"),
                count("rules"),
                count("kinds"),
                count("without"),
                looks_on.to_owned(),
            ]);
        }
        let mut out = api.out();
        let shipped = inner(&shown, "/shipped/rules");
        out.line(&format!("{shipped} shipped rules, version {}", inner(&shown, "/shipped/version")))?;
        Ok(out.table(&table, "no scope says otherwise")?)
    }
}

impl Shipped {
    pub(crate) async fn run(self, api: &Api) -> anyhow::Result<()> {
        let shown = api.get(&["rules", "shipped"], &[]).await?;
        Ok(api.out().json(&shown)?)
    }
}

impl Edit {
    /// Sends the edit and tells what it brought.
    async fn send(self, api: &Api, path: &[&str], mut body: Map<String, Value>, done: &str) -> anyhow::Result<()> {
        let scope = self.scope.scope;
        let version = match self.expected_version {
            Some(version) => version.into(),
            None => {
                let held = api.get(&["rules"], &[("scope", Some(scope.clone()))]).await?;
                held.get("version").cloned().unwrap_or_default()
            }
        };
        put(&mut body, "scope", Some(scope.clone()));
        body.insert("expected_version".to_owned(), version);
        self.reason.put(&mut body);
        let body = Value::Object(body);
        let answer = match path {
            ["rules"] => api.put(path, &body).await?,
            path => api.post(path, &[], &body).await?,
        };
        if api.wants_json() {
            return Ok(api.out().json(&answer)?);
        }
        let (version, position) = (inner(&answer, "/rules/version"), member(&answer, "position"));
        let line = if answer.get("changed") == Some(&Value::Bool(false)) {
            format!("rules of {scope}: nothing to change, as of position {position}")
        } else {
            format!("rules of {scope} {done}, version {version}, at position {position}")
        };
        Ok(api.out().line(&line)?)
    }
}

impl Set {
    pub(crate) async fn run(self, api: &Api) -> anyhow::Result<()> {
        let layer = document::read(&self.file, "a layer of rules")?;
        let (member, done) = if self.candidate { ("candidate", "look on as a candidate") } else { ("live", "set") };
        self.edit.send(api, &["rules"], Map::from_iter([(member.to_owned(), layer)]), done).await
    }
}

impl Promote {
    pub(crate) async fn run(self, api: &Api) -> anyhow::Result<()> {
        self.edit.send(api, &["rules", "promote"], Map::new(), "promoted").await
    }
}

impl Drop {
    pub(crate) async fn run(self, api: &Api) -> anyhow::Result<()> {
        let none = Map::from_iter([("candidate".to_owned(), json!(null))]);
        self.edit.send(api, &["rules"], none, "have no candidate any more").await
    }
}

impl Revert {
    pub(crate) async fn run(self, api: &Api) -> anyhow::Result<()> {
        let mut body = Map::new();
        put(&mut body, "to", self.to);
        self.edit.send(api, &["rules", "revert"], body, "reverted").await
    }
}
