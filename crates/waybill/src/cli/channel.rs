//! `waybill channel`.

use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use super::Usage;
use super::api::Api;
use super::credential::Credential;
use super::named::Named;
use super::offer::{Offer, models};
use super::output::{Table, inner, list, member};
use super::reason::{Reason, Switching, Version, put};
use super::upstream;

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
    switching: Switching,
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
    #[command(flatten)]
    offer: Offer,
    /// Factor on prices, in thousandths.
    #[arg(long)]
    multiplier_milli: Option<u32>,
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

impl Settings {
    /// Puts what is given into a body. `held` is the channel as it is, for settings that are parts of a member.
    fn put(self, body: &mut Map<String, Value>, held: &Value) -> anyhow::Result<()> {
        put(body, "provider", self.provider);
        self.offer.put(body, held)?;
        put(body, "multiplier_milli", self.multiplier_milli);
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
            Self::Enable(Switch { channel, switching }) => CHANNELS.enable(api, &channel, &switching).await,
            Self::Disable(Switch { channel, switching }) => CHANNELS.disable(api, &channel, &switching).await,
            Self::Delete(Switch { channel, switching }) => CHANNELS.end(api, &channel, &switching, "deleted").await,
            Self::Test(test) => upstream::tested(&CHANNELS, api, &test.channel, test.model).await,
            Self::FetchModels(which) => upstream::fetched(&CHANNELS, api, &which.channel).await,
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
