//! Renders chat answers as OpenAI's API does: one object, or a stream of chunks.

use serde_json::{Value, json};

use crate::script::{Chat, Usage};

/// Creation time that every answer names: answers of one script are equal byte by byte.
const CREATED: u64 = 1_767_225_600;
/// Bytes of a piece of a tool call's arguments.
const ARGUMENT_PIECE: usize = 8;

/// A chat answer, put together.
pub(crate) struct Answer {
    id: String,
    model: String,
    text: String,
    reasoning: Option<String>,
    /// Name and arguments.
    tool_calls: Vec<(String, String)>,
    finish_reason: String,
    usage: Option<Usage>,
}

impl Answer {
    /// The answer of `chat` to a request's JSON. `said` is what the source says by default, `call` makes ids unique.
    pub(crate) fn new(chat: &Chat, request: &Value, said: &str, call: &str) -> Self {
        let text = match (&chat.text, chat.words) {
            (Some(text), _) => text.clone(),
            (None, Some(n)) => (1..=n).map(|n| format!("word{n}")).collect::<Vec<_>>().join(" "),
            (None, None) => said.to_owned(),
        };
        let last = request.get("messages").and_then(Value::as_array).and_then(|messages| messages.last());
        let has_result = last.and_then(|message| message.get("role")).and_then(Value::as_str) == Some("tool");
        let tool_calls: Vec<(String, String)> = if has_result {
            Vec::new()
        } else {
            chat.tool_calls.iter().map(|call| (call.name.clone(), call.arguments.clone())).collect()
        };
        let text = if tool_calls.is_empty() { text } else { String::new() };
        let finish = if tool_calls.is_empty() { "stop" } else { "tool_calls" };
        let model = request.get("model").and_then(Value::as_str).unwrap_or("unknown");
        let counted = count(request, &text, chat.reasoning.as_deref().unwrap_or_default(), &tool_calls);
        Self {
            id: format!("chatcmpl-{call}"),
            model: chat.model.clone().unwrap_or_else(|| model.to_owned()),
            text,
            reasoning: chat.reasoning.clone(),
            tool_calls,
            finish_reason: chat.finish_reason.clone().unwrap_or_else(|| finish.to_owned()),
            usage: (!chat.no_usage).then(|| chat.usage.unwrap_or(counted)),
        }
    }

    /// The answer as one object.
    pub(crate) fn object(&self) -> Value {
        let mut message = json!({"role": "assistant", "content": self.text, "refusal": null});
        if let Some(reasoning) = &self.reasoning {
            set(&mut message, "reasoning_content", json!(reasoning));
        }
        if !self.tool_calls.is_empty() {
            set(&mut message, "content", Value::Null);
            let calls: Vec<Value> = self
                .tool_calls
                .iter()
                .enumerate()
                .map(|(index, (name, arguments))| self.tool_call(index, name, arguments))
                .collect();
            set(&mut message, "tool_calls", json!(calls));
        }
        let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": self.finish_reason});
        let mut object = json!({
            "id": self.id, "object": "chat.completion", "created": CREATED, "model": self.model, "choices": [choice],
        });
        if let Some(usage) = self.usage {
            set(&mut object, "usage", usage_value(usage));
        }
        set(&mut object, "system_fingerprint", json!("fp_scripted"));
        object
    }

    /// The answer as frames of an event stream, each with its blank line.
    pub(crate) fn frames(&self, chat: &Chat, include_usage: bool) -> Vec<String> {
        let mut events = vec![self.delta(&json!({"role": "assistant", "content": ""}), None)];
        for word in words(self.reasoning.as_deref().unwrap_or_default()) {
            events.push(self.delta(&json!({"reasoning_content": word}), None));
        }
        for word in words(&self.text) {
            events.push(self.delta(&json!({"content": word}), None));
        }
        for (index, (name, arguments)) in self.tool_calls.iter().enumerate() {
            let mut call = self.tool_call(index, name, "");
            set(&mut call, "index", json!(index));
            events.push(self.delta(&json!({"tool_calls": [call]}), None));
            for piece in pieces(arguments, ARGUMENT_PIECE) {
                let call = json!({"index": index, "function": {"arguments": piece}});
                events.push(self.delta(&json!({"tool_calls": [call]}), None));
            }
        }
        if !chat.no_finish {
            events.push(self.delta(&json!({}), Some(&self.finish_reason)));
        }
        if let Some(usage) = self.usage.filter(|_| include_usage) {
            let mut chunk = self.chunk(json!([]));
            set(&mut chunk, "usage", usage_value(usage));
            events.push(chunk.to_string());
        }
        if !chat.no_done {
            events.push("[DONE]".into());
        }
        let space = if chat.no_space { "" } else { " " };
        let events: Vec<String> = events.into_iter().map(|event| format!("data:{space}{event}")).collect();
        framed(with_inserts(events, chat), chat.crlf)
    }

    fn tool_call(&self, index: usize, name: &str, arguments: &str) -> Value {
        let id = self.id.trim_start_matches("chatcmpl-");
        json!({"id": format!("call_{id}_{index}"), "type": "function",
               "function": {"name": name, "arguments": arguments}})
    }

    fn delta(&self, delta: &Value, finish_reason: Option<&str>) -> String {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason});
        self.chunk(json!([choice])).to_string()
    }

    fn chunk(&self, choices: Value) -> Value {
        let mut chunk = json!({
            "id": self.id, "object": "chat.completion.chunk", "created": CREATED, "model": self.model,
            "system_fingerprint": "fp_scripted",
        });
        set(&mut chunk, "choices", choices);
        chunk
    }
}

/// Frames with their blank lines.
pub(crate) fn framed(frames: Vec<String>, crlf: bool) -> Vec<String> {
    let end = if crlf { "\r\n" } else { "\n" };
    frames.into_iter().map(|frame| format!("{}{end}{end}", frame.replace('\n', end))).collect()
}

/// Whether a request asks for a stream.
pub(crate) fn wants_stream(request: &Value) -> bool {
    request.get("stream").and_then(Value::as_bool).unwrap_or_default()
}

/// Whether a request asks for the usage chunk.
pub(crate) fn wants_usage(request: &Value) -> bool {
    request.pointer("/stream_options/include_usage").and_then(Value::as_bool).unwrap_or_default()
}

fn with_inserts(events: Vec<String>, chat: &Chat) -> Vec<String> {
    let count = events.len();
    let mut out = Vec::with_capacity(count + chat.insert.len());
    let at = |index: usize| {
        chat.insert.iter().filter(move |insert| insert.before.min(count) == index).map(|insert| insert.frame.clone())
    };
    for (index, event) in events.into_iter().enumerate() {
        out.extend(at(index));
        out.push(event);
    }
    out.extend(at(count));
    out
}

/// Words with the space before them.
fn words(text: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = text
        .char_indices()
        .zip(text.chars().skip(1))
        .filter(|((_, c), next)| c.is_whitespace() && !next.is_whitespace())
        .map(|((at, _), _)| at)
        .filter(|at| *at > 0)
        .collect();
    starts.insert(0, 0);
    starts.push(text.len());
    starts
        .windows(2)
        .filter_map(|pair| text.get(*pair.first()?..*pair.last()?))
        .filter(|word| !word.is_empty())
        .collect()
}

/// Pieces of at least `size` bytes, cut between characters.
fn pieces(text: &str, size: usize) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for c in text.chars() {
        match pieces.last_mut() {
            Some(piece) if piece.len() < size => piece.push(c),
            Some(_) | None => pieces.push(c.to_string()),
        }
    }
    pieces
}

/// A token for four bytes of the prompt and one for each word of the answer.
fn count(request: &Value, text: &str, reasoning: &str, tool_calls: &[(String, String)]) -> Usage {
    let messages = request.get("messages").map(ToString::to_string).unwrap_or_default();
    let tokens = |text: &str| words(text).len() as u64;
    let called: u64 = tool_calls.iter().map(|(_, arguments)| 1 + arguments.len() as u64 / 4).sum();
    let reasoning_tokens = tokens(reasoning);
    Usage {
        prompt_tokens: (messages.len() as u64 / 4).max(1),
        completion_tokens: tokens(text) + reasoning_tokens + called,
        cached_tokens: 0,
        reasoning_tokens,
    }
}

fn usage_value(usage: Usage) -> Value {
    let mut value = json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    });
    if usage.cached_tokens > 0 {
        set(&mut value, "prompt_tokens_details", json!({"cached_tokens": usage.cached_tokens}));
    }
    if usage.reasoning_tokens > 0 {
        set(&mut value, "completion_tokens_details", json!({"reasoning_tokens": usage.reasoning_tokens}));
    }
    value
}

fn set(object: &mut Value, name: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert(name.to_owned(), value);
    }
}

#[cfg(test)]
mod tests;
