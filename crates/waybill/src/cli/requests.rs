//! `waybill requests`.

use clap::Args;

use super::api::Api;
use super::output::{Table, list, member};

/// List requests, newest first.
#[derive(Debug, Args)]
pub(crate) struct Requests {
    /// Of this key, by id or name.
    #[arg(long)]
    key: Option<String>,
    /// Of this group, by id or name.
    #[arg(long)]
    group: Option<String>,
    /// For this model.
    #[arg(long)]
    model: Option<String>,
    /// In this state: open, owner_lost, succeeded, partial, failed, refused, cancelled, unknown.
    #[arg(long)]
    state: Option<String>,
    /// With an attempt at this source, e.g. channel:1.
    #[arg(long)]
    source: Option<String>,
    /// Admitted at this time or later, e.g. 2026-11-29T12:00:00Z.
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Admitted before this time.
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// With this id of the client's own.
    #[arg(long, value_name = "ID")]
    client_request_id: Option<String>,
    /// After this request in the order of the list: the last one of the page before.
    #[arg(long, value_name = "REQUEST")]
    cursor: Option<String>,
    /// At most so many.
    #[arg(long, default_value_t = 20)]
    limit: u32,
    /// What the request's id begins with.
    id: Option<String>,
}

impl Requests {
    pub(super) async fn run(self, api: &Api) -> anyhow::Result<()> {
        let parameters = [
            ("key", self.key),
            ("group", self.group),
            ("model", self.model),
            ("state", self.state),
            ("source", self.source),
            ("from", self.from),
            ("to", self.to),
            ("client_request_id", self.client_request_id),
            ("cursor", self.cursor),
            ("q", self.id),
            ("limit", Some(self.limit.to_string())),
        ];
        let answer = api.get(&["requests"], &parameters).await?;
        if api.wants_json() {
            return Ok(api.out().json(&answer)?);
        }
        let mut table = Table::new(&[
            "request",
            "admitted",
            "state",
            "status",
            "model",
            "served by",
            "attempts",
            "fallback",
            "took ms",
            "error",
        ]);
        for request in list(&answer, "requests") {
            let members = [
                "request_id",
                "admitted_at",
                "state",
                "status",
                "model",
                "served_source",
                "attempts",
                "fallback",
                "took_ms",
                "error",
            ];
            table.row(members.map(|name| member(request, name)));
        }
        let mut out = api.out();
        out.table(&table, "no requests")?;
        if let Some(cursor) = answer.get("next_cursor").and_then(serde_json::Value::as_str) {
            out.line(&format!("more: --cursor {cursor}"))?;
        }
        Ok(())
    }
}
