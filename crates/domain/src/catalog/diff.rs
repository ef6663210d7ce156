//! What differs between two states of an entity, for people. Hashes of tokens are left out; of credentials only the
//! fingerprint is shown.

use serde::Serialize;
use serde_json::{Map, Value, json};
use waybill_event::config::{Change, ConfigChange, Entity};

use super::Catalog;

/// Fields that follow from others or that tell nothing to people.
const DERIVED: [&str; 4] = ["version", "base_url_revision", "hash", "id"];

/// One field before and after. Absent means that the entity hadn't it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldDiff {
    /// The field.
    pub field: String,
    /// Its value before, as compact JSON; of a credential its fingerprint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<Value>,
    /// Its value after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Value>,
}

/// What a change does to its entity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// Kind of entity.
    pub entity: &'static str,
    /// Its id.
    pub id: String,
    /// Its name; of a policy its scope.
    pub name: String,
    /// What is done.
    pub change: Change,
    /// The fields that change.
    pub fields: Vec<FieldDiff>,
}

fn fields_of<T: Serialize>(state: &T) -> Map<String, Value> {
    match serde_json::to_value(state) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Map::new(),
    }
}

/// Names of the fields in which two states differ; fields that follow from others aren't named.
#[must_use]
pub fn changed_fields<T: Serialize>(old: &T, new: &T) -> Vec<String> {
    compare(&fields_of(old), &fields_of(new)).into_iter().map(|diff| diff.field).collect()
}

fn compare(old: &Map<String, Value>, new: &Map<String, Value>) -> Vec<FieldDiff> {
    let added = new.keys().filter(|field| !old.contains_key(*field));
    old.keys()
        .chain(added)
        .filter(|field| !DERIVED.contains(&field.as_str()) && old.get(*field) != new.get(*field))
        .map(|field| FieldDiff {
            field: field.clone(),
            old: old.get(field).map(|value| shown(field, value)),
            new: new.get(field).map(|value| shown(field, value)),
        })
        .collect()
}

fn shown(field: &str, value: &Value) -> Value {
    match field {
        "credential" => value.get("fingerprint").cloned().unwrap_or(Value::Null),
        // Money as people write it.
        "session_window" => json!({"usd": dollars(value.get("limit")), "seconds": value.get("seconds")}),
        _ => value.clone(),
    }
}

fn dollars(nano: Option<&Value>) -> Value {
    nano.and_then(Value::as_f64).map_or(Value::Null, |nano| (nano / 1e9).into())
}

/// A field of a price, with its amounts as people write them.
fn in_dollars(diff: FieldDiff) -> FieldDiff {
    match diff.field.as_str() {
        "input" | "output" => FieldDiff {
            field: format!("{}_usd", diff.field),
            old: diff.old.map(|nano| dollars(Some(&nano))),
            new: diff.new.map(|nano| dollars(Some(&nano))),
        },
        _ => diff,
    }
}

fn between<T: Entity + Serialize>(old: Option<&T>, new: &T, change: Change) -> Diff {
    let (old, new_fields) = (old.map(fields_of).unwrap_or_default(), fields_of(new));
    let id = new.subject_id();
    let name = new_fields.get("name").and_then(Value::as_str).map_or_else(|| id.clone(), str::to_owned);
    let fields = match change {
        Change::Deleted => Vec::new(),
        Change::Created | Change::Edited | Change::Disabled | Change::Enabled => compare(&old, &new_fields),
    };
    Diff { entity: T::ENTITY, id, name, change, fields }
}

/// What a change does to the catalogue it was decided on.
#[must_use]
pub fn of(catalog: &Catalog, change: &ConfigChange) -> Diff {
    let done = change.change();
    match change {
        ConfigChange::Channel(c) => between(catalog.channels.get(&c.state.id).map(AsRef::as_ref), &c.state, done),
        ConfigChange::Group(c) => between(catalog.groups.get(&c.state.id).map(AsRef::as_ref), &c.state, done),
        ConfigChange::Key(c) => between(catalog.keys.get(&c.state.id).map(AsRef::as_ref), &c.state, done),
        ConfigChange::AdminToken(c) => {
            between(catalog.admin_tokens.get(&c.state.id).map(AsRef::as_ref), &c.state, done)
        }
        ConfigChange::Policy(c) => between(catalog.policies.get(&c.state.scope).map(AsRef::as_ref), &c.state, done),
        ConfigChange::Intervention(c) => {
            between(catalog.interventions.get(&c.state.scope).map(AsRef::as_ref), &c.state, done)
        }
        ConfigChange::Rules(c) => between(catalog.rules.get(&c.state.scope).map(AsRef::as_ref), &c.state, done),
        ConfigChange::Account(c) => between(catalog.accounts.get(&c.state.id).map(AsRef::as_ref), &c.state, done),
        ConfigChange::Price(c) => {
            let diff = between(catalog.prices.get(&c.state.model).map(AsRef::as_ref), &c.state, done);
            Diff { name: c.state.model.clone(), fields: diff.fields.into_iter().map(in_dollars).collect(), ..diff }
        }
        ConfigChange::Route(c) => between(catalog.routes.get(&c.state.id).map(AsRef::as_ref), &c.state, done),
    }
}
