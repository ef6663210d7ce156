//! Configuration as it stands: one row per source, group and key. A deleted entity keeps its row.

use serde::Serialize;
use serde_json::Value;
use waybill_event::config::{Change, Changed, Group, Key};
use waybill_event::{ConfigPosition, GroupId, KeyId, LogTime, Source};

use super::Placed;
use super::text::{bounded, bounded_u32, optional, value_without_nul, without_nul};
use crate::catalog::SourceEntity;

/// A source's settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[expect(missing_docs, reason = "each field is the field of the channel's state, which is documented")]
pub struct SourceRow {
    pub source: Source,
    pub name: String,
    pub provider: String,
    pub base_url: String,
    pub base_url_revision: u64,
    pub credential_revision: Option<u64>,
    pub credential_fingerprint: Option<String>,
    /// The models as a list of `{name, upstream?}`.
    pub models: Value,
    pub groups: Vec<GroupId>,
    pub priority: i32,
    pub weight: u32,
    pub max_concurrent: Option<u32>,
    pub requests_per_minute: Option<u32>,
    pub multiplier_milli: u32,
    pub allow_private: bool,
    pub enabled: bool,
    pub deleted: bool,
    pub version: u64,
    pub created_at: LogTime,
    pub changed_at: LogTime,
    /// Position of the last edit.
    pub position: ConfigPosition,
}

impl SourceRow {
    pub(super) fn new(placed: &Placed, change: Change, entity: &SourceEntity, created_at: LogTime) -> Self {
        let (credential, limits) = (entity.credential(), entity.limits());
        Self {
            source: entity.source(),
            name: without_nul(entity.name()),
            provider: without_nul(entity.provider()),
            base_url: without_nul(entity.base_url()),
            base_url_revision: bounded(entity.revisions().base_url),
            credential_revision: credential.map(|c| bounded(c.revision)),
            credential_fingerprint: optional(credential.map(|c| c.fingerprint.as_str())),
            models: value_without_nul(serde_json::to_value(entity.models()).unwrap_or_default()),
            groups: entity.groups().iter().map(|id| GroupId::new(bounded(id.get()))).collect(),
            priority: entity.priority(),
            weight: bounded_u32(entity.weight()),
            max_concurrent: limits.max_concurrent.map(bounded_u32),
            requests_per_minute: limits.requests_per_minute.map(bounded_u32),
            multiplier_milli: bounded_u32(entity.multiplier_milli()),
            allow_private: entity.allow_private(),
            enabled: entity.enabled(),
            deleted: change == Change::Deleted,
            version: bounded(entity.version()),
            created_at,
            changed_at: placed.time(),
            position: ConfigPosition(placed.position.sequence),
        }
    }
}

/// A group's settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[expect(missing_docs, reason = "each field is the field of the group's state, which is documented")]
pub struct GroupRow {
    pub group_id: GroupId,
    pub name: String,
    pub enabled: bool,
    pub deleted: bool,
    pub version: u64,
    pub created_at: LogTime,
    pub changed_at: LogTime,
    /// Position of the last edit.
    pub position: ConfigPosition,
}

impl GroupRow {
    pub(super) fn new(placed: &Placed, changed: &Changed<Group>, created_at: LogTime) -> Self {
        let state = &changed.state;
        Self {
            group_id: GroupId::new(bounded(state.id.get())),
            name: without_nul(&state.name),
            enabled: state.enabled,
            deleted: changed.change == Change::Deleted,
            version: bounded(state.version),
            created_at,
            changed_at: placed.time(),
            position: ConfigPosition(placed.position.sequence),
        }
    }
}

/// A client key's settings, without its hash.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[expect(missing_docs, reason = "each field is the field of the key's state, which is documented")]
pub struct KeyRow {
    pub key_id: KeyId,
    pub name: String,
    pub group_id: GroupId,
    pub prefix: String,
    pub pepper: String,
    pub models: Vec<String>,
    pub expires_at: Option<LogTime>,
    pub enabled: bool,
    pub deleted: bool,
    pub version: u64,
    pub created_at: LogTime,
    pub changed_at: LogTime,
    /// Position of the last edit.
    pub position: ConfigPosition,
}

impl KeyRow {
    pub(super) fn new(placed: &Placed, changed: &Changed<Key>, created_at: LogTime) -> Self {
        let state = &changed.state;
        Self {
            key_id: KeyId::new(bounded(state.id.get())),
            name: without_nul(&state.name),
            group_id: GroupId::new(bounded(state.group.get())),
            prefix: without_nul(&state.prefix),
            pepper: without_nul(&state.hash.pepper),
            models: state.models.iter().map(|model| without_nul(model)).collect(),
            expires_at: state.expires_at,
            enabled: state.enabled,
            deleted: changed.change == Change::Deleted,
            version: bounded(state.version),
            created_at,
            changed_at: placed.time(),
            position: ConfigPosition(placed.position.sequence),
        }
    }
}
