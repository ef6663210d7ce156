//! Base URLs of sources, and endpoints under them: a base works with or without a trailing slash or a version segment.

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use url::Url;

/// Endpoints that people paste along with a base; they are taken off.
const PASTED: [&[&str]; 4] = [&["chat", "completions"], &["models"], &["responses"], &["embeddings"]];

/// A checked base URL, ending in its version segment.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct BaseUrl(Url);

/// Why a text is no base URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaseUrlFault {
    /// It isn't a URL with a host.
    #[error("not a URL with a host: {0}")]
    NotAUrl(String),
    /// Another scheme than http or https.
    #[error("the scheme must be http or https")]
    Scheme,
    /// A user or password stands in it.
    #[error("a user or password in the URL isn't allowed; give the key as the credential")]
    UserInfo,
    /// It has a fragment.
    #[error("a fragment (`#…`) isn't allowed")]
    Fragment,
}

impl BaseUrl {
    /// Reads a base URL. Without a version segment such as `/v1` in its path, `/v1` is added; a query (`?api-version=…`)
    /// goes along with every endpoint.
    ///
    /// # Errors
    /// [`BaseUrlFault`] if it isn't http(s), or carries a user or a fragment.
    pub fn parse(text: &str) -> Result<Self, BaseUrlFault> {
        let mut url = Url::parse(text.trim()).map_err(|fault| BaseUrlFault::NotAUrl(fault.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(BaseUrlFault::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(BaseUrlFault::UserInfo);
        }
        if url.fragment().is_some() {
            return Err(BaseUrlFault::Fragment);
        }
        let path = base_path(url.path());
        url.set_path(&path);
        if url.query() == Some("") {
            url.set_query(None);
        }
        Ok(Self(url))
    }

    /// The URL of an endpoint, such as `chat/completions`.
    #[must_use]
    pub fn join(&self, endpoint: &str) -> Url {
        let mut url = self.0.clone();
        url.set_path(&format!("{}/{}", self.0.path(), endpoint.trim_matches('/')));
        url
    }

    /// The base as a URL, without a trailing slash.
    #[must_use]
    pub fn as_url(&self) -> &Url {
        &self.0
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BaseUrl({self})")
    }
}

impl FromStr for BaseUrl {
    type Err = BaseUrlFault;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

fn base_path(path: &str) -> String {
    let mut segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    if let Some(pasted) = PASTED.iter().find(|pasted| segments.ends_with(pasted)) {
        segments.truncate(segments.len() - pasted.len());
    }
    if !segments.iter().any(|segment| is_version(segment)) {
        segments.push("v1");
    }
    format!("/{}", segments.join("/"))
}

/// `v1`, `v4`, `v1beta`, `v1beta1`.
fn is_version(segment: &str) -> bool {
    let Some(rest) = segment.strip_prefix('v') else { return false };
    rest.starts_with(|c: char| c.is_ascii_digit()) && rest.chars().all(|c| c.is_ascii_alphanumeric())
}
