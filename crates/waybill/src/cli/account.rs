//! `waybill account`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use super::Usage;
use super::api::Api;
use super::credential::{from_env, from_file, login};
use super::limits::dollars;
use super::named::Named;
use super::offer::Offer;
use super::output::{Table, inner, list, member};
use super::reason::{Reason, Switching, Version, put};
use super::upstream;

const ACCOUNTS: Named = Named { one: "account", many: "accounts" };

/// Accounts: logins of subscriptions.
#[derive(Debug, Subcommand)]
pub(crate) enum Account {
    /// List the accounts as they are configured; `waybill accounts` tells what they are doing.
    List,
    /// Show one account.
    Show(Which),
    /// Make an account of a token file, as login tools write it.
    #[command(visible_alias = "create")]
    Import(Import),
    /// Change some of an account's settings.
    Edit(Edit),
    /// Let an account serve.
    Enable(Switch),
    /// Let an account no longer serve.
    Disable(Switch),
    /// End an account for good.
    Delete(Switch),
    /// Ask an account for one token.
    Test(Test),
    /// Ask an account's upstream for its models.
    FetchModels(Which),
}

/// Which account.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Its id or name.
    account: String,
}

/// Switching an account.
#[derive(Debug, Args)]
pub(crate) struct Switch {
    /// Its id or name.
    account: String,
    #[command(flatten)]
    switching: Switching,
}

/// Trying an account.
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// Its id or name.
    account: String,
    /// The model to ask for; by default the account's first.
    #[arg(long)]
    model: Option<String>,
}

/// Settings that import and edit have in common.
#[derive(Debug, Args)]
struct Settings {
    #[command(flatten)]
    offer: Offer,
    /// What one session may spend on it within a window, in dollars; 0 is unlimited.
    #[arg(long, value_name = "USD", value_parser = dollars)]
    session_usd: Option<f64>,
    /// The window, in seconds; five hours where nothing was said before.
    #[arg(long, value_name = "SECONDS", requires = "session_usd")]
    session_seconds: Option<u32>,
    /// File with its tokens; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "token_env")]
    token_file: Option<PathBuf>,
    /// Environment variable that holds such a file's content, or an access token alone.
    #[arg(long, value_name = "NAME")]
    token_env: Option<String>,
    #[command(flatten)]
    reason: Reason,
}

/// A new account.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Its name.
    name: String,
    /// Its service: claude, codex, gemini or generic.
    #[arg(long, default_value = "generic")]
    platform: String,
    /// Where that is, with or without /v1.
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

/// An edit of an account.
#[derive(Debug, Args)]
pub(crate) struct Edit {
    /// Its id or name.
    account: String,
    /// Another name.
    #[arg(long)]
    name: Option<String>,
    /// Where it is now.
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Whether addresses of private networks are allowed.
    #[arg(long, value_name = "BOOL")]
    allow_private: Option<bool>,
    /// Take its tokens away.
    #[arg(long, conflicts_with_all = ["token_file", "token_env"])]
    no_token: bool,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    version: Version,
}

impl Settings {
    /// Puts what is given into a body. `held` is the account as it is.
    fn put(self, body: &mut Map<String, Value>, held: &Value) -> anyhow::Result<()> {
        self.offer.put(body, held)?;
        match self.session_usd {
            Some(0.0) => drop(body.insert("session_window".to_owned(), Value::Null)),
            Some(usd) => {
                let mut window = Map::new();
                put(&mut window, "usd", Some(usd));
                // An edit of the amount alone leaves the window as long as it is.
                let seconds = held.pointer("/session_window/seconds").filter(|seconds| seconds.is_u64()).cloned();
                put(&mut window, "seconds", self.session_seconds.map(Value::from).or(seconds));
                body.insert("session_window".to_owned(), window.into());
            }
            None => {}
        }
        let tokens = match (&self.token_env, &self.token_file) {
            (Some(name), _) => Some(from_env(name)?),
            (None, Some(path)) => Some(from_file(path)?),
            (None, None) => None,
        };
        if let Some(tokens) = tokens {
            body.insert("credential".to_owned(), login(&tokens)?);
        }
        self.reason.put(body);
        Ok(())
    }
}

impl Account {
    pub(super) async fn run(self, api: &Api) -> anyhow::Result<()> {
        match self {
            Self::List => listed(api).await,
            Self::Show(which) => ACCOUNTS.show(api, &which.account).await,
            Self::Import(import) => import.run(api).await,
            Self::Edit(edit) => edit.run(api).await,
            Self::Enable(Switch { account, switching }) => ACCOUNTS.enable(api, &account, &switching).await,
            Self::Disable(Switch { account, switching }) => ACCOUNTS.disable(api, &account, &switching).await,
            Self::Delete(Switch { account, switching }) => ACCOUNTS.end(api, &account, &switching, "deleted").await,
            Self::Test(test) => upstream::tested(&ACCOUNTS, api, &test.account, test.model).await,
            Self::FetchModels(which) => upstream::fetched(&ACCOUNTS, api, &which.account).await,
        }
    }
}

impl Import {
    async fn run(self, api: &Api) -> anyhow::Result<()> {
        let mut body = Map::new();
        put(&mut body, "name", Some(self.name));
        put(&mut body, "platform", Some(self.platform));
        put(&mut body, "base_url", Some(self.base_url));
        put(&mut body, "allow_private", Some(self.allow_private));
        put(&mut body, "enabled", Some(!self.disabled));
        self.settings.put(&mut body, &Value::Null)?;
        if !body.contains_key("credential") {
            return Err(Usage("an account needs its tokens: --token-file or --token-env".to_owned()).into());
        }
        let answer = api.post(&["accounts"], &[], &Value::Object(body)).await?;
        ACCOUNTS.told(api, &answer, "imported")
    }
}

impl Edit {
    async fn run(self, api: &Api) -> anyhow::Result<()> {
        let path = ["accounts", self.account.as_str()];
        let held = api.get(&path, &[]).await?;
        let mut body = Map::new();
        put(&mut body, "name", self.name);
        put(&mut body, "base_url", self.base_url);
        put(&mut body, "allow_private", self.allow_private);
        if self.no_token {
            body.insert("credential".to_owned(), Value::Null);
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
        ACCOUNTS.told(api, &api.patch(&path, &Value::Object(body)).await?, "edited")
    }
}

async fn listed(api: &Api) -> anyhow::Result<()> {
    let answer = api.get(&["accounts"], &[]).await?;
    if api.wants_json() {
        return Ok(api.out().json(&answer)?);
    }
    let head = [
        "id", "name", "enabled", "platform", "tier", "weight", "groups", "models", "at once", "a minute", "base url",
        "version",
    ];
    let mut table = Table::new(&head);
    for account in list(&answer, "accounts") {
        let models: Vec<String> = list(account, "models").iter().map(|model| member(model, "name")).collect();
        let models = if models.len() > 3 { format!("{} models", models.len()) } else { models.join(", ") };
        table.row([
            member(account, "id"),
            member(account, "name"),
            member(account, "enabled"),
            member(account, "platform"),
            member(account, "priority"),
            member(account, "weight"),
            member(account, "group_names"),
            models,
            inner(account, "/limits/max_concurrent"),
            inner(account, "/limits/requests_per_minute"),
            member(account, "base_url"),
            member(account, "version"),
        ]);
    }
    Ok(api.out().table(&table, "no accounts yet; see `waybill account import --help`")?)
}
