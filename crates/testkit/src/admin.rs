//! The admin API, as an administrator's program uses it.

mod channel;

use std::time::Duration;

use reqwest::Method;
use serde_json::{Map, Value, json};

pub use channel::ChannelSpec;

use crate::story::Story;
use crate::wait::{until, wait_until};

/// How long the read model may lag behind before a test gives up.
const READABLE: Duration = Duration::from_secs(20);

/// An answer of the admin API.
#[derive(Debug, Clone)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub text: String,
}

impl Reply {
    /// The body as JSON; null when it isn't.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// A header; `name` in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// A client of the admin API.
#[derive(Debug, Clone)]
pub struct Admin {
    url: String,
    token: String,
    http: reqwest::Client,
}

impl Admin {
    pub(crate) fn at(url: String, token: String, http: reqwest::Client) -> Self {
        Self { url, token, http }
    }

    /// Base URL, without `/api/v1`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The admin token.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Waits until the read model can be asked: its tables are made by the projector, which may still be at it.
    pub(crate) async fn readable(&self) {
        wait_until(READABLE, "the read model can be asked", async || {
            let reply = self.ask(Method::GET, "/requests?limit=1", None).await;
            until(reply.status == 200, || format!("{} {}", reply.status, reply.text))
        })
        .await;
    }

    /// Asks, and takes any answer. `path` begins behind `/api/v1`.
    ///
    /// # Panics
    /// When nobody answers.
    pub async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Reply {
        let url = format!("{}/api/v1{path}", self.url);
        let mut request = self.http.request(method.clone(), &url).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let asked = async {
            let answer = request.send().await?;
            let status = answer.status().as_u16();
            let text = |value: &reqwest::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
            let headers = answer.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
            Ok::<_, reqwest::Error>(Reply { status, headers, text: answer.text().await? })
        };
        match asked.await {
            Ok(reply) => reply,
            Err(error) => panic!("{method} {url}: {error:?}"),
        }
    }

    async fn done(&self, method: Method, path: &str, body: Option<&Value>) -> Value {
        let reply = self.ask(method.clone(), path, body).await;
        if !(200..300).contains(&reply.status) {
            panic!("{method} {path} answered {}: {}\nsent: {body:?}", reply.status, reply.text);
        }
        reply.json()
    }

    /// Reads.
    ///
    /// # Panics
    /// When the answer isn't a success; so do all methods below.
    pub async fn get(&self, path: &str) -> Value {
        self.done(Method::GET, path, None).await
    }

    /// Creates or acts.
    pub async fn post(&self, path: &str, body: Value) -> Value {
        self.done(Method::POST, path, Some(&body)).await
    }

    /// Edits.
    pub async fn patch(&self, path: &str, body: Value) -> Value {
        self.done(Method::PATCH, path, Some(&body)).await
    }

    /// Sets.
    pub async fn put(&self, path: &str, body: Value) -> Value {
        self.done(Method::PUT, path, Some(&body)).await
    }

    /// Deletes.
    pub async fn delete(&self, path: &str) -> Value {
        self.done(Method::DELETE, path, None).await
    }

    /// Creates a group.
    pub async fn group(&self, name: &str) -> Value {
        self.post("/groups", json!({"name": name})).await
    }

    /// Issues a client key and gives its token.
    pub async fn key(&self, name: &str, group: &str) -> String {
        self.key_with(json!({"name": name, "group": group})).await
    }

    /// Issues a client key with all that `body` says and gives its token.
    pub async fn key_with(&self, body: Value) -> String {
        let answer = self.post("/keys", body).await;
        match answer.get("token").and_then(Value::as_str) {
            Some(token) => token.to_owned(),
            None => panic!("no token in {answer}"),
        }
    }

    /// Creates a channel and gives its source, e.g. `channel:1`.
    pub async fn channel(&self, spec: ChannelSpec) -> String {
        let answer = self.post("/channels", spec.into_json()).await;
        match answer.pointer("/channel/source").and_then(Value::as_str) {
            Some(source) => source.to_owned(),
            None => panic!("no source in {answer}"),
        }
    }

    /// Edits a channel as it is now, and gives the answer.
    pub async fn edit_channel(&self, name: &str, patch: Value) -> Value {
        let path = format!("/channels/{name}");
        let version = self.get(&path).await.get("version").cloned().unwrap_or_default();
        let mut body = Map::from_iter([("expected_version".to_owned(), version)]);
        body.extend(patch.as_object().cloned().unwrap_or_default());
        self.patch(&path, Value::Object(body)).await
    }

    /// Changes numbers of the selector fold for all: what is to be changed only.
    pub async fn policy(&self, change: Value) -> Value {
        self.policy_of("global", json!({"selector": change})).await
    }

    /// Changes numbers of a scope: `change` has members `selector` and `request`, with what is to be changed only.
    pub async fn policy_of(&self, scope: &str, change: Value) -> Value {
        let held = self.get(&format!("/policy?scope={scope}")).await;
        let part = |name: &str| {
            let mut numbers = held.get(name).cloned().unwrap_or_default();
            if let Some(change) = change.get(name) {
                merge(&mut numbers, change);
            }
            numbers
        };
        let version = held.get("version").cloned().unwrap_or_default();
        let body = json!({
            "scope": scope,
            "expected_version": version,
            "selector": part("selector"),
            "request": part("request"),
        });
        self.put("/policy", body).await
    }

    /// A request's history, once its end is in the read model.
    pub async fn history(&self, request: &str) -> Story {
        let path = format!("/requests/{request}");
        wait_until(READABLE, format_args!("the end of request {request} is readable"), async || {
            let reply = self.ask(Method::GET, &path, None).await;
            let json = reply.json();
            let ended = json.pointer("/request/finished_position").is_some_and(|position| !position.is_null());
            if ended { Ok(Story::new(json)) } else { Err(format!("{} {}", reply.status, reply.text)) }
        })
        .await
    }

    /// Requests, newest first; `query` as it stands behind the question mark.
    pub async fn requests(&self, query: &str) -> Vec<Value> {
        let answer = self.get(&format!("/requests?{query}")).await;
        answer.get("requests").and_then(Value::as_array).cloned().unwrap_or_default()
    }

    /// A source with its live state; null when there is none.
    pub async fn source(&self, source: &str) -> Value {
        let answer = self.get("/sources").await;
        let sources = answer.get("sources").and_then(Value::as_array).cloned().unwrap_or_default();
        sources.into_iter().find(|s| s.get("source").and_then(Value::as_str) == Some(source)).unwrap_or_default()
    }

    /// The position that the admin role's own fold of the configuration has reached.
    pub async fn config_position(&self) -> u64 {
        let answer = self.get("/sources").await;
        let position = answer.pointer("/read/config_position").cloned().unwrap_or_default();
        position.as_u64().or_else(|| position.as_str()?.parse().ok()).unwrap_or_default()
    }

    /// Opens the live feed.
    ///
    /// # Panics
    /// When it can't be opened.
    pub async fn tail(&self, query: &str) -> reqwest::Response {
        let url = format!("{}/api/v1/tail?{query}", self.url);
        match self.http.get(&url).bearer_auth(&self.token).timeout(Duration::from_secs(600)).send().await {
            Ok(answer) if answer.status().is_success() => answer,
            Ok(answer) => panic!("{url} answered {}: {}", answer.status(), answer.text().await.unwrap_or_default()),
            Err(error) => panic!("{url}: {error:?}"),
        }
    }
}

fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (name, value) in change {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change.clone(),
    }
}
