//! Error facts from JSON of the shapes that providers are known to send, at most two layers deep.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::ErrorFacts;
use super::bounded::Bounded;

/// How many wrappings are undone: errors of an upstream's upstream come as text within text.
const MAX_LAYERS: usize = 2;
/// Most finer codes that are kept.
const MAX_REASONS: usize = 8;
/// Most items of a list of details that are looked at.
const MAX_DETAILS: usize = 8;
/// Most headers that are taken from a body.
const MAX_HEADERS: usize = 32;

const MESSAGE_FIELDS: [&str; 8] =
    ["message", "msg", "error_msg", "status_msg", "error_description", "Message", "errorMessage", "detail"];
const KIND_FIELDS: [&str; 4] = ["type", "error_type", "status", "__type"];
const CODE_FIELDS: [&str; 4] = ["code", "error_code", "status_code", "errorCode"];
const STATUS_FIELDS: [&str; 5] = ["code", "status", "status_code", "raw_status_code", "originalStatusCode"];
/// Members whose presence says that a body without `error` is an answer of some protocol.
const ANSWER_FIELDS: [&str; 6] = ["choices", "candidates", "output", "content", "data", "result"];

/// Whether a tree with a success status is an error all the same. `"error": null`, `{}`, `""` and zero codes are none.
pub(crate) fn is_error(tree: &Value) -> bool {
    let tree = first_of_list(tree);
    let Some(object) = tree.as_object() else { return false };
    if object.get("error").is_some_and(means_something) || object.get("errors").is_some_and(means_something) {
        return true;
    }
    let word_is_error = |field: &str| object.get(field).and_then(Value::as_str) == Some("error");
    if word_is_error("type") || word_is_error("object") {
        return true;
    }
    if tree.pointer("/base_resp/status_code").is_some_and(means_something) {
        return true;
    }
    if ANSWER_FIELDS.iter().any(|field| object.get(*field).is_some_and(|value| !value.is_null())) {
        return false;
    }
    // A message may be what a model said: an object with its content.
    let says = |field: &str| {
        object.get(field).is_some_and(|value| (value.is_string() || field == "detail") && means_something(value))
    };
    MESSAGE_FIELDS.iter().any(|field| says(field))
        || says("error_code")
        || object.get("success") == Some(&Value::Bool(false))
}

/// Fills the facts from a tree; what is deeper is more specific and wins.
pub(super) fn read(facts: &mut ErrorFacts, tree: Value) {
    read_to_depth(facts, tree, MAX_LAYERS);
    read_code_in_message(facts);
}

fn read_to_depth(facts: &mut ErrorFacts, tree: Value, layers_left: usize) {
    let tree = unlisted(tree);
    let Some(object) = tree.as_object() else { return };
    let node = read_layer(facts, object);
    let wrapped = inner_text(node).filter(|_| layers_left > 0);
    let raw = node.get("metadata").is_some_and(|metadata| metadata.get("raw").is_some());
    facts.trees.push(Arc::new(tree));
    let Some(text) = wrapped else { return };
    match serde_json::from_str::<Bounded>(&text) {
        Ok(Bounded(inner)) if inner.is_object() || inner.is_array() => read_to_depth(facts, inner, layers_left - 1),
        _ if raw => facts.message = Some(text),
        _ => {}
    }
}

/// An only element stands for its list.
fn unlisted(tree: Value) -> Value {
    match tree {
        Value::Array(items) => items.into_iter().next().unwrap_or_default(),
        tree => tree,
    }
}

fn read_layer<'a>(facts: &mut ErrorFacts, outer: &'a Map<String, Value>) -> &'a Map<String, Value> {
    // Outer members first, so that those of the error itself take their place.
    read_members(facts, outer, "");
    read_headers(facts, outer.get("headers"));
    if let Some(inner) = outer.get("response").and_then(|response| response.get("error")).and_then(Value::as_object) {
        read_members(facts, inner, "response.error");
        return inner;
    }
    let mut node = outer;
    for field in ["errors", "error", "detail", "message", "base_resp", "payload"] {
        let Some(value) = outer.get(field) else { continue };
        match first_of_list(value) {
            Value::Object(inner) if !inner.is_empty() => {
                read_members(facts, inner, field);
                read_validation(facts, inner);
                read_headers(facts, inner.get("metadata").and_then(|metadata| metadata.get("headers")));
                node = inner;
                if let Some(item) = inner.get("detail").map(first_of_list).and_then(Value::as_object) {
                    read_members(facts, item, &format!("{field}.detail"));
                    read_validation(facts, item);
                }
                break;
            }
            Value::String(text) if field == "error" && !text.is_empty() => read_error_text(facts, outer, text),
            _ => {}
        }
    }
    node
}

/// `"error": "text"`; with a description beside it, as in OAuth, the text is a code.
fn read_error_text(facts: &mut ErrorFacts, outer: &Map<String, Value>, text: &str) {
    if outer.contains_key("error_description") {
        facts.code = Some(text.to_owned());
    } else if !outer.get("message").is_some_and(|message| message.is_string()) {
        facts.message = Some(text.to_owned());
        facts.message_at = "error".to_owned();
    }
}

/// Headers that a body carries along, as those of an event that stands for a whole answer.
fn read_headers(facts: &mut ErrorFacts, headers: Option<&Value>) {
    for (name, value) in headers.and_then(Value::as_object).into_iter().flatten().take(MAX_HEADERS) {
        if let Some(value) = word(value) {
            // How a frame of an event stream in binary form names what happened.
            if name == ":exception-type" || name == ":error-code" {
                facts.reasons.push(value.clone());
            }
            facts.headers.push((name.clone(), value));
        }
    }
}

fn read_members(facts: &mut ErrorFacts, object: &Map<String, Value>, at: &str) {
    facts.at = at.to_owned();
    if let Some(code) = first_word(object, &CODE_FIELDS) {
        facts.code = Some(code);
    }
    let kind = KIND_FIELDS.iter().find_map(|field| object.get(*field)?.as_str()).filter(|kind| !kind.is_empty());
    // The `type: error` of an envelope is no kind of error.
    if let Some(kind) = kind.filter(|kind| *kind != "error") {
        // AWS puts a namespace before the name.
        facts.kind = Some(kind.rsplit('#').next().unwrap_or(kind).to_owned());
    }
    if let Some(param) = object.get("param").and_then(Value::as_str).filter(|param| !param.is_empty()) {
        facts.param = Some(param.to_owned());
    }
    let message = MESSAGE_FIELDS.iter().find_map(|field| Some((field, object.get(*field)?.as_str()?)));
    if let Some((field, message)) = message.filter(|(_, message)| !message.is_empty()) {
        facts.message = Some(message.to_owned());
        facts.message_at = if at.is_empty() { (*field).to_owned() } else { format!("{at}.{field}") };
    }
    let status = STATUS_FIELDS.iter().find_map(|field| status_of(object.get(*field)?));
    facts.status_inner = status.or(facts.status_inner);
    read_reasons(facts, object);
}

/// FastAPI's list of validation faults: `loc` names the field.
fn read_validation(facts: &mut ErrorFacts, item: &Map<String, Value>) {
    let Some(places) = item.get("loc").and_then(Value::as_array) else { return };
    let names: Vec<String> = places.iter().filter_map(word).filter(|name| name != "body").collect();
    if !names.is_empty() {
        facts.param = Some(names.join("."));
    }
}

/// Finer codes beside the code.
fn read_reasons(facts: &mut ErrorFacts, object: &Map<String, Value>) {
    let details = object.get("details");
    let listed = details.and_then(Value::as_array).into_iter().flatten().take(MAX_DETAILS);
    let violations =
        |detail: &'_ Value| detail.get("violations").and_then(Value::as_array).cloned().unwrap_or_default();
    let of_detail = |detail: &Value| {
        let quotas = violations(detail).into_iter().take(MAX_DETAILS);
        let quotas: Vec<String> = quotas.filter_map(|violation| word(violation.get("quotaId")?)).collect();
        detail.get("reason").and_then(word).into_iter().chain(quotas).collect::<Vec<_>>()
    };
    let inner = object.get("inner_error").or_else(|| object.get("innererror"));
    let places = [
        details.and_then(|details| details.get("error_code")),
        object.get("metadata").and_then(|metadata| metadata.get("limit_source")),
        object.get("metadata").and_then(|metadata| metadata.get("error_type")),
        inner.and_then(|inner| inner.get("code")),
        object.get("reason"),
        object.get("error_code"),
    ];
    let found = listed.flat_map(of_detail).chain(places.into_iter().flatten().filter_map(word));
    for reason in found {
        if facts.reasons.len() < MAX_REASONS && !facts.reasons.contains(&reason) {
            facts.reasons.push(reason);
        }
    }
}

/// Text that may hold the error of the upstream's own upstream.
fn inner_text(node: &Map<String, Value>) -> Option<String> {
    let raw = node.get("metadata").and_then(|metadata| metadata.get("raw"));
    if let Some(raw) = raw {
        return Some(raw.as_str().map_or_else(|| raw.to_string(), str::to_owned)).filter(|text| !text.is_empty());
    }
    let message = node.get("message").or_else(|| node.get("error")).and_then(Value::as_str)?.trim();
    (message.starts_with('{') || message.starts_with('[')).then(|| message.to_owned())
}

/// Codes that stand in the message: `<400> InternalError.Algo.InvalidParameter: text` as relays of DashScope write it,
/// `[1310][text]` of Zhipu, `text (1000)` of MiniMax.
fn read_code_in_message(facts: &mut ErrorFacts) {
    let Some(message) = facts.message.as_deref() else { return };
    let digits = |text: &str| (3..=6).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let bracketed = message.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(code, _)| code);
    let closing = message.strip_suffix(')').and_then(|rest| rest.rsplit_once('(')).map(|(_, code)| code);
    if let Some(code) = bracketed.or(closing).filter(|code| digits(code)) {
        facts.reasons.push(code.to_owned());
        return;
    }
    let Some((status, rest)) = message.strip_prefix('<').and_then(|rest| rest.split_once("> ")) else { return };
    let Some(status) = status.parse().ok().filter(|status| (400..600).contains(status)) else { return };
    if let Some((code, _)) = rest.split_once(": ").filter(|(code, _)| !code.contains(' ')) {
        facts.reasons.push(code.to_owned());
    }
    facts.status_inner = Some(status);
}

fn status_of(value: &Value) -> Option<u16> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    u16::try_from(number).ok().filter(|status| (400..600).contains(status))
}

fn first_word(object: &Map<String, Value>, fields: &[&str]) -> Option<String> {
    fields.iter().find_map(|field| object.get(*field).and_then(word))
}

fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn first_of_list(value: &Value) -> &Value {
    value.as_array().and_then(|items| items.first()).unwrap_or(value)
}

fn means_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(said) => *said,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => items.iter().any(means_something),
        Value::Object(members) => members.values().any(means_something),
    }
}
