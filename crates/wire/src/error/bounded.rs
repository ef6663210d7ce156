//! A JSON tree of bounded size: what is beyond its bounds is read over, so that a body costs time linear in its bytes and
//! memory that doesn't depend on them.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::{Map, Number, Value};

use crate::json::cut;

/// Most values of a tree.
const MAX_VALUES: u32 = 512;
/// Most elements of a list that are kept.
const MAX_ELEMENTS: usize = 16;
/// Deepest nesting that is kept.
const MAX_DEPTH: u8 = 12;
/// Longest text that is kept, in bytes: one that wraps another upstream's error is read again.
const MAX_TEXT: usize = 8_192;

/// A tree whose values beyond the bounds are left out.
pub(super) struct Bounded(pub(super) Value);

impl<'de> Deserialize<'de> for Bounded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let left = Cell::new(MAX_VALUES);
        Seed { left: &left, depth: MAX_DEPTH }.deserialize(deserializer).map(Self)
    }
}

#[derive(Clone, Copy)]
struct Seed<'a> {
    left: &'a Cell<u32>,
    depth: u8,
}

impl Seed<'_> {
    /// Whether one more value fits.
    fn take(self) -> bool {
        let fits = self.left.get() > 0 && self.depth > 0;
        self.left.set(self.left.get().saturating_sub(1));
        fits
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, said: bool) -> Result<Value, E> {
        Ok(Value::Bool(said))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(cut(text, MAX_TEXT).to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = Seed { depth: self.depth - 1, ..self };
        let mut kept = Vec::new();
        while kept.len() < MAX_ELEMENTS && inner.take() {
            let Some(item) = items.next_element_seed(inner)? else { return Ok(Value::Array(kept)) };
            kept.push(item);
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Array(kept))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inner = Seed { depth: self.depth - 1, ..self };
        let mut kept = Map::new();
        while inner.take() {
            let Some(name) = members.next_key::<String>()? else { return Ok(Value::Object(kept)) };
            kept.insert(name, members.next_value_seed(inner)?);
        }
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Object(kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Value {
        serde_json::from_str::<Bounded>(text).map(|tree| tree.0).unwrap()
    }

    #[test]
    fn a_usual_tree_is_kept_as_it_is() {
        let text = r#"{"error":{"code":429,"message":"m","details":[{"a":-1.5},null,true]}}"#;
        assert_eq!(read(text), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn what_is_too_much_is_left_out_and_the_rest_is_kept() {
        let many: Vec<String> = (0..2_000).map(|n| format!("\"k{n}\":{{\"a\":[1,2,3]}}")).collect();
        let tree = read(&format!("{{\"error\":{{\"message\":\"m\"}},{}}}", many.join(",")));
        assert_eq!(tree.pointer("/error/message"), Some(&Value::from("m")));
        assert!(tree.as_object().unwrap().len() < 600);
        let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        assert_eq!(read(&deep).to_string().matches('[').count(), usize::from(MAX_DEPTH));
        assert_eq!(read(&format!("\"{}\"", "x".repeat(9_000))).as_str().unwrap().len(), MAX_TEXT);
        assert_eq!(read(&format!("[{}0]", "0,".repeat(50))).as_array().unwrap().len(), MAX_ELEMENTS);
        assert!(serde_json::from_str::<Bounded>("{oops").is_err());
    }
}
