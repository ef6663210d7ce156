//! `waybill status`.

use anyhow::bail;
use clap::Args;
use serde_json::Value;

use super::api::Api;
use super::output::{Table, list, member};

/// Show what the admin role depends on, and how far behind it is. Fails where the role isn't ready.
#[derive(Debug, Args)]
pub(crate) struct Status {}

impl Status {
    pub(super) async fn run(self, api: &Api) -> anyhow::Result<()> {
        let answer = api.get(&["status"], &[]).await?;
        if api.wants_json() {
            api.out().json(&answer)?;
        } else {
            let mut table = Table::new(&["dependency", "ready", "state", "position", "behind", "lag ms"]);
            for dependency in list(&answer, "dependencies") {
                table.row(
                    ["name", "ready", "state", "position", "behind", "lag_ms"].map(|name| member(dependency, name)),
                );
            }
            api.out().table(&table, "nothing is depended on")?;
        }
        if answer.get("ready") == Some(&Value::Bool(true)) { Ok(()) } else { bail!("the admin role isn't ready") }
    }
}
