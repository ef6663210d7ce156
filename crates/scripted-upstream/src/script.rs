//! What the server shall do, as data: written with the builders here or read from JSON.
//!
//! ```json
//! {"sources": {"a": {"calls": [{"status": 429, "body": {"error": {"kind": "rate_limit_exceeded"}}},
//!                              {"body": {"chat": {"words": 12}}, "delay_per_chunk_ms": 20}]}}}
//! ```

mod reply;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use reply::{After, Body, Chunking, Drip, Fault, Framing, Reply, Then};

/// What every source does, by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// Sources by name; a name is one segment of a path. One that isn't here answers as [`Source::default`] does.
    #[serde(default)]
    pub sources: BTreeMap<String, Source>,
}

impl Script {
    /// A script without sources: every path answers sensibly.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a source.
    #[must_use]
    pub fn source(mut self, name: impl Into<String>, source: Source) -> Self {
        self.sources.insert(name.into(), source);
        self
    }

    /// Adds or replaces a source that always replies alike.
    #[must_use]
    pub fn always(self, name: impl Into<String>, reply: Reply) -> Self {
        self.source(name, Source::default().then(reply))
    }
}

/// What one source does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Source {
    /// Replies to chat calls in order; the last one repeats, or all do. When empty, every chat is answered sensibly.
    pub calls: Vec<Reply>,
    /// Whether the replies begin anew after the last one, instead of its repeating.
    pub over_again: bool,
    /// Replies to every chat for one of these models, whatever `calls` says; such a call takes its turn all the same.
    pub by_model: BTreeMap<String, Reply>,
    /// Reply to `GET /v1/models`; the list of `models` when absent.
    pub models_reply: Option<Reply>,
    /// Models that are listed.
    pub models: Vec<String>,
    /// Whether it has a port of its own, which can be closed; otherwise it shares one, by the first segment of the path.
    pub own_port: bool,
    /// The only API key that it takes; every key when absent.
    pub key: Option<String>,
    /// The login at the OAuth server whose access tokens alone it takes; absent where it takes `key`, or every key.
    pub login: Option<String>,
    /// What it says by default.
    pub text: Option<String>,
}

impl Default for Source {
    fn default() -> Self {
        Self {
            calls: Vec::new(),
            over_again: false,
            by_model: BTreeMap::new(),
            models_reply: None,
            models: vec!["demo-small".into(), "demo-large".into()],
            own_port: false,
            key: None,
            login: None,
            text: None,
        }
    }
}

impl Source {
    /// Adds the reply to the next call.
    #[must_use]
    pub fn then(mut self, reply: Reply) -> Self {
        self.calls.push(reply);
        self
    }

    /// Adds the same reply to the next `n` calls.
    #[must_use]
    pub fn times(mut self, n: usize, reply: &Reply) -> Self {
        self.calls.extend(std::iter::repeat_n(reply.clone(), n));
        self
    }

    /// Lets the replies begin anew after the last one.
    #[must_use]
    pub fn over_again(mut self) -> Self {
        self.over_again = true;
        self
    }

    /// Always replies so to chats for this model.
    #[must_use]
    pub fn for_model(mut self, model: impl Into<String>, reply: Reply) -> Self {
        self.by_model.insert(model.into(), reply);
        self
    }

    /// The reply to a chat call, where the script says one.
    #[must_use]
    pub fn reply(&self, turn: usize) -> Option<&Reply> {
        let last = self.calls.len().checked_sub(1)?;
        self.calls.get(if self.over_again { turn % (last + 1) } else { turn.min(last) })
    }

    /// Gives it a port of its own.
    #[must_use]
    pub fn on_own_port(mut self) -> Self {
        self.own_port = true;
        self
    }

    /// Takes only this API key.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Takes only valid access tokens of this login at the OAuth server.
    #[must_use]
    pub fn with_login(mut self, login: impl Into<String>) -> Self {
        self.login = Some(login.into());
        self
    }

    /// Lists these models.
    #[must_use]
    pub fn with_models<M: Into<String>>(mut self, models: impl IntoIterator<Item = M>) -> Self {
        self.models = models.into_iter().map(Into::into).collect();
        self
    }

    /// Says this by default.
    #[must_use]
    pub fn saying(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }
}

/// A chat answer: one JSON object, or an event stream of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Chat {
    /// Whether it is streamed; as the request asks when absent.
    pub stream: Option<bool>,
    /// Its text; the source's, or `words` numbered words, when absent. Streamed word by word.
    pub text: Option<String>,
    /// This many numbered words instead of a text.
    pub words: Option<usize>,
    /// Reasoning that comes before the text, streamed word by word as `reasoning_content`.
    pub reasoning: Option<String>,
    /// Tools that it calls instead of saying something. When the conversation ends with a tool's result, it says its
    /// text.
    pub tool_calls: Vec<ToolCall>,
    /// Model that it names; the requested one when absent.
    pub model: Option<String>,
    /// Why it ended; `stop` or `tool_calls` when absent.
    pub finish_reason: Option<String>,
    /// Usage that it reports; counted from the request and the text when absent.
    pub usage: Option<Usage>,
    /// Whether it reports no usage at all.
    pub no_usage: bool,
    /// Whether a stream lacks its chunk with `finish_reason`.
    pub no_finish: bool,
    /// Whether a stream lacks `[DONE]`.
    pub no_done: bool,
    /// Lines put between the stream's own events.
    pub insert: Vec<Insert>,
    /// Whether lines end in CRLF instead of LF.
    pub crlf: bool,
    /// Whether `data:` is followed by no space.
    pub no_space: bool,
}

/// A frame put into a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Insert {
    /// Before which of the stream's own events (0 is the first); past the last one, at the end.
    pub before: usize,
    /// The frame's text without its blank line, for instance `data: {broken` or `: comment`.
    pub frame: String,
}

/// A tool call of the assistant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// Function name.
    pub name: String,
    /// Arguments as JSON text, streamed in pieces of a few bytes.
    pub arguments: String,
}

/// Token counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    pub prompt_tokens: u64,
    /// Tokens of the answer, reasoning included.
    pub completion_tokens: u64,
    /// Cached tokens of the prompt; named only when not zero.
    pub cached_tokens: u64,
    /// Reasoning tokens of the answer; named only when not zero.
    pub reasoning_tokens: u64,
}

impl Chat {
    /// Says `text`.
    #[must_use]
    pub fn saying(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// Says `n` numbered words.
    #[must_use]
    pub fn words(n: usize) -> Self {
        Self { words: Some(n), ..Self::default() }
    }

    /// Calls one tool.
    #[must_use]
    pub fn calling(name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self { tool_calls: vec![ToolCall { name: name.into(), arguments: arguments.into() }], ..Self::default() }
    }

    /// Puts a frame before the stream's own event number `before`.
    #[must_use]
    pub fn insert(mut self, before: usize, frame: impl Into<String>) -> Self {
        self.insert.push(Insert { before, frame: frame.into() });
        self
    }
}

#[cfg(test)]
mod tests;
