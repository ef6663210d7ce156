//! A price: what tokens of a model cost.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Entity;
use crate::NanoUsd;

/// What a million tokens of a model cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// The model as upstreams call it.
    pub model: String,
    /// A million tokens of prompts, in nano-dollars.
    pub input: NanoUsd,
    /// A million tokens of answers, in nano-dollars.
    pub output: NanoUsd,
    /// How many edits it has seen, its creation included.
    pub version: u64,
}

impl Entity for Price {
    const ENTITY: &'static str = "price";
    const VERSION: u16 = 1;
    fn subject_id(&self) -> String {
        // Names of models aren't words of subjects.
        format!("model-{}", Uuid::new_v5(&Uuid::NAMESPACE_OID, self.model.as_bytes()).simple())
    }
    fn version(&self) -> u64 {
        self.version
    }
}
