//! Scopes as people write them: with ids or names.

use waybill_event::config::{Entity, Group, Key, PolicyScope, Route};
use waybill_event::{GroupId, KeyId, RouteId};

use crate::catalog::{Catalog, Rejection};

/// The scope that a text names: `global`, `provider:NAME`, `group:X`, `route:X`, `key:X`, `channel:X`, `account:X`, or
/// either of these with `/UPSTREAM_MODEL` behind, where X is an id or a name.
///
/// # Errors
/// [`Rejection`] for a text of another form, and for what doesn't exist.
pub fn scope(catalog: &Catalog, text: &str) -> Result<PolicyScope, Rejection> {
    let wrong = || {
        let forms =
            "global, provider:NAME, group:X, route:X, key:X, channel:X, account:X, channel:X/MODEL or account:X/MODEL";
        Rejection::invalid("scope", format!("{text:?} is none of {forms}"))
    };
    if text == "global" {
        return Ok(PolicyScope::Global);
    }
    let (kind, named) = text.split_once(':').filter(|(_, named)| !named.is_empty()).ok_or_else(wrong)?;
    let number = named.parse::<u64>().ok();
    let missing = |entity: &'static str| move || Rejection::NotFound { entity, id: named.to_owned() };
    Ok(match kind {
        "provider" => PolicyScope::Provider { provider: named.to_owned() },
        "group" => {
            let found = number.map(GroupId::new).or_else(|| catalog.group_named(named).map(|group| group.id));
            PolicyScope::Group { group: found.ok_or_else(missing(Group::ENTITY))? }
        }
        "route" => {
            let found = number.map(RouteId::new).or_else(|| catalog.route_named(named).map(|route| route.id));
            PolicyScope::Route { route: found.ok_or_else(missing(Route::ENTITY))? }
        }
        "key" => {
            let found = number.map(KeyId::new).or_else(|| catalog.key_named(named).map(|key| key.id));
            PolicyScope::Key { key: found.ok_or_else(missing(Key::ENTITY))? }
        }
        "channel" | "account" => of_source(catalog, text, named)?,
        _ => return Err(wrong()),
    })
}

/// A source, or a model at one. A source's whole name goes before the reading with a model.
fn of_source(catalog: &Catalog, text: &str, named: &str) -> Result<PolicyScope, Rejection> {
    let kind = text.strip_suffix(named).unwrap_or_default();
    let source = |name: &str| {
        let text = format!("{kind}{name}");
        // An id may be named also of what is gone: the refusal of that is the command's.
        text.parse().ok().or_else(|| catalog.source_named(&text).filter(|found| found.to_string().starts_with(kind)))
    };
    if let Some(source) = source(named) {
        return Ok(PolicyScope::Source { source });
    }
    let with_model = named.split_once('/').filter(|(_, model)| !model.is_empty());
    let found = with_model.and_then(|(name, model)| Some((source(name)?, model.to_owned())));
    let missing =
        || Rejection::NotFound { entity: if kind == "account:" { "account" } else { "channel" }, id: named.to_owned() };
    let (source, upstream_model) = found.ok_or_else(missing)?;
    Ok(PolicyScope::Model { source, upstream_model })
}
