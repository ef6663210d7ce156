//! `waybill price`.

use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use super::api::Api;
use super::limits::dollars;
use super::output::{Table, list, member};
use super::reason::{Reason, put};

/// What a million tokens of a model cost.
#[derive(Debug, Subcommand)]
pub(crate) enum Price {
    /// List the prices.
    List,
    /// Set a model's price.
    Set(Set),
    /// Take a model's price away.
    Clear(Clear),
}

/// A price.
#[derive(Debug, Args)]
pub(crate) struct Set {
    /// The model as upstreams call it.
    model: String,
    /// A million tokens of prompts, in dollars.
    #[arg(long, value_name = "USD", value_parser = dollars)]
    input: f64,
    /// A million tokens of answers, in dollars.
    #[arg(long, value_name = "USD", value_parser = dollars)]
    output: f64,
    #[command(flatten)]
    reason: Reason,
}

/// Which price.
#[derive(Debug, Args)]
pub(crate) struct Clear {
    /// The model as upstreams call it.
    model: String,
}

impl Price {
    pub(super) async fn run(self, api: &Api) -> anyhow::Result<()> {
        let (answer, model, done) = match self {
            Self::List => return listed(api).await,
            Self::Set(set) => {
                let mut body = Map::new();
                put(&mut body, "model", Some(set.model.clone()));
                put(&mut body, "input_usd", Some(set.input));
                put(&mut body, "output_usd", Some(set.output));
                set.reason.put(&mut body);
                (api.put(&["prices"], &Value::Object(body)).await?, set.model, "set")
            }
            Self::Clear(Clear { model }) => {
                (api.delete(&["prices"], &[("model", Some(model.clone()))]).await?, model, "cleared")
            }
        };
        if api.wants_json() {
            return Ok(api.out().json(&answer)?);
        }
        let position = member(&answer, "position");
        Ok(api.out().line(&format!("price of {model} {done}, at position {position}"))?)
    }
}

async fn listed(api: &Api) -> anyhow::Result<()> {
    let answer = api.get(&["prices"], &[]).await?;
    if api.wants_json() {
        return Ok(api.out().json(&answer)?);
    }
    let mut table = Table::new(&["model", "input $/M tokens", "output $/M tokens", "version"]);
    for price in list(&answer, "prices") {
        table.row(["model", "input_usd", "output_usd", "version"].map(|name| member(price, name)));
    }
    Ok(api.out().table(&table, "no prices yet; see `waybill price set --help`")?)
}
