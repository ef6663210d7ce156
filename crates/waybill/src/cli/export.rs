//! `waybill export`.

use anyhow::Context;
use clap::Args;
use serde_json::{Map, Value};

use super::api::Api;
use super::output::list;

/// Write a manifest of what is configured, for `waybill apply`; without credentials and tokens.
#[derive(Debug, Args)]
pub(crate) struct Export {}

/// What stands above the manifest.
const ABOVE: &str = "# Credentials aren't exported. Where one is to be set, name it with credential_env or credential_file;\n\
                     # left out, it stays as it is. Keys that don't exist are issued anew.\n\n";

impl Export {
    pub(super) async fn run(self, api: &Api) -> anyhow::Result<()> {
        let mut held = Map::new();
        for many in ["groups", "channels", "accounts", "prices", "keys", "routes", "policy"] {
            let answer = api.get(&[many], &[]).await?;
            let member = if many == "policy" { "policies" } else { many };
            held.insert(member.to_owned(), list(&answer, member).to_vec().into());
        }
        let manifest = manifest(&Value::Object(held));
        if api.wants_json() {
            return Ok(api.out().json(&manifest)?);
        }
        let text = toml::to_string(&manifest).context("what is configured can't be written as TOML")?;
        Ok(api.out().line(format!("{ABOVE}{text}").trim_end())?)
    }
}

/// The manifest that says what is there. Settings that say nothing (no limits, no upstream name) are left out.
fn manifest(held: &Value) -> Value {
    let mut manifest = Map::new();
    let mut part = |name: &str, fields: &[&str]| {
        let entries: Vec<Value> = list(held, name).iter().map(|entity| entry(entity, fields)).collect();
        if !entries.is_empty() {
            manifest.insert(name.to_owned(), entries.into());
        }
    };
    part("groups", &["name", "enabled"]);
    let place = ["models", "groups", "priority", "weight", "allow_private", "enabled"];
    // Members that are tables come last, as TOML has it.
    part(
        "channels",
        &[&["name", "provider", "base_url", "multiplier_milli"], &place[..], &["limits", "probe"]].concat(),
    );
    let tables = ["limits", "session_window", "probe"];
    part("accounts", &[&["name", "platform", "base_url"], &place[..], &tables[..]].concat());
    part("prices", &["model", "input_usd", "output_usd"]);
    part("keys", &["name", "group", "models", "expires_at", "enabled", "limits", "user_limits"]);
    part("routes", &["name", "targets", "groups", "enabled"]);
    let policies: Vec<Value> = list(held, "policies").iter().filter_map(|policy| scoped(held, policy)).collect();
    if !policies.is_empty() {
        manifest.insert("policies".to_owned(), policies.into());
    }
    Value::Object(manifest)
}

/// An entity with these of its fields.
fn entry(entity: &Value, fields: &[&str]) -> Value {
    let mut entry = Map::new();
    for field in fields {
        let value = match *field {
            "group" => entity.get("group_name").zip(entity.get("group")).map(|(name, id)| called(name, id)),
            "groups" => Some(groups(entity)),
            "models" => Some(short(list(entity, "models"), "name")),
            "targets" => Some(short(list(entity, "targets"), "model")),
            field => entity.get(field).cloned(),
        };
        // An empty list of targets can't be; an empty one of models or groups says something of a channel.
        let says = |value: &Value| !value.is_null() && value.as_object().is_none_or(|members| !members.is_empty());
        if let Some(value) = value.filter(says) {
            entry.insert((*field).to_owned(), value);
        }
    }
    Value::Object(entry)
}

/// By name, but where that is digits: those would be taken for an id.
fn called(name: &Value, id: &Value) -> Value {
    let plain = name.as_str().filter(|name| name.parse::<u64>().is_err());
    plain.map_or_else(|| id.clone(), Value::from)
}

fn groups(entity: &Value) -> Value {
    let (names, ids) = (list(entity, "group_names"), list(entity, "groups"));
    names.iter().zip(ids).map(|(name, id)| called(name, id)).collect()
}

/// Entries that only have a name, as that name.
fn short(entries: &[Value], name: &str) -> Value {
    let one = |entry: &Value| match entry.as_object() {
        Some(fields) if fields.len() == 1 => fields.get(name).cloned().unwrap_or_else(|| entry.clone()),
        Some(_) | None => entry.clone(),
    };
    entries.iter().map(one).collect()
}

/// A policy that overrides something, its scope by name.
fn scoped(held: &Value, policy: &Value) -> Option<Value> {
    let mut entry = Map::new();
    entry.insert("scope".to_owned(), scope(held, policy.get("scope")?.as_str()?).into());
    for numbers in ["selector", "request"] {
        let set = policy.get(numbers).filter(|set| set.as_object().is_some_and(|set| !set.is_empty()));
        if let Some(set) = set {
            entry.insert(numbers.to_owned(), set.clone());
        }
    }
    (entry.len() > 1).then(|| entry.into())
}

/// `route:3` as `route:smart`.
fn scope(held: &Value, scope: &str) -> String {
    let named = || {
        let (kind, rest) = scope.split_once(':')?;
        let (id, model) = rest.split_once('/').map_or((rest, None), |(id, model)| (id, Some(model)));
        let (all, id) = (list(held, &format!("{kind}s")), id.parse::<u64>().ok()?);
        let found = all.iter().find(|entity| entity.get("id").and_then(Value::as_u64) == Some(id))?;
        // What stands after the first slash would be read as a model.
        let name = found.get("name")?.as_str().filter(|name| name.parse::<u64>().is_err() && !name.contains('/'))?;
        Some(model.map_or_else(|| format!("{kind}:{name}"), |model| format!("{kind}:{name}/{model}")))
    };
    named().unwrap_or_else(|| scope.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_manifest_names_what_is_there_and_no_credential() {
        let held = json!({
            "groups": [{"id": 1, "name": "default", "enabled": true, "version": 1}, {"id": 2, "name": "77", "enabled": false}],
            "channels": [{"id": 3, "name": "main", "provider": "openai", "base_url": "https://a.example", "base_url_revision": 2,
                "credential": {"revision": 1, "fingerprint": "f"}, "models": [{"name": "m"}, {"name": "x", "upstream": "y"}],
                "groups": [1, 2], "group_names": ["default", "77"], "priority": 5, "weight": 1, "limits": {},
                "multiplier_milli": 1000, "allow_private": false, "enabled": true, "version": 3, "source": "channel:3"}],
            "accounts": [{"id": 1, "name": "max", "platform": "claude", "base_url": "https://b.example", "credential": {"revision": 2},
                "models": [], "groups": [], "group_names": [], "priority": 0, "weight": 2, "limits": {"max_concurrent": 5},
                "session_window": {"usd": 2.5, "seconds": 3600}, "allow_private": true, "enabled": false}],
            "prices": [{"model": "m", "input_nano_usd": 3_000_000_000_u64, "input_usd": 3.0, "output_usd": 15.0, "version": 1}],
            "keys": [{"id": 1, "name": "ci", "group": 2, "group_name": "77", "prefix": "wb-key-…", "enabled": true}],
            "routes": [{"id": 4, "name": "smart", "targets": [{"model": "m"}, {"model": "x", "capabilities": {"tools": true}}],
                "groups": [], "enabled": true}],
            "policies": [
                {"scope": "route:4", "selector": {}, "request": {"deadline_ms": 1_000}},
                {"scope": "channel:3/y", "selector": {"model_breaker": {"open_ms": 5}}, "request": {}},
                {"scope": "global", "selector": {}, "request": {}},
            ],
        });
        let manifest = manifest(&held);
        let text = toml::to_string(&manifest).unwrap();
        assert_eq!(super::super::document::parse(&text).unwrap(), manifest, "{text}");
        insta::assert_snapshot!(text);
    }
}
