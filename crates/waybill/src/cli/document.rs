//! Files that commands read: TOML or JSON, from a path or from standard input.

use std::io::Read as _;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use super::Usage;

/// Reads a document; `what` names it where it can't be read as one.
pub(super) fn read(path: &Path, what: &str) -> anyhow::Result<Value> {
    let mut text = String::new();
    if path.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).with_context(|| format!("can't read {what} from standard input"))?;
    } else {
        text = std::fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
    }
    parse(&text).map_err(|wrong| Usage(format!("{} isn't {what}: {wrong}", path.display())).into())
}

pub(super) fn parse(text: &str) -> Result<Value, String> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|error| error.to_string());
    }
    toml::from_str(text).map_err(|error| error.to_string())
}
