//! Which source can serve which model for which group: one row each.

use serde::Serialize;
use waybill_event::config::Change;
use waybill_event::{ConfigPosition, GroupId, Source};

use super::Placed;
use super::text::{bounded, bounded_u32, without_nul};
use crate::catalog::SourceEntity;

/// One source's ability to serve a model for a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AbilityRow {
    /// The group.
    pub group_id: GroupId,
    /// The model as groups name it.
    pub model: String,
    /// The source.
    pub source: Source,
    /// What is sent to it as model.
    pub upstream_model: String,
    /// Its tier.
    pub priority: i32,
    /// Its share within the tier.
    pub weight: u32,
    /// Whether an operator lets it serve.
    pub enabled: bool,
    /// Whether it has a credential.
    pub has_credential: bool,
    /// Position of the source's last edit.
    pub position: ConfigPosition,
}

impl AbilityRow {
    /// The abilities of a source after an edit; none once it is deleted. A model listed twice counts as first listed.
    pub(super) fn all(placed: &Placed, change: Change, entity: &SourceEntity) -> Vec<Self> {
        if change == Change::Deleted {
            return Vec::new();
        }
        let mut groups: Vec<u64> = entity.groups().iter().map(|id| bounded(id.get())).collect();
        groups.sort_unstable();
        groups.dedup();
        let mut rows: Vec<Self> = Vec::with_capacity(groups.len() * entity.models().len());
        for group in groups {
            let first = rows.len();
            for model in entity.models() {
                let name = without_nul(&model.name);
                if rows.iter().skip(first).any(|row| row.model == name) {
                    continue;
                }
                rows.push(Self {
                    group_id: GroupId::new(group),
                    model: name,
                    source: entity.source(),
                    upstream_model: without_nul(model.upstream_name()),
                    priority: entity.priority(),
                    weight: bounded_u32(entity.weight()),
                    enabled: entity.enabled(),
                    has_credential: entity.credential().is_some(),
                    position: ConfigPosition(placed.position.sequence),
                });
            }
        }
        rows
    }
}
