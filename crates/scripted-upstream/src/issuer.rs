//! An OAuth server: gives access tokens that expire against refresh tokens that are used once, notices when a used one
//! comes again, and can be away. Sources may take nothing but its tokens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::request::Request;
use crate::script::{After, Reply, Then};

/// What happens to a login whose used refresh token comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reuse {
    /// The request is refused.
    #[default]
    Refused,
    /// The request is refused, and all tokens of the login are void from then on.
    RevokesAll,
}

/// What tokens of a login are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long an access token lives.
    pub access_life: Duration,
    /// Whether each refresh gives another refresh token and makes the one before void.
    pub rotates: bool,
    /// What happens when a void one comes again.
    pub reuse: Reuse,
}

impl Default for Terms {
    fn default() -> Self {
        Self { access_life: Duration::from_secs(3_600), rotates: true, reuse: Reuse::Refused }
    }
}

/// How the token endpoint misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trouble {
    /// It doesn't.
    #[default]
    None,
    /// It answers with this status and changes nothing.
    Status(u16),
    /// It answers 429, wants to be left alone for so many seconds, and changes nothing.
    Busy(u32),
    /// It closes the connection and changes nothing.
    Cut,
    /// It says nothing and changes nothing.
    Silent,
    /// It does what it is asked at once and answers after so long.
    SlowAnswer(Duration),
    /// It does what it is asked, and the answer is lost.
    LostAnswer,
}

/// Tokens as they are given out.
#[derive(Clone, PartialEq, Eq)]
pub struct Tokens {
    /// The access token.
    pub access: String,
    /// The refresh token.
    pub refresh: String,
    /// Seconds until the access token expires.
    pub expires_in: u64,
}

/// One call of the token endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenCall {
    /// The login, where the refresh token is known.
    pub login: Option<String>,
    /// What came of it: `refreshed`, the error's code, or `trouble`.
    pub outcome: String,
    /// When it came.
    pub at: Instant,
}

#[derive(Debug)]
struct Login {
    terms: Terms,
    /// Access tokens with their ends.
    access: BTreeMap<String, Instant>,
    /// The refresh token that holds now.
    refresh: Option<String>,
    used: Vec<String>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    logins: BTreeMap<String, Login>,
    trouble: Trouble,
    calls: Vec<TokenCall>,
    turned_away: Vec<String>,
}

/// The OAuth server of a scripted upstream.
#[derive(Debug, Clone, Default)]
pub struct Issuer(Arc<Mutex<State>>);

impl Issuer {
    /// Begins a login, or begins it anew: its tokens before are void.
    #[must_use]
    pub fn login(&self, name: &str, terms: Terms) -> Tokens {
        let mut state = self.0.lock();
        let login = Login { terms, access: BTreeMap::new(), refresh: None, used: Vec::new() };
        state.logins.insert(name.to_owned(), login);
        state.give(name, true)
    }

    /// Lets the token endpoint misbehave from now on.
    pub fn trouble(&self, trouble: Trouble) {
        self.0.lock().trouble = trouble;
    }

    /// Makes the access tokens of a login void at once, as if they had expired.
    pub fn expire(&self, login: &str) {
        if let Some(login) = self.0.lock().logins.get_mut(login) {
            login.access.clear();
        }
    }

    /// Makes all tokens of a login void.
    pub fn revoke(&self, login: &str) {
        if let Some(login) = self.0.lock().logins.get_mut(login) {
            login.revoke();
        }
    }

    /// Calls of the token endpoint, in their order.
    #[must_use]
    pub fn calls(&self) -> Vec<TokenCall> {
        self.0.lock().calls.clone()
    }

    /// How many access tokens were given against a refresh token of this login.
    #[must_use]
    pub fn refreshed(&self, login: &str) -> usize {
        let state = self.0.lock();
        let of = |call: &&TokenCall| call.login.as_deref() == Some(login) && call.outcome == "refreshed";
        state.calls.iter().filter(of).count()
    }

    /// Sources whose requests came without a valid access token, in their order.
    #[must_use]
    pub fn turned_away(&self) -> Vec<String> {
        self.0.lock().turned_away.clone()
    }

    /// Whether a request to `source` carries a valid access token of `login`.
    pub(crate) fn admits(&self, source: &str, login: &str, request: &Request) -> bool {
        let header = request.headers.iter().find(|(name, _)| name == "authorization").map(|(_, value)| value.as_str());
        let token = header.and_then(|value| value.strip_prefix("Bearer "));
        let mut state = self.0.lock();
        let ends = token.and_then(|token| state.logins.get(login)?.access.get(token).copied());
        let valid = ends.is_some_and(|ends| Instant::now() < ends);
        if !valid {
            state.turned_away.push(source.to_owned());
        }
        valid
    }

    /// Answers a request to the token endpoint.
    pub(crate) fn token(&self, request: &Request) -> Reply {
        let mut state = self.0.lock();
        let asked = fields(request);
        let refresh = asked.get("refresh_token").map(String::as_str).unwrap_or_default();
        let owns = |(_, login): &(&String, &Login)| login.refresh.as_deref() == Some(refresh);
        let used = |(_, login): &(&String, &Login)| login.used.iter().any(|used| used == refresh);
        let holder = state.logins.iter().find(owns).map(|(name, _)| name.clone());
        let reused = state.logins.iter().find(used).map(|(name, _)| name.clone());
        let login = holder.clone().or_else(|| reused.clone());
        let trouble = state.trouble;
        let (outcome, reply) = match (trouble, asked.get("grant_type").map(String::as_str), holder, reused) {
            (Trouble::Status(status), ..) => ("trouble", Reply::html(status)),
            (Trouble::Busy(seconds), ..) => {
                ("trouble", Reply::error(429, "rate_limited").header("retry-after", seconds.to_string()))
            }
            (Trouble::Cut, ..) => ("trouble", Reply::empty(200).fault(After::Request, Then::Cut)),
            (Trouble::Silent, ..) => ("trouble", Reply::empty(200).fault(After::Request, Then::Hang)),
            (_, Some("refresh_token"), Some(name), _) => {
                let tokens = state.give(&name, false);
                let answer = json!({
                    "access_token": tokens.access, "token_type": "Bearer", "expires_in": tokens.expires_in,
                    "refresh_token": tokens.refresh, "scope": "chat",
                });
                ("refreshed", Reply::json(200, answer))
            }
            (_, Some("refresh_token"), None, Some(name)) => {
                if let Some(login) = state.logins.get_mut(&name)
                    && login.terms.reuse == Reuse::RevokesAll
                {
                    login.revoke();
                }
                // Some quote what they were sent.
                ("invalid_grant", refused("invalid_grant", &format!("the refresh token {refresh} was used before")))
            }
            (_, Some("refresh_token"), None, None) => {
                ("invalid_grant", refused("invalid_grant", "the refresh token isn't known"))
            }
            (_, Some(_) | None, ..) => {
                ("unsupported_grant_type", refused("unsupported_grant_type", "only refresh tokens are taken"))
            }
        };
        state.calls.push(TokenCall { login, outcome: outcome.to_owned(), at: Instant::now() });
        match trouble {
            Trouble::SlowAnswer(wait) => reply.delay_head(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            Trouble::LostAnswer => reply.fault(After::Request, Then::Cut),
            Trouble::None | Trouble::Status(_) | Trouble::Busy(_) | Trouble::Cut | Trouble::Silent => reply,
        }
    }
}

impl Login {
    fn revoke(&mut self) {
        self.access.clear();
        self.used.extend(self.refresh.take());
    }
}

impl State {
    fn give(&mut self, name: &str, first: bool) -> Tokens {
        self.next += 1;
        let n = self.next;
        let Some(login) = self.logins.get_mut(name) else {
            return Tokens { access: String::new(), refresh: String::new(), expires_in: 0 };
        };
        let access = format!("oat-{name}-{n}-accessCanary4f8a61c2d9e7b350");
        login.access.insert(access.clone(), Instant::now() + login.terms.access_life);
        if first || login.terms.rotates {
            login.used.extend(login.refresh.take());
            login.refresh = Some(format!("ort-{name}-{n}-refreshCanary77aa0e12c4d8f9b1"));
        }
        let refresh = login.refresh.clone().unwrap_or_default();
        Tokens { access, refresh, expires_in: login.terms.access_life.as_secs() }
    }
}

fn refused(error: &str, description: &str) -> Reply {
    Reply::json(400, json!({"error": error, "error_description": description}))
}

/// The members of a form or of a JSON object.
fn fields(request: &Request) -> BTreeMap<String, String> {
    if let Ok(Value::Object(object)) = serde_json::from_slice::<Value>(&request.body) {
        let texts = object.into_iter().filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())));
        return texts.collect();
    }
    let form = String::from_utf8_lossy(&request.body).into_owned();
    let pairs = form.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [bytes.next(), bytes.next()].map(Option::unwrap_or_default);
                std::str::from_utf8(&digits).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok()).unwrap_or(b'?')
            }
            other => other,
        });
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Body;

    fn ask(issuer: &Issuer, body: &str) -> (u16, Value) {
        let request = Request {
            method: "POST".into(),
            path: "/oauth/token".into(),
            headers: Vec::new(),
            body: bytes::Bytes::copy_from_slice(body.as_bytes()),
            keep_alive: true,
        };
        let reply = issuer.token(&request);
        let Body::Json(json) = reply.body else { return (reply.status, Value::Null) };
        (reply.status, json)
    }

    fn refresh(issuer: &Issuer, token: &str) -> (u16, Value) {
        ask(issuer, &format!("grant_type=refresh_token&refresh_token={token}&client_id=a%20b"))
    }

    fn admits(issuer: &Issuer, access: &str) -> bool {
        let headers = vec![("authorization".to_owned(), format!("Bearer {access}"))];
        let (method, path, body) = ("POST".into(), "/a/v1/chat/completions".into(), bytes::Bytes::new());
        issuer.admits("a", "a", &Request { method, path, headers, body, keep_alive: true })
    }

    #[test]
    fn refresh_tokens_rotate_and_a_used_one_is_refused() {
        let issuer = Issuer::default();
        let first = issuer.login("a", Terms::default());
        assert!(admits(&issuer, &first.access));
        let (status, second) = refresh(&issuer, &first.refresh);
        assert_eq!((status, second["expires_in"].as_u64()), (200, Some(3_600)));
        assert_eq!(refresh(&issuer, &first.refresh).1["error"], "invalid_grant");
        assert!(admits(&issuer, second["access_token"].as_str().unwrap()));
        assert_eq!(refresh(&issuer, second["refresh_token"].as_str().unwrap()).0, 200);
        assert_eq!(issuer.refreshed("a"), 2);
        assert_eq!(issuer.calls().len(), 3);
    }

    #[test]
    fn reuse_can_cost_the_whole_login() {
        let issuer = Issuer::default();
        let first = issuer.login("a", Terms { reuse: Reuse::RevokesAll, ..Terms::default() });
        let second = refresh(&issuer, &first.refresh).1;
        refresh(&issuer, &first.refresh);
        assert!(!admits(&issuer, second["access_token"].as_str().unwrap()));
        assert_eq!(refresh(&issuer, second["refresh_token"].as_str().unwrap()).0, 400);
    }

    #[test]
    fn access_tokens_expire_and_who_comes_with_one_is_counted() {
        let issuer = Issuer::default();
        let none = Terms { access_life: Duration::ZERO, rotates: false, ..Terms::default() };
        let first = issuer.login("a", none);
        assert!(!admits(&issuer, &first.access));
        assert!(!admits(&issuer, "unknown"));
        assert_eq!(issuer.turned_away(), ["a", "a"]);
        assert_eq!(refresh(&issuer, &first.refresh).1["refresh_token"], first.refresh, "it doesn't rotate");
    }

    #[test]
    fn trouble_changes_nothing_unless_only_the_answer_is_in_trouble() {
        let issuer = Issuer::default();
        let first = issuer.login("a", Terms::default());
        for trouble in [Trouble::Status(503), Trouble::Cut, Trouble::Silent] {
            issuer.trouble(trouble);
            refresh(&issuer, &first.refresh);
        }
        issuer.trouble(Trouble::LostAnswer);
        assert_eq!(issuer.refreshed("a"), 0);
        refresh(&issuer, &first.refresh);
        issuer.trouble(Trouble::None);
        assert_eq!(refresh(&issuer, &first.refresh).0, 400);
        assert_eq!(ask(&issuer, r#"{"grant_type":"password"}"#).1["error"], "unsupported_grant_type");
    }
}
