//! The facts of one event of a chat stream.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

use super::alike::Places;
use super::body::Body;
use super::choice::{failure, tree_says_something};
use crate::error::{ErrorFacts, is_error};
use crate::json::span_of;
use crate::usage::Usage;

/// What one event says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkFacts<'a> {
    /// `[DONE]`.
    Done,
    /// The upstream says that it failed.
    Error(Box<ErrorFacts>),
    /// The data isn't a JSON object.
    Malformed,
    /// A chunk of an answer.
    Chunk(Chunk<'a>),
}

/// The facts of a chunk of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Whether the model said something: text, tool call, refusal or reasoning. A role alone or empty text isn't.
    pub commits: bool,
    /// The first finish reason given.
    pub finish_reason: Option<Cow<'a, str>>,
    /// Token counts, if reported here.
    pub usage: Option<Usage>,
    /// Whether it carries usage and no choices, as sent to those only who asked for it.
    pub usage_only: bool,
    /// The model that the upstream says it served.
    pub model: Option<Cow<'a, str>>,
}

/// Reads the data of one event of a chat stream.
#[must_use]
pub fn inspect_chunk(data: &[u8]) -> ChunkFacts<'_> {
    read(data.trim_ascii()).0
}

/// Reads the data of one event, without white space around it: also where its text stands, if that alone makes it another
/// one than those before.
pub(super) fn read(data: &[u8]) -> (ChunkFacts<'_>, Option<Places>) {
    if data == b"[DONE]" {
        return (ChunkFacts::Done, None);
    }
    let Ok(text) = std::str::from_utf8(data) else { return (ChunkFacts::Malformed, None) };
    // Without choices it may be an error in one of many shapes: rare, so that it may cost a tree.
    match scan(text) {
        Some((chunk, places)) => (facts_of(chunk), places),
        None => (inspect_tree(text), None),
    }
}

/// The usual shape; nothing where a reader that sees all of it should judge.
fn scan(text: &str) -> Option<(Chunk<'_>, Option<Places>)> {
    let body = Body::scan(text)?;
    let choices = body.choices?;
    let only_text = choices.count == 1 && choices.finish_reason.is_none() && body.usage.is_none();
    let inside = |raw: &str| {
        let Range { start, end } = span_of(text, raw);
        start + 1..end - 1
    };
    let places = choices.text.filter(|_| only_text);
    let places = places.map(|said| Places { text: inside(said), padding: body.padding.map(inside) });
    let chunk = Chunk {
        commits: choices.say_something,
        usage_only: choices.count == 0 && body.usage.is_some(),
        finish_reason: choices.finish_reason.filter(|why| !why.is_empty()).map(Cow::Borrowed),
        usage: body.usage,
        model: body.model.filter(|model| !model.is_empty()).map(Cow::Borrowed),
    };
    Some((chunk, places))
}

fn facts_of(chunk: Chunk<'_>) -> ChunkFacts<'_> {
    match failure(chunk.finish_reason.as_deref()) {
        Some(error) => ChunkFacts::Error(error),
        None => ChunkFacts::Chunk(chunk),
    }
}

/// The slow and tolerant way: fields of unexpected types, names given twice, errors of any shape.
fn inspect_tree(text: &str) -> ChunkFacts<'_> {
    let Ok(tree) = serde_json::from_str::<Value>(text) else { return ChunkFacts::Malformed };
    if is_error(&tree) {
        return ChunkFacts::Error(Box::new(ErrorFacts::read_tree(200, tree)));
    }
    if !tree.is_object() {
        return ChunkFacts::Malformed;
    }
    let owned = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(|text| Cow::Owned(text.to_owned()));
    let none = Vec::new();
    let choices = tree.get("choices").and_then(Value::as_array).unwrap_or(&none);
    let usage = tree.get("usage").and_then(Usage::read);
    facts_of(Chunk {
        commits: choices.iter().any(tree_says_something),
        finish_reason: choices.iter().find_map(|choice| owned(choice.get("finish_reason")?)),
        usage_only: usage.is_some() && choices.is_empty(),
        usage,
        model: tree.get("model").and_then(owned),
    })
}
