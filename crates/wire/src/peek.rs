//! What the gateway must know of a chat request before it plans: read in one pass over the borrowed body, values that
//! aren't asked for are skipped, nothing is rewritten.

mod fields;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;

use serde::de::Deserializer;
use serde_json::value::RawValue;

use crate::json::{self, Scanner, span_of};

/// Longest model name that is taken, in bytes. Names are keys of routing; real ones stay under 120.
pub const MAX_MODEL_BYTES: usize = 256;

/// What a chat request asks for, as far as routing, limits and accounting need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peek<'a> {
    /// The model asked for, with JSON escapes resolved.
    pub model: Cow<'a, str>,
    /// Where the model's value stands in the body, quotes included.
    pub model_span: Range<usize>,
    /// Whether the answer is to be streamed.
    pub stream: bool,
    /// Whether the client asked for the usage chunk of a stream.
    pub include_usage: bool,
    /// The smaller of `max_tokens` and `max_completion_tokens`, in tokens; absent if neither is a whole number.
    pub max_tokens: Option<u64>,
    /// Number of choices asked for; 1 unless said otherwise.
    pub choices: u64,
    /// Whether tools (or the older functions) are offered to the model.
    pub has_tools: bool,
    /// The `messages` value as it stands in the body.
    pub messages: &'a str,
    /// The JSON schema that the answer must match, as it stands in the body.
    pub schema: Option<&'a str>,
    /// `user` as it stands in the body.
    user: Option<&'a str>,
    /// `prompt_cache_key` as it stands in the body.
    prompt_cache_key: Option<&'a str>,
    /// Where edits may be made.
    pub layout: Layout,
}

/// Places in a body where the gateway may edit, as byte offsets; owned, so that it outlives the borrowed peek.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The model's value, quotes included.
    pub model: Range<usize>,
    /// The offset just behind the opening brace of the body.
    pub object_start: usize,
    /// What is there of `stream_options`.
    pub stream_options: StreamOptions,
}

/// The state of `stream_options` in a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamOptions {
    /// The key isn't there.
    Absent,
    /// The key is there with `null`, at this span.
    Null(Range<usize>),
    /// An object without `include_usage`; the span is that of the object.
    Object {
        /// The object with its braces.
        span: Range<usize>,
        /// Whether it has no members.
        empty: bool,
    },
    /// An object with `include_usage`; the span is that of its value.
    Usage(Range<usize>),
    /// Something that isn't an object; left for the upstream to judge.
    Other,
}

/// Why a request body can't be taken. The display text may be shown to the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeekError {
    /// The body is empty.
    #[error("the request body is empty; a JSON object is expected")]
    Empty,
    /// The body isn't UTF-8.
    #[error("the request body isn't valid UTF-8 (byte {at})")]
    NotUtf8 {
        /// Offset of the first byte that doesn't fit.
        at: usize,
    },
    /// The body isn't one JSON object.
    #[error("the request body isn't a valid JSON object: {fault} (line {line}, column {column})")]
    NotJson {
        /// Line, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
        /// What is wrong there; never quotes the body.
        fault: String,
    },
    /// A required field is missing.
    #[error("you must provide `{param}`")]
    Missing {
        /// The field.
        param: &'static str,
    },
    /// A field has another type than the protocol says.
    #[error("`{param}` must be {expected}")]
    WrongType {
        /// The field.
        param: &'static str,
        /// The expected type, with its article.
        expected: &'static str,
    },
    /// A field that routing depends on is there more than once, so that another reader might see another value.
    #[error("`{param}` is given more than once")]
    Duplicate {
        /// The field.
        param: &'static str,
    },
    /// The model's name is empty, too long or has control characters.
    #[error("`model` must be a name of 1 to {MAX_MODEL_BYTES} bytes without control characters")]
    BadModel,
}

impl PeekError {
    /// The request field that the error speaks of, for the error's `param`.
    #[must_use]
    pub fn param(&self) -> Option<&'static str> {
        match self {
            Self::Empty | Self::NotUtf8 { .. } | Self::NotJson { .. } => None,
            Self::Missing { param } | Self::WrongType { param, .. } | Self::Duplicate { param } => Some(param),
            Self::BadModel => Some("model"),
        }
    }
}

impl Peek<'_> {
    /// Whether a message shows an image. It looks through all messages, so ask only where it matters.
    #[must_use]
    pub fn shows_images(&self) -> bool {
        let text = self.messages.as_bytes();
        let parts = [&b"\"image_url\""[..], b"\"input_image\""];
        parts.into_iter().any(|part| memchr::memmem::find(text, part).is_some())
    }

    /// The end user that the client names, if it names one.
    #[must_use]
    pub fn user(&self) -> Option<String> {
        read_name(self.user)
    }

    /// What a conversation begins with and keeps: its messages up to the first of a user's, as they stand in the body.
    #[must_use]
    pub fn beginning(&self) -> &str {
        let mut end = None;
        let mut scanner = Scanner::new(self.messages);
        let _stopped = scanner.array(|element| {
            let message = element.raw()?;
            end = Some(span_of(self.messages, message).end);
            (!is_of_user(message)).then_some(())
        });
        end.and_then(|end| self.messages.get(..end)).unwrap_or(self.messages)
    }

    /// The key under which the client wants its prompts cached, if it names one.
    #[must_use]
    pub fn prompt_cache_key(&self) -> Option<String> {
        read_name(self.prompt_cache_key)
    }
}

/// Reads what a chat request asks for.
///
/// # Errors
/// [`PeekError`] if the body isn't one JSON object with a model name and a message list, or is ambiguous.
pub fn peek(body: &[u8]) -> Result<Peek<'_>, PeekError> {
    // Skipped strings aren't checked by the JSON reader, so the whole body is checked once, here.
    let text = std::str::from_utf8(body).map_err(|fault| PeekError::NotUtf8 { at: fault.valid_up_to() })?;
    if text.trim_ascii().is_empty() {
        return Err(PeekError::Empty);
    }
    let fields = fields::read(text).map_err(|fault| not_json(&fault))?;
    if let Some(param) = fields.duplicate {
        return Err(PeekError::Duplicate { param });
    }
    let raw_model = fields.model.ok_or(PeekError::Missing { param: "model" })?;
    let model = read_model(raw_model)?;
    let messages = fields.messages.ok_or(PeekError::Missing { param: "messages" })?;
    if !json::is_array(messages) {
        return Err(PeekError::WrongType { param: "messages", expected: "an array" });
    }
    let model_span = span_of(text, raw_model);
    let (stream_options, include_usage) = read_stream_options(text, fields.stream_options);
    let object_start = text.find('{').map_or(0, |at| at + 1);
    Ok(Peek {
        model,
        model_span: model_span.clone(),
        stream: read_stream(fields.stream)?,
        include_usage,
        max_tokens: smaller(whole_number(fields.max_tokens), whole_number(fields.max_completion_tokens)),
        choices: whole_number(fields.n).unwrap_or(1).max(1),
        has_tools: fields.tools.is_some_and(json::says_something) || fields.functions.is_some_and(json::says_something),
        messages,
        schema: fields.response_format.and_then(read_schema),
        user: fields.user,
        prompt_cache_key: fields.prompt_cache_key,
        layout: Layout { model: model_span, object_start, stream_options },
    })
}

fn not_json(fault: &serde_json::Error) -> PeekError {
    let text = fault.to_string();
    // The reader quotes the offending scalar in type errors ("invalid type: string \"…\""); clients get no echo.
    let fault_text = match text.split_once(" at line ") {
        _ if fault.is_data() => "an object is expected".to_owned(),
        Some((what, _)) => what.to_owned(),
        None => text,
    };
    PeekError::NotJson { line: fault.line(), column: fault.column(), fault: fault_text }
}

fn read_model(text: &str) -> Result<Cow<'_, str>, PeekError> {
    if !text.starts_with('"') {
        return Err(PeekError::WrongType { param: "model", expected: "a string" });
    }
    let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
    let model = if inner.contains('\\') {
        let owned: String = serde_json::from_str(text).map_err(|_| PeekError::BadModel)?;
        Cow::Owned(owned)
    } else {
        Cow::Borrowed(inner)
    };
    if model.is_empty() || model.len() > MAX_MODEL_BYTES || model.chars().any(char::is_control) {
        return Err(PeekError::BadModel);
    }
    Ok(model)
}

fn is_of_user(message: &str) -> bool {
    let mut of_user = false;
    let read = Scanner::new(message).object(|name, value| {
        let raw = value.raw()?;
        of_user |= name == "role" && raw == "\"user\"";
        Some(())
    });
    read.is_some() && of_user
}

/// A string that says something; anything else is the upstream's to judge.
fn read_name(raw: Option<&str>) -> Option<String> {
    let name: String = serde_json::from_str(raw?).ok()?;
    (!name.is_empty()).then_some(name)
}

fn read_stream(raw: Option<&str>) -> Result<bool, PeekError> {
    match raw {
        None | Some("null" | "false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(PeekError::WrongType { param: "stream", expected: "a boolean" }),
    }
}

fn read_stream_options(text: &str, raw: Option<&str>) -> (StreamOptions, bool) {
    let Some(raw) = raw else { return (StreamOptions::Absent, false) };
    let span = span_of(text, raw);
    if raw == "null" {
        return (StreamOptions::Null(span), false);
    }
    match serde_json::from_str::<Options<'_>>(raw) {
        Ok(Options { include_usage: Some(usage) }) => {
            (StreamOptions::Usage(span_of(text, usage.get())), usage.get() == "true")
        }
        Ok(Options { include_usage: None }) => {
            let empty = !json::says_something(raw);
            (StreamOptions::Object { span, empty }, false)
        }
        Err(_) => (StreamOptions::Other, false),
    }
}

#[derive(serde::Deserialize)]
#[serde(expecting = "an object")]
struct Options<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    include_usage: Option<&'a RawValue>,
}

/// Keeps a present `null` apart from an absent key: its span is needed.
fn present<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<&'de RawValue>, D::Error> {
    serde::Deserialize::deserialize(reader).map(Some)
}

#[derive(serde::Deserialize)]
struct Format<'a> {
    #[serde(borrow)]
    json_schema: Schema<'a>,
}

#[derive(serde::Deserialize)]
struct Schema<'a> {
    #[serde(borrow)]
    schema: &'a RawValue,
}

/// The schema of a `response_format` that asks for one. Anything else is the upstream's to judge.
fn read_schema(format: &str) -> Option<&str> {
    serde_json::from_str::<Format<'_>>(format).ok().map(|format| format.json_schema.schema.get())
}

fn whole_number(raw: Option<&str>) -> Option<u64> {
    raw.and_then(|raw| raw.parse().ok())
}

fn smaller(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
