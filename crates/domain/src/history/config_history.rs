//! One row per edit: who changed what of which entity, and why. No secret is in it, no hash either.

use serde::Serialize;
use serde_json::Value;
use waybill_event::config::{Change, ConfigChange};
use waybill_event::{Actor, Body, ConfigPosition, LogTime};

use super::Placed;
use super::text::{bounded, optional, value_without_nul, without_nul};

/// An edit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConfigHistoryRow {
    /// Where it stands in `WB_CONFIG`.
    pub position: ConfigPosition,
    /// The event's id.
    pub event_id: String,
    /// The entity's word, e.g. `channel`.
    pub entity: String,
    /// The entity's id, as its subject has it.
    pub entity_id: String,
    /// The entity's version after the edit.
    pub version: u64,
    /// What was done.
    pub change: Change,
    /// Names of the fields that changed.
    pub changed: Vec<String>,
    /// `admin_token` or `operator`.
    pub actor_kind: Option<String>,
    /// The admin token's id.
    pub actor_id: Option<u64>,
    /// The admin token's name.
    pub actor_name: Option<String>,
    /// Why, in the actor's words.
    pub reason: Option<String>,
    /// When.
    pub at: LogTime,
    /// The entity's whole state after the edit, without hashes.
    pub state: Value,
}

impl ConfigHistoryRow {
    pub(super) fn new(placed: &Placed, change: &ConfigChange) -> Self {
        let draft = &placed.event.draft;
        let (entity, entity_id) = change.subject();
        let (actor_kind, actor_id, actor_name) = match &draft.actor {
            None => (None, None, None),
            Some(Actor::Operator) => (Some("operator".to_owned()), None, None),
            Some(Actor::AdminToken { id, name }) => {
                (Some("admin_token".to_owned()), Some(bounded(*id)), Some(without_nul(name)))
            }
        };
        Self {
            position: ConfigPosition(placed.position.sequence),
            event_id: without_nul(&placed.event.identity.to_string()),
            entity: entity.to_owned(),
            entity_id: without_nul(&entity_id),
            version: bounded(change.version()),
            change: change.change(),
            changed: change.changed().iter().map(|name| without_nul(name)).collect(),
            actor_kind,
            actor_id,
            actor_name,
            reason: optional(draft.reason.as_deref()),
            at: placed.time(),
            state: state(&draft.body),
        }
    }
}

fn state(body: &Body) -> Value {
    let mut data = serde_json::to_value(body).unwrap_or_default();
    let mut state = data.get_mut("state").map(Value::take).unwrap_or_default();
    if let Some(hash) = state.get_mut("hash").and_then(Value::as_object_mut) {
        hash.remove("mac");
    }
    value_without_nul(state)
}
