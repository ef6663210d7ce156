//! What an operator has done by hand to a source or one of its models: its breaker held open, its breaker reset, its
//! blocks lifted.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Entity;
use crate::{LogTime, Scope};

/// A breaker held open by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HeldOpen {
    /// Until when; without an end until an operator closes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<LogTime>,
}

/// All that operators have done by hand to one scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intervention {
    /// What it covers.
    pub scope: Scope,
    /// Whether its breaker is held open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldOpen>,
    /// The entity's version at which the breaker was last reset: closed, with its window cleared. 0 is never.
    pub reset: u64,
    /// The entity's version at which blocks were last lifted. 0 is never.
    pub lifted: u64,
    /// When a probe was last asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<LogTime>,
    /// How many edits it has seen, its creation included.
    pub version: u64,
}

impl Entity for Intervention {
    const ENTITY: &'static str = "intervention";
    const VERSION: u16 = 1;
    fn subject_id(&self) -> String {
        match &self.scope.model {
            None => self.scope.source.to_string().replace(':', "-"),
            // Names of models aren't words of subjects.
            Some(_) => {
                let name = Uuid::new_v5(&Uuid::NAMESPACE_OID, self.scope.to_string().as_bytes());
                format!("model-{}", name.simple())
            }
        }
    }
    fn version(&self) -> u64 {
        self.version
    }
}
