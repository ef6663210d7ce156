//! The facts of an upstream's error body, read within bounds and whatever its content type says.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::bounded::Bounded;
use super::tree;
use crate::json::{MAX_TREE_BYTES, cut, trim};
use crate::mask::mask_except;
use crate::sse::Splitter;

/// Longest code, type, param or reason that is kept, in bytes.
const MAX_WORD_BYTES: usize = 128;
/// Longest message that is kept for classification, in bytes.
const MAX_MESSAGE_BYTES: usize = 2048;

/// What kind of body came with an error status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BodyShape {
    /// Nothing, or white space.
    #[default]
    Empty,
    /// JSON, possibly within one event of a stream.
    Json,
    /// A web page, as edges and proxies send.
    Html,
    /// Other text.
    Text,
    /// Bytes that aren't text, such as a compressed body.
    Binary,
}

/// What an upstream's error says. Strings are bounded; `message` is unmasked and for classification only:
/// what is stored or shown is [`ErrorFacts::evidence`], and `Debug` prints that too.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ErrorFacts {
    /// The status of the response.
    pub status: u16,
    /// The status that the body speaks of, where it does.
    pub status_inner: Option<u16>,
    /// The code, numbers as text.
    pub code: Option<String>,
    /// The `type`, or what other protocols have in its place.
    pub kind: Option<String>,
    /// The request field that it speaks of.
    pub param: Option<String>,
    /// Finer codes beside the code: from details that some providers add, or from within the message.
    pub reasons: Vec<String>,
    /// The message, unmasked.
    pub message: Option<String>,
    /// Where the error stands in the body, members joined with dots; empty for the whole.
    pub at: String,
    /// Where its message stands, likewise.
    pub message_at: String,
    /// Headers that the body carries along, names as they came.
    pub headers: Vec<(String, String)>,
    /// The body and the errors that it wraps, outermost first. They may quote a prompt: for classification only.
    pub trees: Vec<Arc<Value>>,
    /// What kind of body it was.
    pub shape: BodyShape,
}

impl fmt::Debug for ErrorFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErrorFacts")
            .field("status", &self.status)
            .field("status_inner", &self.status_inner)
            .field("code", &self.code)
            .field("kind", &self.kind)
            .field("param", &self.param)
            .field("reasons", &self.reasons)
            .field("message", &self.evidence())
            .field("shape", &self.shape)
            .finish()
    }
}

impl ErrorFacts {
    /// Reads the body of an error response. At most 64 KiB are looked at.
    #[must_use]
    pub fn read(status: u16, content_type: Option<&str>, body: &[u8]) -> Self {
        let whole = body.len() <= MAX_TREE_BYTES;
        let body = trim(body.get(..MAX_TREE_BYTES).unwrap_or(body));
        if body.is_empty() {
            return Self { status, ..Self::default() };
        }
        let text = match std::str::from_utf8(body) {
            Ok(text) => text,
            // The bound may have cut a character; anything else isn't text.
            Err(fault) if !whole && fault.error_len().is_none() => {
                std::str::from_utf8(body.get(..fault.valid_up_to()).unwrap_or_default()).unwrap_or_default()
            }
            Err(_) => return Self { status, shape: BodyShape::Binary, ..Self::default() },
        };
        if let Ok(Bounded(tree)) = serde_json::from_str::<Bounded>(text) {
            return Self::read_tree(status, tree);
        }
        if let Some(tree) = first_event(body) {
            return Self::read_tree(status, tree);
        }
        let html = looks_like_html(text) || content_type.is_some_and(|of| of.starts_with("text/html"));
        let message = if html { title(text) } else { whole.then_some(text) };
        let shape = if html { BodyShape::Html } else { BodyShape::Text };
        Self { status, shape, message: message.map(message_of), ..Self::default() }
    }

    /// Reads facts from a tree of any of the known shapes.
    pub(crate) fn read_tree(status: u16, tree: Value) -> Self {
        let mut facts = Self { status, shape: BodyShape::Json, ..Self::default() };
        tree::read(&mut facts, tree);
        let word = |text: Option<String>| text.map(|text| cut(&text, MAX_WORD_BYTES).to_owned());
        facts.code = word(facts.code);
        facts.kind = word(facts.kind);
        facts.param = word(facts.param);
        facts.reasons = facts.reasons.into_iter().filter_map(|reason| word(Some(reason))).collect();
        facts.message = facts.message.as_deref().map(message_of);
        facts
    }

    /// The message as it may be stored and shown: masked, at most 300 characters.
    #[must_use]
    pub fn evidence(&self) -> Option<String> {
        self.evidence_except(&[])
    }

    /// Like [`ErrorFacts::evidence`], but leaves words that are exactly one of `known`: model names look like tokens.
    #[must_use]
    pub fn evidence_except(&self, known: &[&str]) -> Option<String> {
        self.message.as_deref().map(|message| mask_except(message, known))
    }
}

/// Whether a body is a web page.
pub(crate) fn looks_like_html(text: &str) -> bool {
    let start = cut(text, 512).to_ascii_lowercase();
    start.starts_with("<!doctype html")
        || start.starts_with("<html")
        || (start.starts_with('<') && start.contains("<html"))
}

fn message_of(text: &str) -> String {
    cut(text, MAX_MESSAGE_BYTES).to_owned()
}

fn title(html: &str) -> Option<&str> {
    let lower = html.to_ascii_lowercase();
    let start = lower.find("<title>")? + "<title>".len();
    let length = lower.get(start..)?.find("</title>")?;
    html.get(start..start + length).map(str::trim).filter(|title| !title.is_empty())
}

/// The data of the first event, when the body is an event stream.
fn first_event(body: &[u8]) -> Option<Value> {
    if !(body.starts_with(b"data:") || body.starts_with(b"event:") || body.starts_with(b":")) {
        return None;
    }
    let mut splitter = Splitter::new(MAX_TREE_BYTES);
    splitter.push(&Bytes::copy_from_slice(body));
    while let Ok(Some(frame)) = splitter.next_frame() {
        if !frame.data().is_empty() {
            return serde_json::from_slice::<Bounded>(frame.data()).ok().map(|tree| tree.0);
        }
    }
    serde_json::from_slice::<Bounded>(splitter.finish()?.data()).ok().map(|tree| tree.0)
}
