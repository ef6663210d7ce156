//! What a choice holds, in a stream's delta and in a whole message alike.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::{BodyShape, ErrorFacts};
use crate::json;

/// The fields of a delta or message in which a model can say something. A role alone says nothing.
const OUTPUT_FIELDS: [&str; 12] = [
    "content",
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

/// A choice as far as it is read, borrowed from the body.
#[derive(Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(borrow, default)]
    delta: Option<Output<'a>>,
    #[serde(borrow, default)]
    message: Option<Output<'a>>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) finish_reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Output<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_calls: Option<&'a RawValue>,
    #[serde(borrow, default)]
    function_call: Option<&'a RawValue>,
    #[serde(borrow, default)]
    refusal: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reasoning_text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reasoning_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    thinking: Option<&'a RawValue>,
    #[serde(borrow, default)]
    thinking_blocks: Option<&'a RawValue>,
    #[serde(borrow, default)]
    audio: Option<&'a RawValue>,
    #[serde(borrow, default)]
    images: Option<&'a RawValue>,
}

impl Output<'_> {
    fn says_something(&self) -> bool {
        let fields = [
            self.content,
            self.tool_calls,
            self.function_call,
            self.refusal,
            self.reasoning_content,
            self.reasoning,
            self.reasoning_text,
            self.reasoning_details,
            self.thinking,
            self.thinking_blocks,
            self.audio,
            self.images,
        ];
        fields.into_iter().flatten().any(json::says_something)
    }
}

impl Choice<'_> {
    /// Whether the model said anything here.
    pub(super) fn says_something(&self) -> bool {
        self.delta.as_ref().is_some_and(Output::says_something)
            || self.message.as_ref().is_some_and(Output::says_something)
            || self.text.is_some_and(json::says_something)
    }

    /// Whether it has the shape of a whole answer's choice.
    pub(super) fn is_whole(&self) -> bool {
        self.message.is_some() || self.text.is_some()
    }
}

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
