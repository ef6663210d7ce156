//! `waybill config-history`.

use clap::Args;
use serde_json::Value;

use super::api::Api;
use super::output::{Table, list, member};

/// List the edits of configuration, newest first.
#[derive(Debug, Args)]
pub(crate) struct ConfigHistory {
    /// Of this kind: channel, group, key, admin_token, policy.
    #[arg(long)]
    entity: Option<String>,
    /// Of the entity with this id.
    #[arg(long)]
    id: Option<String>,
    /// Before this position: the last one of the page before.
    #[arg(long, value_name = "POSITION")]
    cursor: Option<u64>,
    /// At most so many.
    #[arg(long, default_value_t = 20)]
    limit: u32,
}

impl ConfigHistory {
    pub(super) async fn run(self, api: &Api) -> anyhow::Result<()> {
        let parameters = [
            ("entity", self.entity),
            ("id", self.id),
            ("cursor", self.cursor.map(|cursor| cursor.to_string())),
            ("limit", Some(self.limit.to_string())),
        ];
        let answer = api.get(&["config-history"], &parameters).await?;
        if api.wants_json() {
            return Ok(api.out().json(&answer)?);
        }
        let head = ["position", "at", "entity", "id", "version", "change", "fields", "by", "reason"];
        let mut table = Table::new(&head);
        for edit in list(&answer, "edits") {
            let by = match edit.get("actor_name").and_then(Value::as_str) {
                Some(name) => name.to_owned(),
                None => member(edit, "actor_kind"),
            };
            let shown = |name: &str| member(edit, name);
            table.row([
                shown("position"),
                shown("at"),
                shown("entity"),
                shown("entity_id"),
                shown("version"),
                shown("change"),
                shown("changed"),
                by,
                shown("reason"),
            ]);
        }
        let mut out = api.out();
        out.table(&table, "no edits")?;
        if let Some(cursor) = answer.get("next_cursor").and_then(Value::as_u64) {
            out.line(&format!("more: --cursor {cursor}"))?;
        }
        Ok(())
    }
}
