//! `waybill key`.

use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use super::api::Api;
use super::limits::{Limits, both};
use super::named::Named;
use super::offer::group;
use super::output::{Table, edited, list, member};
use super::reason::{Reason, Switching, Version, put};

const KEYS: Named = Named { one: "key", many: "keys" };

/// Client keys.
#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    /// List the keys.
    List,
    /// Show one key.
    Show(Which),
    /// Make a key; it is shown this once and never again.
    Issue(Issue),
    /// Change some of a key's settings.
    Edit(Edit),
    /// Let a key no longer be used, for now.
    Disable(Switch),
    /// Let a key be used again.
    Enable(Switch),
    /// End a key for good.
    Revoke(Switch),
}

/// Which key.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Its id or name.
    key: String,
}

/// Switching a key.
#[derive(Debug, Args)]
pub(crate) struct Switch {
    /// Its id or name.
    key: String,
    #[command(flatten)]
    switching: Switching,
}

/// A new key.
#[derive(Debug, Args)]
pub(crate) struct Issue {
    /// Its name.
    name: String,
    /// The group it belongs to, by id or name.
    #[arg(long)]
    group: String,
    /// A model it may use; give it once for each, or not at all for all of its group's.
    #[arg(long = "model", value_name = "NAME")]
    models: Vec<String>,
    /// From when on it is no longer valid, e.g. 2027-01-01T00:00:00Z.
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    of_users: OfUsers,
    #[command(flatten)]
    reason: Reason,
}

/// What each of a key's users may ask; a request names its user in the field `user`.
#[derive(Debug, Args)]
pub(crate) struct OfUsers {
    /// Requests in flight of one user; 0 is unlimited.
    #[arg(long)]
    user_max_concurrent: Option<u32>,
    /// Requests of one user in any 60 seconds; 0 is unlimited.
    #[arg(long)]
    user_requests_per_minute: Option<u32>,
}

impl OfUsers {
    fn member(&self, held: &Value) -> Option<Value> {
        both(self.user_max_concurrent, self.user_requests_per_minute, held.get("user_limits"))
    }
}

/// An edit of a key.
#[derive(Debug, Args)]
pub(crate) struct Edit {
    /// Its id or name.
    key: String,
    /// Another name.
    #[arg(long)]
    name: Option<String>,
    /// Another group, by id or name.
    #[arg(long)]
    group: Option<String>,
    /// A model it may use; give it once for each.
    #[arg(long = "model", value_name = "NAME", conflicts_with = "all_models")]
    models: Option<Vec<String>>,
    /// Let it use all models of its group.
    #[arg(long)]
    all_models: bool,
    /// From when on it is no longer valid.
    #[arg(long, value_name = "TIME", conflicts_with = "never_expires")]
    expires_at: Option<String>,
    /// Let it be valid for ever.
    #[arg(long)]
    never_expires: bool,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    of_users: OfUsers,
    #[command(flatten)]
    version: Version,
    #[command(flatten)]
    reason: Reason,
}

impl Key {
    pub(super) async fn run(self, api: &Api) -> anyhow::Result<()> {
        match self {
            Self::List => listed(api).await,
            Self::Show(which) => KEYS.show(api, &which.key).await,
            Self::Issue(issue) => issued(api, issue).await,
            Self::Edit(edit) => edit.run(api).await,
            Self::Enable(Switch { key, switching }) => KEYS.enable(api, &key, &switching).await,
            Self::Disable(Switch { key, switching }) => KEYS.disable(api, &key, &switching).await,
            Self::Revoke(Switch { key, switching }) => KEYS.end(api, &key, &switching, "revoked").await,
        }
    }
}

impl Edit {
    async fn run(self, api: &Api) -> anyhow::Result<()> {
        let path = ["keys", self.key.as_str()];
        let mut body = Map::new();
        put(&mut body, "name", self.name);
        put(&mut body, "group", self.group.map(|text| group(&text)));
        put(&mut body, "models", if self.all_models { Some(Vec::new()) } else { self.models });
        put(&mut body, "expires_at", self.expires_at);
        if self.never_expires {
            body.insert("expires_at".to_owned(), Value::Null);
        }
        let held = api.get(&path, &[]).await?;
        put(&mut body, "limits", self.limits.member(&held));
        put(&mut body, "user_limits", self.of_users.member(&held));
        self.reason.put(&mut body);
        self.version.put(api, &path, &mut body).await?;
        KEYS.told(api, &api.patch(&path, &Value::Object(body)).await?, "edited")
    }
}

async fn issued(api: &Api, issue: Issue) -> anyhow::Result<()> {
    let mut body = Map::new();
    put(&mut body, "name", Some(issue.name));
    put(&mut body, "group", Some(group(&issue.group)));
    put(&mut body, "models", Some(issue.models));
    put(&mut body, "expires_at", issue.expires_at);
    put(&mut body, "limits", issue.limits.member(&Value::Null));
    put(&mut body, "user_limits", issue.of_users.member(&Value::Null));
    issue.reason.put(&mut body);
    let answer = api.post(&["keys"], &[], &Value::Object(body)).await?;
    if api.wants_json() {
        return Ok(api.out().json(&answer)?);
    }
    let mut out = api.out();
    out.line(&edited(&answer, "key", "issued"))?;
    out.line("It is shown this once and never again:")?;
    Ok(out.line(&member(&answer, "token"))?)
}

async fn listed(api: &Api) -> anyhow::Result<()> {
    let answer = api.get(&["keys"], &[]).await?;
    if api.wants_json() {
        return Ok(api.out().json(&answer)?);
    }
    let mut table = Table::new(&["id", "name", "enabled", "group", "models", "key", "expires", "version"]);
    let members = ["id", "name", "enabled", "group_name", "models", "prefix", "expires_at", "version"];
    for key in list(&answer, "keys") {
        table.row(members.map(|name| {
            if name == "models" && key.get(name).is_none() { "all".to_owned() } else { member(key, name) }
        }));
    }
    Ok(api.out().table(&table, "no keys yet; see `waybill key issue --help`")?)
}
