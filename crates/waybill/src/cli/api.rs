//! Asking the admin API.

use std::fmt;
use std::time::Duration;

use anyhow::Context;
use reqwest::{Method, Response, Url};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::Usage;
use super::output::Out;

/// Time an answer may take; trying a channel is slow when its model is.
const DEADLINE: Duration = Duration::from_secs(90);
const CONNECT: Duration = Duration::from_secs(5);

/// The admin API, and how its answers are shown.
pub(crate) struct Api {
    base: Url,
    token: SecretString,
    client: reqwest::Client,
    json: bool,
}

/// The API refused.
#[derive(Debug)]
struct Refused {
    detail: String,
    code: String,
    members: Vec<(String, String)>,
    request_id: Option<String>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.detail, self.code)?;
        for (name, value) in &self.members {
            write!(f, "\n  {name}: {value}")?;
        }
        match &self.request_id {
            Some(id) => write!(f, "\n  request id: {id}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refused {}

impl Refused {
    fn of(status: u16, body: &[u8]) -> Self {
        let Ok(Value::Object(mut problem)) = serde_json::from_slice(body) else {
            let (detail, code) = (format!("the admin API answered {status}"), "no_problem_document".to_owned());
            return Self { detail, code, members: Vec::new(), request_id: None };
        };
        let mut take = |name: &str| match problem.remove(name) {
            Some(Value::String(text)) => Some(text),
            Some(Value::Null) | None => None,
            Some(other) => Some(other.to_string()),
        };
        let (detail, code) = (take("detail").unwrap_or_default(), take("code").unwrap_or_default());
        let request_id = take("request_id");
        for told in ["type", "title", "status"] {
            take(told);
        }
        let members = problem.into_iter().map(|(name, value)| (name, super::output::plain(&value))).collect();
        Self { detail, code, members, request_id }
    }
}

/// Whether an error says that there is no such thing.
pub(super) fn is_not_found(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| refused.code == "not_found")
}

/// A query's parameters; those without a value are left out.
pub(super) type Parameters<'a> = &'a [(&'static str, Option<String>)];

impl Api {
    pub(super) fn new(base: &str, token: SecretString, json: bool) -> anyhow::Result<Self> {
        let text = format!("{}/api/v1/", base.trim_end_matches('/'));
        let base = Url::parse(&text).map_err(|error| Usage(format!("{base:?} is no URL: {error}")))?;
        let mut client = reqwest::Client::builder().connect_timeout(CONNECT);
        // A proxy of the environment can't reach this machine's own loopback.
        if base.host_str().is_some_and(|host| matches!(host, "localhost" | "127.0.0.1" | "[::1]")) {
            client = client.no_proxy();
        }
        Ok(Self { base, token, client: client.build().context("an HTTP client")?, json })
    }

    /// Where answers are shown.
    pub(super) fn out(&self) -> Out {
        Out::new()
    }

    /// Whether the answer is wanted as JSON.
    pub(super) fn wants_json(&self) -> bool {
        self.json
    }

    fn url(&self, path: &[&str], parameters: Parameters<'_>) -> anyhow::Result<Url> {
        let mut url = self.base.clone();
        // The base ends with a slash, so it always has segments.
        let mut segments = url.path_segments_mut().map_err(|()| Usage("the URL has no path".to_owned()))?;
        segments.pop_if_empty().extend(path);
        drop(segments);
        for (name, value) in parameters {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(name, value);
            }
        }
        Ok(url)
    }

    async fn send(
        &self,
        method: Method,
        path: &[&str],
        parameters: Parameters<'_>,
        body: Option<&Value>,
        deadline: Option<Duration>,
    ) -> anyhow::Result<Response> {
        let url = self.url(path, parameters)?;
        let mut request = self.client.request(method, url).bearer_auth(self.token.expose_secret());
        if let Some(body) = body {
            request = request.json(body);
        }
        if let Some(deadline) = deadline {
            request = request.timeout(deadline);
        }
        let answer = request.send().await.with_context(|| format!("the admin API at {} doesn't answer", self.base))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let body = answer.bytes().await.unwrap_or_default();
        Err(Refused::of(status.as_u16(), &body).into())
    }

    async fn ask(
        &self,
        method: Method,
        path: &[&str],
        parameters: Parameters<'_>,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let answer = self.send(method, path, parameters, body, Some(DEADLINE)).await?;
        answer.json().await.context("the admin API's answer isn't JSON")
    }

    pub(super) async fn get(&self, path: &[&str], parameters: Parameters<'_>) -> anyhow::Result<Value> {
        self.ask(Method::GET, path, parameters, None).await
    }

    pub(super) async fn post(&self, path: &[&str], parameters: Parameters<'_>, body: &Value) -> anyhow::Result<Value> {
        self.ask(Method::POST, path, parameters, Some(body)).await
    }

    pub(super) async fn patch(&self, path: &[&str], body: &Value) -> anyhow::Result<Value> {
        self.ask(Method::PATCH, path, &[], Some(body)).await
    }

    pub(super) async fn put(&self, path: &[&str], body: &Value) -> anyhow::Result<Value> {
        self.ask(Method::PUT, path, &[], Some(body)).await
    }

    pub(super) async fn delete(&self, path: &[&str], parameters: Parameters<'_>) -> anyhow::Result<Value> {
        self.ask(Method::DELETE, path, parameters, None).await
    }

    /// An answer that doesn't end.
    pub(super) async fn stream(&self, path: &[&str], parameters: Parameters<'_>) -> anyhow::Result<Response> {
        self.send(Method::GET, path, parameters, None, None).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_told_in_words() {
        let body = br#"{"type":"urn:x","title":"Conflict","status":409,"code":"version_conflict",
            "detail":"channel 1 is at version 3, not 2","request_id":"r-1","actual_version":3}"#;
        let told = Refused::of(409, body).to_string();
        let expected = "channel 1 is at version 3, not 2 (version_conflict)\n  actual_version: 3\n  request id: r-1";
        assert_eq!(told, expected);
        assert_eq!(Refused::of(502, b"<html>").to_string(), "the admin API answered 502 (no_problem_document)");
    }

    #[test]
    fn names_become_one_segment() {
        let api = Api::new("http://127.0.0.1:1/", SecretString::from("t"), false).unwrap();
        let url = api.url(&["channels", "a/b c"], &[("model", Some("x&y".to_owned())), ("q", None)]).unwrap();
        assert_eq!(url.as_str(), "http://127.0.0.1:1/api/v1/channels/a%2Fb%20c?model=x%26y");
        assert!(Api::new("nowhere", SecretString::from("t"), false).is_err());
    }
}
