//! A group: an access and pricing domain. Keys belong to groups; sources serve groups.

use serde::{Deserialize, Serialize};

use super::Entity;
use crate::GroupId;

/// A group's whole state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its id.
    pub id: GroupId,
    /// Its name, unique among groups that aren't deleted.
    pub name: String,
    /// Whether its keys may be used.
    pub enabled: bool,
    /// How many edits it has seen, its creation included.
    pub version: u64,
}

impl Entity for Group {
    const ENTITY: &'static str = "group";
    const VERSION: u16 = 1;
    fn subject_id(&self) -> String {
        self.id.to_string()
    }
    fn version(&self) -> u64 {
        self.version
    }
}
