//! What a model at a source, or a route's target, is declared to be able to do.

use serde::{Deserialize, Serialize};

/// Declared capabilities. What isn't declared isn't known, and unknown is no reason to pass a source over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    /// Tokens of the prompt and the answer together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Largest request body, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_body_bytes: Option<u64>,
    /// Whether it takes tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
    /// Whether it takes images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vision: Option<bool>,
    /// Whether it answers by a JSON schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json_schema: Option<bool>,
}

impl Capabilities {
    /// Whether nothing is declared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These, and for what they don't say the others.
    #[must_use]
    pub fn or(self, others: &Self) -> Self {
        Self {
            context_window: self.context_window.or(others.context_window),
            max_body_bytes: self.max_body_bytes.or(others.max_body_bytes),
            tools: self.tools.or(others.tools),
            vision: self.vision.or(others.vision),
            json_schema: self.json_schema.or(others.json_schema),
        }
    }
}

/// A capability by its name, as answers and events tell what was missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// The context window.
    ContextWindow,
    /// The size of the body.
    MaxBodyBytes,
    /// Tools.
    Tools,
    /// Images.
    Vision,
    /// Answers by a JSON schema.
    JsonSchema,
}

impl Capability {
    /// The capability as it is written in events and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ContextWindow => "context_window",
            Self::MaxBodyBytes => "max_body_bytes",
            Self::Tools => "tools",
            Self::Vision => "vision",
            Self::JsonSchema => "json_schema",
        }
    }
}
