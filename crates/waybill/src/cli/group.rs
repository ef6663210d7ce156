//! `waybill group`.

use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use super::api::Api;
use super::named::Named;
use super::output::{Table, list, member};
use super::reason::{Reason, Switching, Version, put};

const GROUPS: Named = Named { one: "group", many: "groups" };

/// Groups: what keys belong to and sources serve.
#[derive(Debug, Subcommand)]
pub(crate) enum Group {
    /// List the groups.
    List,
    /// Show one group.
    Show(Which),
    /// Make a group.
    Create(Create),
    /// Give a group another name.
    Edit(Edit),
    /// Let a group's keys be used.
    Enable(Switch),
    /// Let a group's keys no longer be used.
    Disable(Switch),
    /// End a group for good; refused while keys or channels refer to it.
    Delete(Switch),
}

/// Which group.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Its id or name.
    group: String,
}

/// Switching a group.
#[derive(Debug, Args)]
pub(crate) struct Switch {
    /// Its id or name.
    group: String,
    #[command(flatten)]
    switching: Switching,
}

/// A new group.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Its name.
    name: String,
    #[command(flatten)]
    reason: Reason,
}

/// An edit of a group.
#[derive(Debug, Args)]
pub(crate) struct Edit {
    /// Its id or name.
    group: String,
    /// Another name.
    #[arg(long)]
    name: String,
    #[command(flatten)]
    version: Version,
    #[command(flatten)]
    reason: Reason,
}

impl Group {
    pub(super) async fn run(self, api: &Api) -> anyhow::Result<()> {
        match self {
            Self::List => listed(api).await,
            Self::Show(which) => GROUPS.show(api, &which.group).await,
            Self::Create(create) => {
                let mut body = Map::new();
                put(&mut body, "name", Some(create.name));
                create.reason.put(&mut body);
                GROUPS.told(api, &api.post(&["groups"], &[], &Value::Object(body)).await?, "created")
            }
            Self::Edit(edit) => {
                let path = ["groups", edit.group.as_str()];
                let mut body = Map::new();
                put(&mut body, "name", Some(edit.name));
                edit.reason.put(&mut body);
                edit.version.put(api, &path, &mut body).await?;
                GROUPS.told(api, &api.patch(&path, &Value::Object(body)).await?, "edited")
            }
            Self::Enable(Switch { group, switching }) => GROUPS.enable(api, &group, &switching).await,
            Self::Disable(Switch { group, switching }) => GROUPS.disable(api, &group, &switching).await,
            Self::Delete(Switch { group, switching }) => GROUPS.end(api, &group, &switching, "deleted").await,
        }
    }
}

async fn listed(api: &Api) -> anyhow::Result<()> {
    let answer = api.get(&["groups"], &[]).await?;
    if api.wants_json() {
        return Ok(api.out().json(&answer)?);
    }
    let mut table = Table::new(&["id", "name", "enabled", "version"]);
    for group in list(&answer, "groups") {
        table.row(["id", "name", "enabled", "version"].map(|name| member(group, name)));
    }
    Ok(api.out().table(&table, "no groups yet; see `waybill group create --help`")?)
}
