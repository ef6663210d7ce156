//! Whether an answer is what a JSON schema asks for. The schema comes from a client, so what a check may cost is bounded
//! before it begins; a schema or an answer beyond those bounds isn't judged at all.

mod cost;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use cost::Cost;

/// Largest schema that is looked at, in bytes.
const MAX_BYTES: usize = 256 << 10;

/// What a check came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// It is what the schema asks for.
    Fits,
    /// It isn't JSON, or not what the schema asks for.
    Differs,
    /// Checking it would cost too much.
    Unjudged,
}

/// A schema that can be checked against.
#[derive(Debug)]
pub struct Schema {
    validator: Validator,
    cost: Cost,
}

impl Schema {
    /// Reads a schema. `None` where it is no schema, refers to other documents or is beyond what is checked: the upstream
    /// judges it then.
    #[must_use]
    pub fn read(text: &[u8]) -> Option<Self> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let schema: Value = serde_json::from_slice(text).ok()?;
        let cost = Cost::of(&schema)?;
        // Patterns are matched in linear time, whatever they are.
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
        let validator = options.build(&schema).ok()?;
        Some(Self { validator, cost })
    }

    /// Judges the text of an answer.
    #[must_use]
    pub fn judge(&self, text: &str) -> Judged {
        let Ok(answer) = serde_json::from_str::<Value>(text) else { return Judged::Differs };
        if !self.cost.allows(&answer) {
            return Judged::Unjudged;
        }
        if self.validator.is_valid(&answer) { Judged::Fits } else { Judged::Differs }
    }
}

#[cfg(test)]
mod tests;
