//! `waybill channel`.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::Usage;
use super::api::Api;
use super::capabilities::split;
use super::credential::Credential;
use super::limits::Limits;
use super::named::Named;
use super::output::{Table, inner, list, member, plain};
use super::reason::{Reason, Version, put};

const CHANNELS: Named = Named { one: "channel", many: "channels" };

/// Channels: API keys at base URLs.
#[derive(Debug, Subcommand)]
pub(crate) enum Channel {
    /// List the channels.
    List,
    /// Show one channel.
    Show(Which),
    /// Make a channel.
    Create(Create),
    /// Change some of a channel's settings.
    Edit(Edit),
    /// Let a channel serve.
    Enable(Switch),
    /// Let a channel no longer serve.
    Disable(Switch),
    /// End a channel for good.
    Delete(Switch),
    /// Ask a channel for one token.
    Test(Test),
    /// Ask a channel's upstream for its models.
    FetchModels(Which),
}

/// Which channel.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Its id or name.
    channel: String,
}

/// Switching a channel.
#[derive(Debug, Args)]
pub(crate) struct Switch {
    /// Its id or name.
    channel: String,
    #[command(flatten)]
    version: Version,
}

/// Trying a channel.
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// Its id or name.
    channel: String,
    /// The model to ask for; by default the channel's first.
    #[arg(long)]
    model: Option<String>,
}

/// Settings that creation and edit have in common.
#[derive(Debug, Args)]
struct Settings {
    /// The provider's kind: openai, azure, openrouter, generic …
    #[arg(long)]
    provider: Option<String>,
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
    /// Factor on prices, in thousandths.
    #[arg(long)]
    multiplier_milli: Option<u32>,
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
    #[command(flatten)]
    credential: Credential,
    #[command(flatten)]
    reason: Reason,
}

/// A new channel.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Its name.
    name: String,
    /// Where it is, with or without /v1.
    #[arg(long, value_name = "URL")]
    base_url: String,
    /// Allow addresses of private networks.
    #[arg(long)]
    allow_private: bool,
    /// Don't let it serve yet.
    #[arg(long)]
    disabled: bool,
    #[command(flatten)]
    settings: Settings,
}

/// An edit of a channel.
#[derive(Debug, Args)]
pub(crate) struct Edit {
    /// Its id or name.
    channel: String,
    /// Another name.
    #[arg(long)]
    name: Option<String>,
    /// Where it is now.
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// A further model; give it once for each.
    #[arg(long = "add-model", value_name = "NAME[=UPSTREAM][,CAPABILITY=VALUE…]", conflicts_with = "models")]
    add_models: Vec<String>,
    /// A model it no longer offers; give it once for each.
    #[arg(long = "remove-model", value_name = "NAME", conflicts_with = "models")]
    remove_models: Vec<String>,
    /// Whether addresses of private networks are allowed.
    #[arg(long, value_name = "BOOL")]
    allow_private: Option<bool>,
    /// Take its credential away.
    #[arg(long, conflicts_with_all = ["credential_env", "credential_file"])]
    no_credential: bool,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    version: Version,
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

impl Settings {
    /// Puts what is given into a body. `held` is the channel as it is, for settings that are parts of a member.
    fn put(self, body: &mut Map<String, Value>, held: &Value) -> anyhow::Result<()> {
        put(body, "provider", self.provider);
        put(body, "models", self.models.as_deref().map(models).transpose()?);
        put(body, "groups", self.groups.map(|groups| groups.iter().map(|g| group(g)).collect::<Vec<_>>()));
        put(body, "priority", self.priority);
        put(body, "weight", self.weight);
        put(body, "multiplier_milli", self.multiplier_milli);
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
        self.credential.put(body)?;
        self.reason.put(body);
        Ok(())
    }
}

impl Channel {
    pub(super) async fn run(self, api: &Api) -> anyhow::Result<()> {
        match self {
            Self::List => listed(api).await,
            Self::Show(which) => CHANNELS.show(api, &which.channel).await,
            Self::Create(create) => {
                let mut body = Map::new();
                put(&mut body, "name", Some(create.name));
                put(&mut body, "base_url", Some(create.base_url));
                put(&mut body, "allow_private", Some(create.allow_private));
                put(&mut body, "enabled", Some(!create.disabled));
                create.settings.put(&mut body, &Value::Null)?;
                let answer = api.post(&["channels"], &[], &Value::Object(body)).await?;
                CHANNELS.told(api, &answer, "created")
            }
            Self::Edit(edit) => edit.run(api).await,
            Self::Enable(Switch { channel, version }) => CHANNELS.enable(api, &channel, &version).await,
            Self::Disable(Switch { channel, version }) => CHANNELS.disable(api, &channel, &version).await,
            Self::Delete(Switch { channel, version }) => CHANNELS.end(api, &channel, &version, "deleted").await,
            Self::Test(test) => tested(api, test).await,
            Self::FetchModels(which) => fetched(api, &which.channel).await,
        }
    }
}

impl Edit {
    async fn run(self, api: &Api) -> anyhow::Result<()> {
        let path = ["channels", self.channel.as_str()];
        let held = api.get(&path, &[]).await?;
        let mut body = Map::new();
        put(&mut body, "name", self.name);
        put(&mut body, "base_url", self.base_url);
        put(&mut body, "allow_private", self.allow_private);
        if self.no_credential {
            body.insert("credential".to_owned(), Value::Null);
        }
        if !self.add_models.is_empty() || !self.remove_models.is_empty() {
            let kept = list(&held, "models").iter();
            let kept = kept.filter(|held| !self.remove_models.contains(&member(held, "name")));
            let models = kept.cloned().chain(models(&self.add_models)?);
            body.insert("models".to_owned(), models.collect());
        }
        self.settings.put(&mut body, &held)?;
        if body.keys().all(|name| name == "reason") {
            return Err(Usage("nothing to change was given".to_owned()).into());
        }
        // What is edited is what was just read, so that parts of a member can't come from two versions.
        if self.version.parameter().1.is_some() {
            self.version.put(api, &path, &mut body).await?;
        } else {
            body.insert("expected_version".to_owned(), held.get("version").cloned().unwrap_or_default());
        }
        let answer = api.patch(&path, &Value::Object(body)).await?;
        CHANNELS.told(api, &answer, "edited")
    }
}

async fn listed(api: &Api) -> anyhow::Result<()> {
    let answer = api.get(&["channels"], &[]).await?;
    if api.wants_json() {
        return Ok(api.out().json(&answer)?);
    }
    let head = [
        "id",
        "name",
        "enabled",
        "provider",
        "tier",
        "weight",
        "groups",
        "models",
        "credential",
        "base url",
        "version",
    ];
    let mut table = Table::new(&head);
    for channel in list(&answer, "channels") {
        let models: Vec<String> = list(channel, "models").iter().map(|model| member(model, "name")).collect();
        let models = if models.len() > 3 { format!("{} models", models.len()) } else { models.join(", ") };
        table.row([
            member(channel, "id"),
            member(channel, "name"),
            member(channel, "enabled"),
            member(channel, "provider"),
            member(channel, "priority"),
            member(channel, "weight"),
            member(channel, "group_names"),
            models,
            inner(channel, "/credential/fingerprint"),
            member(channel, "base_url"),
            member(channel, "version"),
        ]);
    }
    Ok(api.out().table(&table, "no channels yet; see `waybill channel create --help`")?)
}

async fn tested(api: &Api, test: Test) -> anyhow::Result<()> {
    let answer = api.post(&["channels", &test.channel, "test"], &[("model", test.model)], &json!({})).await?;
    if api.wants_json() {
        api.out().json(&answer)?;
    } else {
        let mut text = format!(
            "{} as {}: {} (HTTP {}, {} ms, rule {})",
            member(&answer, "model"),
            member(&answer, "upstream_model"),
            member(&answer, "kind"),
            member(&answer, "status"),
            member(&answer, "took_ms"),
            member(&answer, "rule")
        );
        for (name, pointer) in [
            ("code", "/error/code"),
            ("type", "/error/type"),
            ("message", "/error/message"),
            ("connection", "/transport"),
        ] {
            if let Some(value) = answer.pointer(pointer).filter(|value| !value.is_null()) {
                text.push_str(&format!("\n  {name}: {}", plain(value)));
            }
        }
        api.out().line(&text)?;
    }
    if answer.get("ok") == Some(&Value::Bool(true)) { Ok(()) } else { anyhow::bail!("the channel doesn't work") }
}

async fn fetched(api: &Api, channel: &str) -> anyhow::Result<()> {
    let answer = api.post(&["channels", channel, "fetch-models"], &[], &json!({})).await?;
    if api.wants_json() {
        return Ok(api.out().json(&answer)?);
    }
    let new = list(&answer, "not_offered_yet");
    let mut table = Table::new(&["model", "offered"]);
    for model in list(&answer, "models") {
        table.row([plain(model), plain(&Value::Bool(!new.contains(model)))]);
    }
    Ok(api.out().table(&table, "the upstream lists no models")?)
}
