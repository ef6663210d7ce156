//! What all edits take: why they are made, and which version they are of.

use clap::Args;
use serde_json::{Map, Value};

use super::api::Api;
use super::output::member;

/// Why an edit is made.
#[derive(Debug, Args)]
pub(crate) struct Reason {
    /// Why; recorded with the edit.
    #[arg(long)]
    reason: Option<String>,
}

impl Reason {
    /// Puts the reason into a body.
    pub(super) fn put(self, body: &mut Map<String, Value>) {
        if let Some(reason) = self.reason {
            body.insert("reason".to_owned(), reason.into());
        }
    }
}

/// Which version of an entity is edited.
#[derive(Debug, Args)]
pub(crate) struct Version {
    /// The version you edit; refused when the entity has moved on. By default the newest.
    #[arg(long, value_name = "VERSION")]
    expected_version: Option<u64>,
}

impl Version {
    /// The version, as a parameter.
    pub(super) fn parameter(&self) -> (&'static str, Option<String>) {
        ("expected_version", self.expected_version.map(|version| version.to_string()))
    }

    /// Puts the version into a body. Where none is given, the entity's newest is asked for.
    pub(super) async fn put(&self, api: &Api, path: &[&str], body: &mut Map<String, Value>) -> anyhow::Result<()> {
        let version = match self.expected_version {
            Some(version) => version.into(),
            None => api.get(path, &[]).await?.get("version").cloned().unwrap_or_default(),
        };
        body.insert("expected_version".to_owned(), version);
        Ok(())
    }
}

/// Switching or ending an entity: which version of it, and why.
#[derive(Debug, Args)]
pub(crate) struct Switching {
    #[command(flatten)]
    version: Version,
    #[command(flatten)]
    reason: Reason,
}

impl Switching {
    /// Both, as parameters.
    pub(super) fn parameters(&self) -> [(&'static str, Option<String>); 2] {
        [self.version.parameter(), ("reason", self.reason.reason.clone())]
    }
}

/// Puts a member into a body, if there is a value for it.
pub(super) fn put<T: Into<Value>>(body: &mut Map<String, Value>, name: &str, value: Option<T>) {
    if let Some(value) = value {
        body.insert(name.to_owned(), value.into());
    }
}

/// Shows the lines of an entity: each member with its value.
pub(super) fn members(entity: &Value) -> String {
    let Some(fields) = entity.as_object() else { return String::new() };
    let width = fields.keys().map(|name| name.chars().count()).max().unwrap_or(0);
    let line = |name: &String| format!("{name:<width$}  {}", member(entity, name));
    fields.keys().map(line).collect::<Vec<_>>().join("\n")
}
