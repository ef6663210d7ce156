//! What a choice holds, in a stream's delta and in a whole message alike.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::{BodyShape, ErrorFacts};
use crate::json::{self, Text};

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
    #[serde(default)]
    delta: Option<Output>,
    #[serde(default)]
    message: Option<Output>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    finish_reason: Option<Text<'a>>,
}

/// A delta or a message: all that counts of it is whether the model says something there.
struct Output {
    says_something: bool,
}

impl<'de> Deserialize<'de> for Output {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_map(OutputVisitor)
    }
}

struct OutputVisitor;

impl<'de> Visitor<'de> for OutputVisitor {
    type Value = Output;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a delta or a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Output, A::Error> {
        let mut says_something = false;
        while let Some(Text(name)) = map.next_key::<Text<'de>>()? {
            if OUTPUT_FIELDS.contains(&name.as_ref()) {
                let value: &RawValue = map.next_value()?;
                says_something |= json::says_something(value);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Output { says_something })
    }
}

impl<'a> Choice<'a> {
    /// Whether the model said anything here.
    pub(super) fn says_something(&self) -> bool {
        let says = |output: &Option<Output>| output.as_ref().is_some_and(|output| output.says_something);
        says(&self.delta) || says(&self.message) || self.text.is_some_and(json::says_something)
    }

    /// Whether it has the shape of a whole answer's choice.
    pub(super) fn is_whole(&self) -> bool {
        self.message.is_some() || self.text.is_some()
    }

    /// Why the model ended, where that is said.
    pub(super) fn finish_reason(self) -> Option<Cow<'a, str>> {
        self.finish_reason.map(|Text(why)| why)
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
