//! What channels and accounts offer alike, on the command line: models and groups, their place, their limits, and how
//! upkeep asks them of its own accord.

use clap::Args;
use serde_json::{Map, Value};

use super::Usage;
use super::capabilities::split;
use super::limits::Limits;
use super::reason::put;

/// Settings that channels and accounts have in common.
#[derive(Debug, Args)]
pub(crate) struct Offer {
    /// A model it offers, as NAME or NAME=UPSTREAM_NAME; give it once for each. Capabilities may follow:
    /// NAME,context_window=128000,max_body_bytes=1000000,tools=true,vision=true,json_schema=true.
    #[arg(long = "model", value_name = "NAME[=UPSTREAM][,CAPABILITY=VALUE…]")]
    models: Option<Vec<String>>,
    /// A group it serves, by id or name; give it once for each.
    #[arg(long = "group", value_name = "GROUP")]
    groups: Option<Vec<String>>,
    /// Its tier: higher is asked first.
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Its share within the tier; 0 is a last resort.
    #[arg(long)]
    weight: Option<u32>,
    #[command(flatten)]
    limits: Limits,
    /// The model that probes and checks ask for; empty: a suitable one.
    #[arg(long, value_name = "MODEL")]
    probe_model: Option<String>,
    /// How often it is checked while it serves, in seconds; 0 is never.
    #[arg(long, value_name = "SECONDS")]
    check_every: Option<u32>,
    /// By what it is checked: chat (does it answer) or models (can it be reached).
    #[arg(long, value_name = "chat|models")]
    check_by: Option<String>,
    /// Whether checks are evidence like requests of clients.
    #[arg(long, value_name = "BOOL")]
    checks_count: Option<bool>,
}

fn model(text: &str) -> Result<Value, Usage> {
    let (named, capabilities) = split(text)?;
    let (name, upstream) = named.split_once('=').map_or((named, None), |(name, upstream)| (name, Some(upstream)));
    let mut fields = Map::new();
    put(&mut fields, "upstream", upstream);
    put(&mut fields, "capabilities", capabilities);
    if fields.is_empty() {
        return Ok(name.into());
    }
    put(&mut fields, "name", Some(name));
    Ok(fields.into())
}

pub(super) fn models(texts: &[String]) -> Result<Vec<Value>, Usage> {
    texts.iter().map(|text| model(text)).collect()
}

/// A group by id where it is all digits, else by name.
pub(super) fn group(text: &str) -> Value {
    text.parse::<u64>().map_or_else(|_| text.into(), Value::from)
}

impl Offer {
    /// Puts what is given into a body. `held` is the source as it is, for settings that are parts of a member.
    pub(super) fn put(self, body: &mut Map<String, Value>, held: &Value) -> Result<(), Usage> {
        put(body, "models", self.models.as_deref().map(models).transpose()?);
        put(body, "groups", self.groups.map(|groups| groups.iter().map(|g| group(g)).collect::<Vec<_>>()));
        put(body, "priority", self.priority);
        put(body, "weight", self.weight);
        put(body, "limits", self.limits.member(held));
        let mut probe = held.get("probe").and_then(Value::as_object).cloned().unwrap_or_default();
        let before = probe.clone();
        match self.probe_model.as_deref() {
            Some("") => drop(probe.remove("model")),
            model => put(&mut probe, "model", model),
        }
        match self.check_every {
            Some(0) => drop(probe.remove("check_every_s")),
            every => put(&mut probe, "check_every_s", every),
        }
        put(&mut probe, "check_by", self.check_by);
        put(&mut probe, "checks_count", self.checks_count);
        if probe != before {
            body.insert("probe".to_owned(), Value::Object(probe));
        }
        Ok(())
    }
}
