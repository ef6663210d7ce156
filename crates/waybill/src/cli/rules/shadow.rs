//! What candidates would have said otherwise.

use clap::Args;

use super::super::api::Api;
use super::super::output::{Table, list, member};

/// Showing differences.
#[derive(Debug, Args)]
pub(crate) struct Shadow {
    /// Of requests that came then or later, as 2026-11-30T12:00:00Z; by default the last day's.
    #[arg(long)]
    since: Option<String>,
    /// At most this many differences.
    #[arg(long, default_value_t = 50)]
    limit: u32,
}

impl Shadow {
    pub(crate) async fn run(self, api: &Api) -> anyhow::Result<()> {
        let parameters = [("since", self.since), ("limit", Some(self.limit.to_string()))];
        let report = api.get(&["rules", "shadow"], &parameters).await?;
        if api.wants_json() {
            return Ok(api.out().json(&report)?);
        }
        let mut table =
            Table::new(&["attempts", "kind", "rule", "candidate's kind", "candidate's rule", "differs", "request"]);
        for difference in list(&report, "differences") {
            let columns = ["attempts", "kind", "rule", "candidate_kind", "candidate_rule", "differs", "request"];
            table.row(columns.map(|column| member(difference, column)));
        }
        let mut out = api.out();
        out.line(&format!("{} failed attempts since {}", member(&report, "failures"), member(&report, "since")))?;
        Ok(out.table(&table, "no candidate would have said otherwise")?)
    }
}
