//! The members of a chat request that are looked at, as raw JSON; all others are skipped.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Raw values of the known fields, and which of them is ambiguous.
#[derive(Default)]
pub(super) struct Fields<'a> {
    pub(super) model: Option<&'a RawValue>,
    pub(super) messages: Option<&'a RawValue>,
    pub(super) stream: Option<&'a RawValue>,
    pub(super) stream_options: Option<&'a RawValue>,
    pub(super) max_tokens: Option<&'a RawValue>,
    pub(super) max_completion_tokens: Option<&'a RawValue>,
    pub(super) n: Option<&'a RawValue>,
    pub(super) tools: Option<&'a RawValue>,
    pub(super) functions: Option<&'a RawValue>,
    pub(super) duplicate: Option<&'static str>,
}

/// Reads the body's members in one pass.
pub(super) fn read(text: &str) -> Result<Fields<'_>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let fields = (&mut reader).deserialize_map(FieldsVisitor)?;
    reader.end()?;
    Ok(fields)
}

impl<'a> Fields<'a> {
    fn slot(&mut self, name: &str) -> Option<(&'static str, &mut Option<&'a RawValue>)> {
        Some(match name {
            "model" => ("model", &mut self.model),
            "messages" => ("messages", &mut self.messages),
            "stream" => ("stream", &mut self.stream),
            "stream_options" => ("stream_options", &mut self.stream_options),
            "max_tokens" => ("max_tokens", &mut self.max_tokens),
            "max_completion_tokens" => ("max_completion_tokens", &mut self.max_completion_tokens),
            "n" => ("n", &mut self.n),
            "tools" => ("tools", &mut self.tools),
            "functions" => ("functions", &mut self.functions),
            _ => return None,
        })
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Fields::default();
        while let Some(name) = map.next_key_seed(NameSeed)? {
            // Some upstreams match names without regard to case: `Model` would be a second model to them.
            for routed in ["model", "stream"] {
                if name != routed && name.eq_ignore_ascii_case(routed) {
                    fields.duplicate.get_or_insert(routed);
                }
            }
            let Some((param, slot)) = fields.slot(&name) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value: &'de RawValue = map.next_value()?;
            if slot.replace(value).is_some() {
                fields.duplicate.get_or_insert(param);
            }
        }
        Ok(fields)
    }
}

struct NameSeed;

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for NameSeed {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}
