//! Trying a pasted failure.

use std::io::Read as _;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serde_json::{Map, Value, json};

use super::super::api::Api;
use super::super::output::{Table, plain};
use super::super::reason::put;
use super::super::{Usage, document};

/// Trying what rules say of a failure.
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// Where it came from: global, provider:NAME or channel:X.
    #[arg(long, default_value = "global")]
    scope: String,
    /// The HTTP status.
    #[arg(long)]
    status: Option<u16>,
    /// A header, as `name: value`; give it once for each.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The file with the body as it came; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    /// The protocol that was spoken.
    #[arg(long, default_value = "openai-chat")]
    protocol: String,
    /// Where it ended: status, body200, sse_first, sse_mid or transport; by the status if nothing is said.
    #[arg(long, value_name = "PLACE")]
    place: Option<String>,
    /// Content had already gone to the client.
    #[arg(long)]
    committed: bool,
    /// What else is known, as NAME=VALUE, e.g. error=connect_timeout; give it once for each.
    #[arg(long = "fact", value_name = "NAME=VALUE")]
    facts: Vec<String>,
    /// A layer to try as if it were in force there, JSON or TOML.
    #[arg(long, value_name = "FILE")]
    layer: Option<PathBuf>,
}

impl Test {
    pub(crate) async fn run(self, api: &Api) -> anyhow::Result<()> {
        let place = self.place.clone().unwrap_or_else(|| match self.status {
            Some(200..=299) => "body200".to_owned(),
            Some(_) => "status".to_owned(),
            None => "transport".to_owned(),
        });
        let mut headers = Map::new();
        for header in &self.headers {
            let (name, value) = pair(header, ':')?;
            headers.insert(name.to_lowercase(), value.into());
        }
        let mut facts = Map::new();
        for fact in &self.facts {
            let (name, value) = pair(fact, '=')?;
            facts.insert(name.to_owned(), value.into());
        }
        let given = json!({
            "protocol": self.protocol, "where": place, "status": self.status, "headers": headers,
            "body": self.body()?, "facts": facts, "committed": self.committed,
        });
        let mut body = Map::from_iter([("given".to_owned(), given)]);
        put(&mut body, "scope", Some(self.scope.clone()));
        if let Some(layer) = &self.layer {
            body.insert("live".to_owned(), document::read(layer, "a layer of rules")?);
        }
        let answer = api.post(&["rules", "test"], &[], &Value::Object(body)).await?;
        if api.wants_json() {
            return Ok(api.out().json(&answer)?);
        }
        let verdict = answer.get("verdict").and_then(Value::as_object).cloned().unwrap_or_default();
        let tried = answer.get("tried").and_then(Value::as_object);
        let mut table =
            Table::new(if tried.is_some() { &["", "in force", "with the layer"] } else { &["", "in force"] });
        for (name, value) in &verdict {
            let other = tried.map(|tried| plain(tried.get(name).unwrap_or(&Value::Null)));
            table.row([name.clone(), plain(value)].into_iter().chain(other));
        }
        Ok(api.out().table(&table, "no verdict")?)
    }

    /// The body: a tree where it is JSON, else the text as it came.
    fn body(&self) -> anyhow::Result<Value> {
        let Some(path) = &self.body else { return Ok(Value::Null) };
        let mut text = String::new();
        if path.as_os_str() == "-" {
            std::io::stdin().read_to_string(&mut text).context("can't read the body from standard input")?;
        } else {
            text = std::fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
        }
        Ok(serde_json::from_str(&text).unwrap_or_else(|_| text.into()))
    }
}

fn pair(text: &str, by: char) -> Result<(&str, &str), Usage> {
    let parts = text.split_once(by).map(|(name, value)| (name.trim(), value.trim()));
    parts.filter(|(name, _)| !name.is_empty()).ok_or_else(|| Usage(format!("{text:?} isn't of the form NAME{by}VALUE")))
}
