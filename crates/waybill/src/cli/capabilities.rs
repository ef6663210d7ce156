//! Capabilities on the command line: behind the name they belong to, as `NAME,tools=true,context_window=128000`.

use serde_json::{Map, Value};

use super::Usage;

/// Declared capabilities, as the API takes them.
type Declared = Option<Map<String, Value>>;

/// Splits a text into the name and, where there are any, its capabilities.
pub(super) fn split(text: &str) -> Result<(&str, Declared), Usage> {
    let Some((name, declared)) = text.split_once(',') else { return Ok((text, None)) };
    let mut capabilities = Map::new();
    for part in declared.split(',') {
        let (what, value) = part.split_once('=').ok_or_else(|| {
            Usage(format!("{part:?} is no capability: NAME=VALUE, e.g. tools=true or context_window=128000"))
        })?;
        // What a capability may be is the server's to say.
        let value = serde_json::from_str(value.trim()).unwrap_or_else(|_| value.trim().into());
        capabilities.insert(what.trim().to_owned(), value);
    }
    Ok((name, Some(capabilities)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn capabilities_follow_the_name() {
        let check = |text: &str, name: &str, capabilities: Value| {
            let (found, declared) = split(text).unwrap();
            assert_eq!((found, declared.map_or(Value::Null, Value::Object)), (name, capabilities));
        };
        check("deep", "deep", Value::Null);
        check("deep,tools=false, context_window=1000", "deep", json!({"tools": false, "context_window": 1000}));
        assert!(split("deep,tools").is_err());
    }
}
