//! `waybill route`.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::api::Api;
use super::capabilities::split;
use super::named::Named;
use super::offer::group;
use super::output::{Table, list, member};
use super::reason::{Reason, Switching, Version, put};
use super::{Usage, output};

const ROUTES: Named = Named { one: "route", many: "routes" };

/// Routes: client-visible model names with the models that serve them.
#[derive(Debug, Subcommand)]
pub(crate) enum Route {
    /// List the routes.
    List,
    /// Show one route.
    Show(Which),
    /// Make a route.
    Create(Create),
    /// Change a route.
    Edit(Edit),
    /// Use a route.
    Enable(Switch),
    /// Use a route no longer: its name is an ordinary model name then.
    Disable(Switch),
    /// End a route for good; refused while another route names it.
    Delete(Switch),
}

/// Which route.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Its id or name.
    route: String,
}

/// Switching a route.
#[derive(Debug, Args)]
pub(crate) struct Switch {
    /// Its id or name.
    route: String,
    #[command(flatten)]
    switching: Switching,
}

/// A new route.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// What clients ask for.
    name: String,
    /// A model that serves it, or another route, the best first; give it once for each. Capabilities may follow:
    /// MODEL,context_window=128000,max_body_bytes=1000000,tools=true,vision=true,json_schema=true.
    #[arg(long = "target", required = true, value_name = "MODEL[,CAPABILITY=VALUE…]")]
    targets: Vec<String>,
    /// A group it is for, by id or name; give it once for each. Without one it is for all.
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Don't use it yet.
    #[arg(long)]
    disabled: bool,
    #[command(flatten)]
    reason: Reason,
}

/// An edit of a route.
#[derive(Debug, Args)]
pub(crate) struct Edit {
    /// Its id or name.
    route: String,
    /// Another name.
    #[arg(long)]
    name: Option<String>,
    /// All models that serve it, the best first; give it once for each.
    #[arg(long = "target", value_name = "MODEL[,CAPABILITY=VALUE…]")]
    targets: Option<Vec<String>>,
    /// All groups it is for, by id or name; give it once for each.
    #[arg(long = "group", value_name = "GROUP", conflicts_with = "all_groups")]
    groups: Option<Vec<String>>,
    /// It is for all groups.
    #[arg(long)]
    all_groups: bool,
    #[command(flatten)]
    version: Version,
    #[command(flatten)]
    reason: Reason,
}

fn target(text: &str) -> Result<Value, Usage> {
    let (model, capabilities) = split(text)?;
    Ok(match capabilities {
        Some(capabilities) => json!({"model": model, "capabilities": capabilities}),
        None => model.into(),
    })
}

fn targets(texts: &[String]) -> Result<Vec<Value>, Usage> {
    texts.iter().map(|text| target(text)).collect()
}

fn groups(texts: &[String]) -> Vec<Value> {
    texts.iter().map(|text| group(text)).collect()
}

impl Route {
    pub(super) async fn run(self, api: &Api) -> anyhow::Result<()> {
        match self {
            Self::List => listed(api).await,
            Self::Show(which) => ROUTES.show(api, &which.route).await,
            Self::Create(create) => {
                let mut body = Map::new();
                put(&mut body, "name", Some(create.name));
                put(&mut body, "targets", Some(targets(&create.targets)?));
                put(&mut body, "groups", Some(groups(&create.groups)));
                put(&mut body, "enabled", Some(!create.disabled));
                create.reason.put(&mut body);
                ROUTES.told(api, &api.post(&["routes"], &[], &Value::Object(body)).await?, "created")
            }
            Self::Edit(edit) => {
                let path = ["routes", edit.route.as_str()];
                let mut body = Map::new();
                put(&mut body, "name", edit.name);
                put(&mut body, "targets", edit.targets.as_deref().map(targets).transpose()?);
                let wanted = if edit.all_groups { Some(Vec::new()) } else { edit.groups.as_deref().map(groups) };
                put(&mut body, "groups", wanted);
                edit.reason.put(&mut body);
                edit.version.put(api, &path, &mut body).await?;
                ROUTES.told(api, &api.patch(&path, &Value::Object(body)).await?, "edited")
            }
            Self::Enable(Switch { route, switching }) => ROUTES.enable(api, &route, &switching).await,
            Self::Disable(Switch { route, switching }) => ROUTES.disable(api, &route, &switching).await,
            Self::Delete(Switch { route, switching }) => ROUTES.end(api, &route, &switching, "deleted").await,
        }
    }
}

async fn listed(api: &Api) -> anyhow::Result<()> {
    let answer = api.get(&["routes"], &[]).await?;
    if api.wants_json() {
        return Ok(api.out().json(&answer)?);
    }
    let mut table = Table::new(&["id", "name", "targets", "groups", "enabled", "version"]);
    for route in list(&answer, "routes") {
        let models: Vec<String> = list(route, "targets").iter().map(|target| member(target, "model")).collect();
        let names: Vec<String> = list(route, "group_names").iter().map(output::plain).collect();
        let groups = if names.is_empty() { "all".to_owned() } else { names.join(", ") };
        let [id, name, enabled, version] = ["id", "name", "enabled", "version"].map(|name| member(route, name));
        table.row([id, name, models.join(" → "), groups, enabled, version]);
    }
    Ok(api.out().table(&table, "no routes yet; see `waybill route create --help`")?)
}
