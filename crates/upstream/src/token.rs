//! Asking an OAuth server for the next access token. What follows from its answer isn't decided here.

use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, Method};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use url::Url;
use url::form_urlencoded::Serializer;
use waybill_domain::observation::TransportFault;
use waybill_secret::{Refreshing, TokenBody};
use waybill_wire::mask::mask;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::dispatch::{Dispatcher, Endpoint, Limits, Once};

const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Most of an answer that is read: tokens may be JWTs, and there may be three of them.
const ANSWER_BYTES: usize = 256 * 1024;
/// Longest token, in bytes: a header must hold it.
const TOKEN_BYTES: usize = 16 * 1024;

/// What an OAuth server gave.
pub struct Granted {
    /// The access token.
    pub access: SecretString,
    /// Another refresh token; without one the former goes on holding.
    pub refresh: Option<SecretString>,
    /// How long the access token lives from now on.
    pub expires_in: Option<Duration>,
    /// What it may be used for, where that was said.
    pub scopes: Option<Vec<String>>,
}

impl std::fmt::Debug for Granted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Granted")
            .field("rotated", &self.refresh.is_some())
            .field("expires_in", &self.expires_in)
            .finish_non_exhaustive()
    }
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenFault {
    /// The token endpoint can't be asked at all.
    #[error("the token endpoint can't be asked: {reason}")]
    Endpoint {
        /// Why.
        reason: String,
    },
    /// No answer came, or it broke off: whether the refresh token was used up, nobody can tell.
    #[error("the OAuth server didn't answer: {0}")]
    Transport(#[from] TransportFault),
    /// It refused.
    #[error("the OAuth server answered {status}{}", words(code.as_deref(), message.as_deref()))]
    Refused {
        /// Its status.
        status: u16,
        /// The code of its error.
        code: Option<String>,
        /// Its words, masked.
        message: Option<String>,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// It answered with a success that holds no token.
    #[error("the OAuth server's answer holds no access token that can be sent")]
    NoToken,
}

fn words(code: Option<&str>, message: Option<&str>) -> String {
    [code, message].into_iter().flatten().map(|word| format!(": {word}")).collect()
}

impl TokenFault {
    /// Whether asking again with the same refresh token is of no use: the server knows it no more, or doesn't serve this
    /// client. Everything that may pass, and everything that isn't plainly said, isn't that.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Endpoint { .. } => true,
            Self::Transport(_) | Self::NoToken => false,
            Self::Refused { status, code, .. } => {
                let final_code = code.as_deref().is_some_and(|code| {
                    matches!(
                        code,
                        "invalid_grant"
                            | "invalid_client"
                            | "unauthorized_client"
                            | "unsupported_grant_type"
                            | "invalid_scope"
                            | "refresh_token_reused"
                            | "refresh_token_expired"
                            | "refresh_token_invalidated"
                    )
                });
                (400..500).contains(status) && *status != 429 && final_code
            }
        }
    }
}

/// What is read of an answer; wiped afterwards. Whatever else is wrong with it, its tokens count: the refresh token that
/// they were given for may be used up.
#[derive(Deserialize, Zeroize, ZeroizeOnDrop)]
struct Answer {
    access_token: Option<String>,
    refresh_token: Option<String>,
    #[serde(default, deserialize_with = "life")]
    #[zeroize(skip)]
    expires_in: Option<Duration>,
    #[serde(default, deserialize_with = "words_of")]
    scope: Option<Vec<String>>,
}

/// A life in seconds, as a number or as text. What is no time, or none that anything can be done in, says nothing: such a
/// token serves until it is refused.
fn life<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<Duration>, D::Error> {
    let seconds = match Value::deserialize(reader)? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let seconds = seconds.filter(|seconds: &f64| *seconds >= 1.0).map(f64::floor);
    Ok(seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()))
}

/// Scopes in one text, as the standard has them, or one by one.
fn words_of<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<Vec<String>>, D::Error> {
    let split = |text: &str| text.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>();
    Ok(match Value::deserialize(reader)? {
        Value::String(text) => Some(split(&text)),
        Value::Array(all) => Some(all.iter().filter_map(Value::as_str).flat_map(split).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    })
}

impl Dispatcher {
    /// Asks for the next access token. The request goes out once, over a connection of its own: a refresh token that is
    /// sent twice may count as stolen.
    ///
    /// # Errors
    /// [`TokenFault`].
    pub async fn refresh(
        &self,
        refreshing: &Refreshing,
        allow_private: bool,
        deadline: Duration,
    ) -> Result<Granted, TokenFault> {
        let unusable = |reason: String| TokenFault::Endpoint { reason };
        let url = Url::parse(&refreshing.endpoint).map_err(|fault| unusable(fault.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some() {
            return Err(unusable("it isn't a URL with http or https and without a user".to_owned()));
        }
        let endpoint = Endpoint::of(&url).map_err(|fault| unusable(fault.to_string()))?;
        let (kind, body) = match refreshing.body {
            TokenBody::Form => (FORM, form(refreshing)),
            TokenBody::Json => (JSON, json(refreshing)),
        };
        let limits = Limits { head: deadline, ..Limits::default() };
        let once = Once { method: Method::POST, kind, body, allow_private };
        let mut reply = self.send_once(&endpoint, once, limits).await?;
        let (status, wait) = (reply.status(), reply.headers().get(RETRY_AFTER).and_then(seconds));
        let late = |_| TokenFault::Transport(crate::fault::body_timed_out());
        let (body, _) = tokio::time::timeout(deadline, reply.read_up_to(ANSWER_BYTES)).await.map_err(late)??;
        if status.is_success() {
            return granted(&body).ok_or(TokenFault::NoToken);
        }
        let (code, message) = error_of(&body, refreshing);
        Err(TokenFault::Refused { status: status.as_u16(), code, message, retry_after: wait })
    }
}

fn members(refreshing: &Refreshing) -> impl Iterator<Item = (&'static str, &str)> {
    let id = refreshing.client_id.as_deref().map(|id| ("client_id", id));
    let secret = refreshing.client_secret.as_ref().map(|secret| ("client_secret", secret.expose_secret()));
    [("grant_type", "refresh_token"), ("refresh_token", refreshing.token.expose_secret())]
        .into_iter()
        .chain(id)
        .chain(secret)
}

fn form(refreshing: &Refreshing) -> Bytes {
    Serializer::new(String::new()).extend_pairs(members(refreshing)).finish().into()
}

fn json(refreshing: &Refreshing) -> Bytes {
    let object: serde_json::Map<String, Value> =
        members(refreshing).map(|(name, value)| (name.to_owned(), Value::from(value))).collect();
    Value::Object(object).to_string().into()
}

fn granted(body: &[u8]) -> Option<Granted> {
    let mut answer: Answer = serde_json::from_slice(body).ok()?;
    let access = sendable(answer.access_token.take()?)?;
    // A refresh token that can't be kept would be lost either way; the answer as a whole isn't usable then.
    let refresh = match answer.refresh_token.take().filter(|token| !token.is_empty()) {
        Some(token) => Some(sendable(token)?),
        None => None,
    };
    let (expires_in, scopes) = (answer.expires_in, answer.scope.take());
    Some(Granted { access, refresh, expires_in, scopes })
}

fn sendable(token: String) -> Option<SecretString> {
    let token = SecretString::from(token);
    let text = token.expose_secret();
    let fits = (1..=TOKEN_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    fits.then_some(token)
}

/// Code and masked words of an error: as the standard has them, or in an object as some servers send it. What was sent is
/// masked wherever it is quoted, whether it looks like a secret or not.
fn error_of(body: &[u8], sent: &Refreshing) -> (Option<String>, Option<String>) {
    let Ok(whole) = serde_json::from_slice::<Value>(body) else { return (None, None) };
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let (code, message) = match whole.get("error") {
        Some(Value::String(code)) => (Some(code.clone()), text(&whole, "error_description")),
        Some(error @ Value::Object(_)) => (text(error, "code").or_else(|| text(error, "type")), text(error, "message")),
        Some(_) | None => (None, text(&whole, "message")),
    };
    // A code is a word; anything else is somebody's prose.
    let is_word = |code: &String| code.len() <= 64 && code.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let secrets = std::iter::once(&sent.token).chain(&sent.client_secret).map(ExposeSecret::expose_secret);
    let masked = |message: String| {
        let unquoted = secrets.filter(|secret| !secret.is_empty());
        mask(&unquoted.fold(message, |message, secret| message.replace(secret, "[masked]")))
    };
    (code.filter(is_word), message.map(masked))
}

fn seconds(value: &HeaderValue) -> Option<Duration> {
    value.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, body: &str) -> TokenFault {
        let (code, message) = error_of(body.as_bytes(), &refreshing());
        TokenFault::Refused { status, code, message, retry_after: None }
    }

    #[test]
    fn only_what_is_plainly_said_is_final() {
        let check = |status: u16, body: &str, is_final: bool| {
            assert_eq!(refused(status, body).is_final(), is_final, "{status} {body}");
        };
        check(400, r#"{"error":"invalid_grant","error_description":"used"}"#, true);
        check(401, r#"{"error":{"code":"refresh_token_reused","message":"used"}}"#, true);
        check(401, r#"{"error":"invalid_client"}"#, true);
        check(400, r#"{"error":{"type":"invalid_grant"}}"#, true);
        check(400, r#"{"error":"temporarily_unavailable"}"#, false);
        check(400, "<html>", false);
        check(429, r#"{"error":"invalid_grant"}"#, false);
        check(503, r#"{"error":"invalid_grant"}"#, false);
        assert!(TokenFault::Endpoint { reason: String::new() }.is_final());
        assert!(!TokenFault::NoToken.is_final());
    }

    #[test]
    fn answers_are_read_and_shown_without_their_tokens() {
        let found = granted(br#"{"access_token":"canary-a","refresh_token":"canary-r","expires_in":60,"scope":"a b"}"#);
        let found = found.unwrap();
        assert_eq!(found.expires_in, Some(Duration::from_secs(60)));
        assert_eq!(found.scopes.as_deref(), Some(["a".to_owned(), "b".to_owned()].as_slice()));
        assert!(!format!("{found:?}").contains("canary"));
        assert!(granted(br#"{"access_token":"a","refresh_token":""}"#).unwrap().refresh.is_none());
        for body in ["", "{}", r#"{"access_token":""}"#, r#"{"access_token":"a b"}"#] {
            assert!(granted(body.as_bytes()).is_none(), "{body}");
        }
    }

    #[test]
    fn tokens_count_whatever_the_answer_says_of_their_life() {
        let check = |life: &str, expected: Option<u64>| {
            let body = format!(r#"{{"access_token":"a","refresh_token":"r","scope":["x","y z"],"expires_in":{life}}}"#);
            let found = granted(body.as_bytes()).unwrap_or_else(|| panic!("the login is lost with {life}"));
            assert_eq!(found.expires_in.map(|lives| lives.as_secs()), expected, "{life}");
            assert!(found.refresh.is_some() && found.scopes.is_some_and(|scopes| scopes.len() == 3), "{life}");
        };
        check("3600", Some(3_600));
        check("\"3600\"", Some(3_600));
        check("3599.9", Some(3_599));
        for nothing in ["0", "-1", "0.5", "\"soon\"", "\"NaN\"", "null", "true", "[1]", "{}", "1e300"] {
            check(nothing, None);
        }
        assert!(granted(br#"{"access_token":"a"}"#).unwrap().expires_in.is_none());
    }

    fn refreshing() -> Refreshing {
        Refreshing {
            token: SecretString::from("r&t"),
            endpoint: String::new(),
            body: TokenBody::Form,
            client_id: Some("app".to_owned()),
            client_secret: None,
        }
    }

    #[test]
    fn what_was_sent_is_masked_where_it_is_quoted() {
        let quoting = r#"{"error":"invalid_grant","error_description":"token r&t was used"}"#;
        assert!(!refused(400, quoting).to_string().contains("r&t"));
    }

    #[test]
    fn a_request_says_what_the_standard_asks_for() {
        let refreshing = refreshing();
        assert_eq!(form(&refreshing), "grant_type=refresh_token&refresh_token=r%26t&client_id=app");
        let json: Value = serde_json::from_slice(&json(&refreshing)).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"grant_type": "refresh_token", "refresh_token": "r&t", "client_id": "app"})
        );
    }
}
