//! What a choice holds, in a stream's delta and in a whole message alike.

use serde_json::Value;

use crate::error::{BodyShape, ErrorFacts};

/// The field of a delta or message that has its text.
pub(super) const TEXT: &str = "content";

/// The fields of a delta or message in which a model can say something. A role alone says nothing.
pub(super) const OUTPUT_FIELDS: [&str; 12] = [
    TEXT,
    "tool_calls",
    "function_call",
    "refusal",
    "reasoning_content",
    "reasoning",
    "reasoning_text",
    "reasoning_details",
    "thinking",
    "thinking_blocks",
    "audio",
    "images",
];

/// Finish reasons that say the upstream failed within its answer: `error` (OpenRouter), the other from DeepSeek.
const FAILED: [&str; 2] = ["error", "insufficient_system_resource"];

/// The error that a finish reason amounts to, with the reason as its code.
pub(super) fn failure(finish_reason: Option<&str>) -> Option<Box<ErrorFacts>> {
    let code = finish_reason.filter(|why| FAILED.contains(why))?.to_owned();
    Some(Box::new(ErrorFacts { status: 200, code: Some(code), shape: BodyShape::Json, ..ErrorFacts::default() }))
}

/// The same judgement over a tree, for choices whose fields have unexpected types.
pub(super) fn tree_says_something(choice: &Value) -> bool {
    let output = |name: &str| {
        choice
            .get(name)
            .is_some_and(|output| OUTPUT_FIELDS.iter().any(|field| output.get(field).is_some_and(value_says_something)))
    };
    output("delta") || output("message") || choice.get("text").is_some_and(value_says_something)
}

/// Whether a value says something: not null, not `""`, `[]` or `{}`.
fn value_says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}
