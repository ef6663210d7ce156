//! A route: a client-visible model name that resolves to an ordered list of targets.

use serde::{Deserialize, Serialize};

use super::{Capabilities, Entity};
use crate::{GroupId, RouteId};

/// One target of a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// A model as channels offer it, or the name of another route, whose targets stand here then. The route's own name
    /// means the model of that name.
    pub model: String,
    /// What the target can do, where its sources don't say it themselves.
    #[serde(default, skip_serializing_if = "Capabilities::is_empty")]
    pub capabilities: Capabilities,
}

/// A route's whole state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Its id.
    pub id: RouteId,
    /// What clients ask for, unique among routes that aren't deleted.
    pub name: String,
    /// What serves it, the best first.
    pub targets: Vec<Target>,
    /// The groups it is for; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupId>,
    /// Whether it is used; a disabled route's name is an ordinary model name.
    pub enabled: bool,
    /// How many edits it has seen, its creation included.
    pub version: u64,
}

impl Route {
    /// Whether the route is for this group's keys.
    #[must_use]
    pub fn serves(&self, group: GroupId) -> bool {
        self.enabled && (self.groups.is_empty() || self.groups.contains(&group))
    }
}

impl Entity for Route {
    const ENTITY: &'static str = "route";
    const VERSION: u16 = 1;
    fn subject_id(&self) -> String {
        self.id.to_string()
    }
    fn version(&self) -> u64 {
        self.version
    }
}
