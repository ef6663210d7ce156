//! Model lists: ours for clients, and those of upstreams.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use crate::json;
use crate::peek::MAX_MODEL_BYTES;

/// Largest answer of an upstream's model list that is read, in bytes. The longest known ones are under 1 MB.
pub const MAX_LIST_BYTES: usize = 4 * 1024 * 1024;
/// Most models that are taken from a list.
pub const MAX_LISTED: usize = 10_000;

/// One model as OpenAI clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelEntry {
    /// The name to ask for.
    pub id: String,
    /// When it was made available, in seconds since 1970.
    pub created_s: i64,
    /// Who offers it.
    pub owned_by: String,
}

/// Why a body is no model list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ModelListFault {
    /// Over [`MAX_LIST_BYTES`].
    #[error("the model list is larger than {MAX_LIST_BYTES} bytes")]
    TooLarge,
    /// Over [`MAX_LISTED`].
    #[error("the model list has more than {MAX_LISTED} entries")]
    TooMany,
    /// Not JSON.
    #[error("the model list isn't JSON")]
    NotJson,
    /// JSON of another shape.
    #[error("the answer isn't a model list")]
    WrongShape,
}

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<Model<'a>>,
}

#[derive(Serialize)]
struct Model<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    owned_by: &'a str,
}

impl<'a> From<&'a ModelEntry> for Model<'a> {
    fn from(entry: &'a ModelEntry) -> Self {
        Self { id: &entry.id, object: "model", created: entry.created_s, owned_by: &entry.owned_by }
    }
}

/// The body of `GET /v1/models`, in the order given.
#[must_use]
pub fn render_list(entries: &[ModelEntry]) -> Bytes {
    render(&List { object: "list", data: entries.iter().map(Model::from).collect() })
}

/// The body of `GET /v1/models/{id}`.
#[must_use]
pub fn render_model(entry: &ModelEntry) -> Bytes {
    render(&Model::from(entry))
}

fn render(value: &impl Serialize) -> Bytes {
    // Strings, numbers and lists of them always serialise.
    serde_json::to_vec(value).unwrap_or_default().into()
}

/// The model names of an upstream's list: `{"data":[{"id"}]}`, `{"models":[{"name"}]}` or a bare array of either or of
/// names. Order stays, repetitions and unusable names go.
///
/// # Errors
/// [`ModelListFault`] if the body is too large or no list.
pub fn parse_list(body: &[u8]) -> Result<Vec<String>, ModelListFault> {
    if body.len() > MAX_LIST_BYTES {
        return Err(ModelListFault::TooLarge);
    }
    let tree: Value = serde_json::from_slice(json::trim(body)).map_err(|_| ModelListFault::NotJson)?;
    let list = ["data", "models"].iter().find_map(|field| tree.get(field)).unwrap_or(&tree);
    let items = list.as_array().ok_or(ModelListFault::WrongShape)?;
    if items.len() > MAX_LISTED {
        return Err(ModelListFault::TooMany);
    }
    let mut seen = HashSet::new();
    let names: Vec<String> =
        items.iter().filter_map(name_of).filter(|name| seen.insert(*name)).map(str::to_owned).collect();
    if names.is_empty() && !items.is_empty() { Err(ModelListFault::WrongShape) } else { Ok(names) }
}

fn name_of(item: &Value) -> Option<&str> {
    let name = item.as_str().or_else(|| ["id", "name"].iter().find_map(|field| item.get(field)?.as_str()))?;
    let usable = !name.is_empty() && name.len() <= MAX_MODEL_BYTES && !name.chars().any(char::is_control);
    usable.then_some(name)
}
