//! What an observation holds beside its ending: headers and the body of an error, bounded and never printed.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::{Ending, ErrorFields, Observation};

/// The protocol that is spoken unless another one is named.
const USUAL_PROTOCOL: &str = "openai-chat";
/// Most headers that are kept of an answer.
const MAX_HEADERS: usize = 64;
/// Most bytes that are kept of a header's value.
const MAX_VALUE: usize = 256;

/// Headers of an answer, names in lower case. `Debug` prints names only: a value may be a secret.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Takes one more header, its name in any case. Cookies are left out, and what is beyond the bounds (64 headers, 256
    /// bytes of each value).
    pub fn push(&mut self, name: &str, value: &str) {
        let name = name.to_ascii_lowercase();
        if self.0.len() < MAX_HEADERS && !name.contains("cookie") && !name.contains("authorization") {
            let value = value.get(..value.floor_char_boundary(MAX_VALUE)).unwrap_or_default().trim();
            self.0.push((name, value.to_owned()));
        }
    }

    /// The first value of a header, whose name is in lower case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find_map(|(held, value)| (held == name).then_some(value))
    }

    /// All of them, as they came.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Headers {
    fn from_iter<T: IntoIterator<Item = (&'a str, &'a str)>>(pairs: T) -> Self {
        let mut headers = Self::default();
        pairs.into_iter().for_each(|(name, value)| headers.push(name, value));
        headers
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// The body of an error as trees: as it came, and what it wraps of another upstream's error. `Debug` prints nothing of it:
/// it may quote a prompt.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ErrorBody(Vec<Arc<Value>>);

impl ErrorBody {
    /// The body and the errors within it, outermost first.
    #[must_use]
    pub fn new(trees: Vec<Arc<Value>>) -> Self {
        Self(trees)
    }

    /// The trees, outermost first.
    pub fn trees(&self) -> impl Iterator<Item = &Value> {
        self.0.iter().map(|tree| &**tree)
    }
}

impl fmt::Debug for ErrorBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ErrorBody({} trees)", self.0.len())
    }
}

impl Observation {
    /// What ended an attempt at this kind of provider, and nothing known beside it.
    #[must_use]
    pub fn new(provider: impl Into<String>, ending: Ending) -> Self {
        Self {
            provider: provider.into(),
            protocol: USUAL_PROTOCOL.to_owned(),
            ending,
            streamed: false,
            error: ErrorFields::default(),
            finish: None,
            headers: Headers::default(),
            body: ErrorBody::default(),
            facts: Vec::new(),
            at_ms: 0,
            committed: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_bounded_and_not_printed() {
        let mut headers: Headers =
            [("Retry-After", " 7 "), ("Set-Cookie", "secret"), ("x-long", &"é".repeat(200))].into_iter().collect();
        assert_eq!(headers.get("retry-after"), Some("7"));
        assert_eq!(headers.get("set-cookie"), None);
        assert_eq!(headers.get("x-long").map(str::len), Some(256));
        assert_eq!(format!("{headers:?}"), r#"{"retry-after", "x-long"}"#);
        (0..100).for_each(|n| headers.push(&format!("h{n}"), "v"));
        assert_eq!(headers.iter().count(), MAX_HEADERS);
    }
}
