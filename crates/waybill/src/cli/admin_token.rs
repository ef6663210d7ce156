//! `waybill admin-token`.

use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use super::api::Api;
use super::output::{Table, edited, list, member};
use super::reason::{Reason, Version, put};

/// Tokens of the admin API.
#[derive(Debug, Subcommand)]
pub(crate) enum AdminToken {
    /// List the tokens.
    List,
    /// Make a token; it is shown this once and never again.
    Issue(Issue),
    /// End a token for good.
    Revoke(Revoke),
}

/// A new token.
#[derive(Debug, Args)]
pub(crate) struct Issue {
    /// Its name: what its edits are recorded under.
    name: String,
    #[command(flatten)]
    reason: Reason,
}

/// The end of a token.
#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// Its id.
    id: u64,
    #[command(flatten)]
    version: Version,
}

impl AdminToken {
    pub(super) async fn run(self, api: &Api) -> anyhow::Result<()> {
        match self {
            Self::List => listed(api).await,
            Self::Issue(issue) => issued(api, issue).await,
            Self::Revoke(Revoke { id, version }) => {
                let answer = api.delete(&["admin-tokens", &id.to_string()], &[version.parameter()]).await?;
                if api.wants_json() {
                    return Ok(api.out().json(&answer)?);
                }
                Ok(api.out().line(&edited(&answer, "admin_token", "revoked"))?)
            }
        }
    }
}

async fn issued(api: &Api, issue: Issue) -> anyhow::Result<()> {
    let mut body = Map::new();
    put(&mut body, "name", Some(issue.name));
    issue.reason.put(&mut body);
    let answer = api.post(&["admin-tokens"], &[], &Value::Object(body)).await?;
    if api.wants_json() {
        return Ok(api.out().json(&answer)?);
    }
    let mut out = api.out();
    out.line(&edited(&answer, "admin_token", "issued"))?;
    out.line("It is shown this once and never again:")?;
    Ok(out.line(&member(&answer, "token"))?)
}

async fn listed(api: &Api) -> anyhow::Result<()> {
    let answer = api.get(&["admin-tokens"], &[]).await?;
    if api.wants_json() {
        return Ok(api.out().json(&answer)?);
    }
    let mut table = Table::new(&["id", "name", "token", "version"]);
    for token in list(&answer, "admin_tokens") {
        table.row(["id", "name", "prefix", "version"].map(|name| member(token, name)));
    }
    Ok(api.out().table(&table, "no admin tokens")?)
}
