//! A channel to be created.

use serde_json::{Map, Value};

/// A channel to be created. It may use private addresses, has a credential that names it, and serves the group
/// `default` unless told otherwise.
#[derive(Debug, Clone)]
pub struct ChannelSpec(Map<String, Value>);

impl ChannelSpec {
    /// A channel of this name at this base URL.
    #[must_use]
    pub fn new(name: &str, base_url: &str) -> Self {
        let spec = Self(Map::new()).with("name", name).with("base_url", base_url);
        spec.with("credential", format!("sk-of-{name}")).with("allow_private", true).groups(["default"])
    }

    /// Sets a field of the request's body.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.0.insert(field.to_owned(), value.into());
        self
    }

    /// Models it offers.
    #[must_use]
    pub fn models<'a>(self, models: impl IntoIterator<Item = &'a str>) -> Self {
        let models: Vec<Value> = models.into_iter().map(Value::from).collect();
        self.with("models", models)
    }

    /// Groups it serves.
    #[must_use]
    pub fn groups<'a>(self, groups: impl IntoIterator<Item = &'a str>) -> Self {
        let groups: Vec<Value> = groups.into_iter().map(Value::from).collect();
        self.with("groups", groups)
    }

    /// Its tier.
    #[must_use]
    pub fn priority(self, priority: i32) -> Self {
        self.with("priority", priority)
    }

    /// Its share within the tier.
    #[must_use]
    pub fn weight(self, weight: u32) -> Self {
        self.with("weight", weight)
    }

    pub(super) fn into_json(self) -> Value {
        Value::Object(self.0)
    }
}
