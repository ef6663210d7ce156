//! What stores of rows can't hold, replaced by what they can: U+0000 in texts, and numbers above 2⁶³ − 1.

use serde_json::Value;

/// The text with U+FFFD for each U+0000.
#[must_use]
pub fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

pub(super) fn optional(text: Option<&str>) -> Option<String> {
    text.map(without_nul)
}

/// The value with every text in it, names of fields included, freed of U+0000.
pub(super) fn value_without_nul(value: Value) -> Value {
    match value {
        Value::String(text) if text.contains('\0') => Value::String(without_nul(&text)),
        Value::Array(items) => Value::Array(items.into_iter().map(value_without_nul).collect()),
        Value::Object(fields) => Value::Object(
            fields.into_iter().map(|(name, value)| (without_nul(&name), value_without_nul(value))).collect(),
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// The number, or the largest one that a signed column holds.
pub(super) fn bounded(number: u64) -> u64 {
    number.min(i64::MAX.unsigned_abs())
}

/// The number, or the largest one that a signed column of 32 bits holds.
pub(super) fn bounded_u32(number: u32) -> u32 {
    number.min(i32::MAX.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nul_is_replaced_wherever_it_stands() {
        let masked = value_without_nul(json!({"a\0": ["x\0y", {"b": "\0"}], "n": 1}));
        assert_eq!(masked, json!({"a\u{fffd}": ["x\u{fffd}y", {"b": "\u{fffd}"}], "n": 1}));
        assert_eq!(bounded(u64::MAX), 9_223_372_036_854_775_807);
    }
}
