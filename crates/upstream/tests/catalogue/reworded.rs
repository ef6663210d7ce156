//! Recorded failures in other words: other ids, numbers, white space, order, surroundings, but the same failure.

use serde_json::{Map, Value};
use waybill_domain::verdict::rule::{RecordedCase, Rule};
use waybill_upstream::cases::BundledCase;

/// A case in other words.
pub struct Reworded {
    /// What was changed.
    pub how: String,
    /// The case.
    pub given: RecordedCase,
}

/// Six and more variants of a case, always the same ones.
pub fn reworded(case: &BundledCase, decisive: Option<&Rule>) -> Vec<Reworded> {
    let given = &case.given;
    let mut variants = Vec::new();
    let mut push = |how: &str, given: RecordedCase| variants.push(Reworded { how: how.to_owned(), given });
    push("reversed", with_body(given, &reversed));
    push("spaced", spaced(given));
    push("crowded", crowded(given));
    push("other ids", with_texts(given, &other_ids));
    push("other numbers", with_texts(given, &other_numbers));
    push("other headers", with_headers(given));
    let seed = case.id.bytes().fold(7_u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    push("other models", with_texts(given, &|text| other_models(text, seed)));
    push("crowded and reversed", with_body(&crowded(&with_texts(given, &other_ids)), &reversed));
    if !reads_message(decisive) {
        push("another message", with_body(given, &|body| another_message(body)));
    } else if !is_anchored(decisive) {
        push("a longer message", with_body(given, &|body| longer_message(body)));
    }
    variants
}

/// Whether the rule that decided looks at the message.
fn reads_message(decisive: Option<&Rule>) -> bool {
    decisive.is_none_or(|rule| {
        let when = &rule.when;
        !when.phrases.is_empty()
            || !when.and_phrases.is_empty()
            || !when.not_phrases.is_empty()
            || when.matches.is_some()
            // Codes may stand in the message.
            || !when.codes.is_empty()
            || !when.body.is_empty()
    })
}

fn is_anchored(decisive: Option<&Rule>) -> bool {
    decisive.is_some_and(|rule| rule.when.matches.is_some() || !rule.when.codes.is_empty())
}

fn with_body(given: &RecordedCase, change: &dyn Fn(&Value) -> Value) -> RecordedCase {
    RecordedCase { body: change(&given.body), ..given.clone() }
}

/// All members in the opposite order.
fn reversed(body: &Value) -> Value {
    match body {
        Value::Object(members) => {
            Value::Object(members.iter().rev().map(|(name, value)| (name.clone(), reversed(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(reversed).collect()),
        other => other.clone(),
    }
}

/// The body with white space wherever it may stand.
fn spaced(given: &RecordedCase) -> RecordedCase {
    let body = match &given.body {
        tree @ (Value::Object(_) | Value::Array(_)) => {
            Value::String(format!("\r\n {}\n\n", serde_json::to_string_pretty(tree).unwrap_or_default()))
        }
        Value::String(text) if text.contains("data:") => {
            Value::String(format!(": wait\r\n\r\n{}", text.replace('\n', "\r\n")))
        }
        Value::String(text) if !text.trim().is_empty() => Value::String(format!("{text}\n")),
        other => other.clone(),
    };
    RecordedCase { body, ..given.clone() }
}

/// Further members that nobody knows, in the body and in its error.
fn crowded(given: &RecordedCase) -> RecordedCase {
    let crowd = |members: &Map<String, Value>| {
        let mut members = members.clone();
        members.insert("request_id".to_owned(), "req_0a1b2c3d4e5f".into());
        members.insert("documentation_url".to_owned(), "https://docs.example/errors".into());
        members.insert("trace".to_owned(), serde_json::json!({"span": "9f86d081", "region": "eu-1", "tries": 1}));
        members
    };
    let body = match &given.body {
        // A list of frames, or of an only error.
        Value::Object(members) => {
            let mut members = crowd(members);
            if let Some(Value::Object(error)) = members.get("error").filter(|error| error.get("message").is_some()) {
                let error = crowd(error);
                members.insert("error".to_owned(), Value::Object(error));
            }
            Value::Object(members)
        }
        other => other.clone(),
    };
    RecordedCase { body, ..given.clone() }
}

fn with_texts(given: &RecordedCase, change: &dyn Fn(&str) -> String) -> RecordedCase {
    RecordedCase { body: texts(&given.body, change), ..given.clone() }
}

/// Changes what is said: messages, and texts that stand for a whole body. Names, codes and types stay.
fn texts(body: &Value, change: &dyn Fn(&str) -> String) -> Value {
    match body {
        Value::String(text) => Value::String(change(text)),
        Value::Array(items) => Value::Array(items.iter().map(|item| texts(item, change)).collect()),
        Value::Object(members) => {
            let kept = |name: &str| !TEXTS.contains(&name);
            let changed = members.iter().map(|(name, value)| {
                let same = kept(name) && value.is_string();
                (name.clone(), if same { value.clone() } else { texts(value, change) })
            });
            Value::Object(changed.collect())
        }
        other => other.clone(),
    }
}

/// Members that hold a text for people.
const TEXTS: [&str; 8] = ["message", "msg", "error_msg", "status_msg", "detail", "raw", "error", "error_description"];

fn other_ids(text: &str) -> String {
    [("request id: r", "request id: 20261001ab"), ("org-***", "org-9Zx"), ("resp_1", "resp_77aa"), ("msg_1", "msg_9")]
        .iter()
        .chain(&[("\"c1\"", "\"chatcmpl-77\""), ("org_x", "org_01k"), ("default", "vip"), ("tools[0]", "tools[3]")])
        .fold(text.to_owned(), |text, (old, new)| text.replace(old, new))
}

/// Numbers of three digits and more that stand alone and are no code, date or time.
fn other_numbers(text: &str) -> String {
    if text.contains("data:") || text.trim_start().starts_with('<') {
        return text.to_owned();
    }
    let words = text.split(' ').map(|word| {
        let digits = word.trim_end_matches([',', '.', ')']);
        let alone = digits.len() >= 4 && digits.bytes().all(|byte| byte.is_ascii_digit());
        if alone { word.replacen(digits, &format!("{}", digits.len() * 7_919 + 20_011), 1) } else { word.to_owned() }
    });
    words.collect::<Vec<_>>().join(" ")
}

fn other_models(text: &str, seed: u64) -> String {
    let name = format!("acme-{}", seed % 97);
    ["gpt-x", "claude-x", "gemini-x", "llama-x", "kimi-x", "command-x", "mistral-x", "x:7b"]
        .iter()
        .fold(text.to_owned(), |text, old| text.replace(old, &name))
}

fn with_headers(given: &RecordedCase) -> RecordedCase {
    let mut headers = given.headers.clone();
    for (name, value) in [("date", "Thu, 01 Oct 2026 00:00:00 GMT"), ("x-request-id", "req_77"), ("via", "1.1 edge")] {
        headers.insert(name.to_owned(), value.into());
    }
    RecordedCase { headers, ..given.clone() }
}

fn another_message(body: &Value) -> Value {
    let other = "Something is not as it should be here.";
    // What wraps another error is more than a message.
    error_texts(body, &|text| if text.contains('{') { text.to_owned() } else { other.to_owned() })
}

/// More words behind the message, and letters of another case.
fn longer_message(body: &Value) -> Value {
    error_texts(body, &|text| {
        if text.contains(['{', '<', '|']) { text.to_owned() } else { format!("{} Contact us for more.", swapped(text)) }
    })
}

fn swapped(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

/// Changes the messages of an error's JSON.
fn error_texts(body: &Value, change: &dyn Fn(&str) -> String) -> Value {
    match body {
        Value::Object(members) => {
            let of = |(name, value): (&String, &Value)| {
                let message = TEXTS.contains(&name.as_str()) && value.is_string() && name != "raw";
                let value = match value {
                    Value::String(text) if message => Value::String(change(text)),
                    Value::Object(_) => error_texts(value, change),
                    other => other.clone(),
                };
                (name.clone(), value)
            };
            Value::Object(members.iter().map(of).collect())
        }
        other => other.clone(),
    }
}
