//! The members of a chat request that are looked at, as raw JSON; all others are skipped.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::json::Scanner;

/// Raw values of the known fields, and which of them is ambiguous.
#[derive(Default)]
pub(super) struct Fields<'a> {
    pub(super) model: Option<&'a str>,
    pub(super) messages: Option<&'a str>,
    pub(super) stream: Option<&'a str>,
    pub(super) stream_options: Option<&'a str>,
    pub(super) max_tokens: Option<&'a str>,
    pub(super) max_completion_tokens: Option<&'a str>,
    pub(super) n: Option<&'a str>,
    pub(super) tools: Option<&'a str>,
    pub(super) functions: Option<&'a str>,
    pub(super) response_format: Option<&'a str>,
    /// Told of limits and stickiness only: whichever stands last counts, as it does upstream.
    pub(super) user: Option<&'a str>,
    pub(super) prompt_cache_key: Option<&'a str>,
    pub(super) duplicate: Option<&'static str>,
}

/// Reads the body's members in one pass.
pub(super) fn read(text: &str) -> Result<Fields<'_>, serde_json::Error> {
    scan(text).map_or_else(|| parse(text), Ok)
}

fn scan(text: &str) -> Option<Fields<'_>> {
    let mut fields = Fields::default();
    let mut scanner = Scanner::new(text);
    scanner.object(|name, value| {
        let value = value.raw()?;
        fields.take(name, value);
        Some(())
    })?;
    scanner.end()?;
    Some(fields)
}

/// For names with escapes, and to tell what is wrong.
fn parse(text: &str) -> Result<Fields<'_>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let fields = (&mut reader).deserialize_map(FieldsVisitor)?;
    reader.end()?;
    Ok(fields)
}

impl<'a> Fields<'a> {
    fn slot(&mut self, name: &str) -> Option<(&'static str, &mut Option<&'a str>)> {
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
            "response_format" => ("response_format", &mut self.response_format),
            _ => return None,
        })
    }

    fn take(&mut self, name: &str, value: &'a str) {
        // Some upstreams match names without regard to case: `Model` would be a second model to them.
        for routed in ["model", "stream"] {
            if name.len() == routed.len() && name != routed && name.eq_ignore_ascii_case(routed) {
                self.duplicate.get_or_insert(routed);
            }
        }
        match name {
            "user" => self.user = Some(value),
            "prompt_cache_key" => self.prompt_cache_key = Some(value),
            _ => {}
        }
        let Some((param, slot)) = self.slot(name) else { return };
        if slot.replace(value).is_some() {
            self.duplicate.get_or_insert(param);
        }
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
            let value: &'de RawValue = map.next_value()?;
            fields.take(&name, value.get());
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
