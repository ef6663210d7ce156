//! What a failure that no rule knows looks like, without any of its values: names and types of its body's members.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::observation::{Ending, Observation};

/// How deep a body is looked into.
const MAX_DEPTH: usize = 4;
/// Most members that are looked at.
const MAX_MEMBERS: usize = 64;

/// Twelve hexadecimal digits that are equal for failures of one shape at one provider.
pub(super) fn of(observation: &Observation) -> Arc<str> {
    let mut shape = observation.provider.to_lowercase();
    match &observation.ending {
        Ending::Status { status, shape: body } | Ending::Wrong2xx { status, shape: body } => {
            let inner = observation.error.status.unwrap_or_default();
            let _ = write!(shape, "|{status}|{inner}|{body:?}|");
        }
        Ending::Success | Ending::Transport(_) | Ending::TimedOut { .. } | Ending::ClientGone | Ending::Local => {}
    }
    let mut left = MAX_MEMBERS;
    for tree in observation.body.trees() {
        structure(tree, MAX_DEPTH, &mut left, &mut shape);
        shape.push(';');
    }
    let digest = Sha256::digest(shape.as_bytes());
    let mut hex = String::with_capacity(12);
    digest.iter().take(6).for_each(|byte| {
        let _ = write!(hex, "{byte:02x}");
    });
    hex.into()
}

fn structure(value: &Value, depth: usize, left: &mut usize, out: &mut String) {
    match value {
        Value::Null => out.push('0'),
        Value::Bool(_) => out.push('b'),
        Value::Number(_) => out.push('n'),
        Value::String(_) => out.push('s'),
        Value::Array(items) => {
            out.push('[');
            if let Some(first) = items.first().filter(|_| depth > 0) {
                structure(first, depth - 1, left, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            let mut names: Vec<&String> = if depth > 0 { members.keys().collect() } else { Vec::new() };
            names.sort_unstable();
            for name in names {
                if *left == 0 {
                    break;
                }
                *left -= 1;
                let _ = write!(out, "{}:", name.chars().take(32).collect::<String>());
                members.get(name).into_iter().for_each(|value| structure(value, depth - 1, left, out));
                out.push(',');
            }
            out.push('}');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{ErrorBody, Shape};
    use serde_json::json;

    fn seen(status: u16, body: Value) -> Arc<str> {
        let ending = Ending::Status { status, shape: Shape::Error };
        of(&Observation { body: ErrorBody::new(vec![Arc::new(body)]), ..Observation::new("openai", ending) })
    }

    #[test]
    fn it_tells_shapes_apart_and_not_values() {
        let first = seen(400, json!({"error": {"code": "a", "message": "secret one"}}));
        assert_eq!(first, seen(400, json!({"error": {"message": "other", "code": "b"}})));
        assert_ne!(first, seen(401, json!({"error": {"code": "a", "message": "secret one"}})));
        assert_ne!(first, seen(400, json!({"error": {"code": 1, "message": "secret one"}})));
        assert_eq!(first.len(), 12);
    }
}
