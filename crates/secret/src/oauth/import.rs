//! Reading a token file as login tools write it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::Value;

use super::{OauthCredential, Refreshing, TokenBody};

/// Longest token, in bytes: a header must hold an access token.
const TOKEN_BYTES: usize = 16 * 1024;
/// A number of seconds is below this one, a number of milliseconds above it, from 1973 to 5138.
const MILLISECONDS_FROM: i64 = 100_000_000_000;

/// What a platform's token files leave out because its tools have it built in.
#[derive(Debug, Clone, Copy, Default)]
pub struct Defaults<'a> {
    /// URL of the token endpoint.
    pub endpoint: Option<&'a str>,
    /// How it wants to be asked.
    pub body: TokenBody,
    /// The client that the tokens were given to.
    pub client_id: Option<&'a str>,
}

/// Why a text is no token file. Nothing of the text is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// It isn't a JSON object.
    #[error("a token file is a JSON object")]
    NotJson,
    /// There is no access token where one is looked for.
    #[error("there is no access token in it (`access_token`, also under `tokens` or `claudeAiOauth`)")]
    NoAccessToken,
    /// A token is empty, too long, or can't be sent.
    #[error("a token in it is empty, too long, or has characters that can't be sent")]
    Token,
    /// A member has another type than expected.
    #[error("a member of it has another form than expected")]
    Member,
    /// There is a refresh token, and nothing says where it is to be sent.
    #[error("it has a refresh token and no `token_endpoint`, and the platform has none by default")]
    NoEndpoint,
    /// The token endpoint is no URL that may be asked.
    #[error("the token endpoint isn't a URL with http or https, a host and no user")]
    Endpoint,
}

/// The members that are read, by the names that tools use. Others are passed over.
#[derive(Deserialize)]
struct File {
    #[serde(alias = "accessToken")]
    access_token: Option<String>,
    #[serde(alias = "refreshToken")]
    refresh_token: Option<String>,
    #[serde(alias = "expiresAt", alias = "expiry_date", alias = "expires_at_ms")]
    expires_at: Option<i64>,
    expires_in: Option<i64>,
    scope: Option<String>,
    scopes: Option<Vec<String>>,
    #[serde(alias = "token_uri", alias = "token_url")]
    token_endpoint: Option<String>,
    token_body: Option<TokenBody>,
    client_id: Option<String>,
    client_secret: Option<String>,
}

impl OauthCredential {
    /// Reads a token file: an object with `access_token`, or with one under `tokens` or `claudeAiOauth`; besides
    /// `refresh_token`, `expires_at` (seconds or milliseconds) or `expires_in`, `scope` or `scopes`, `token_endpoint`,
    /// `token_body`, `client_id` and `client_secret`. Without any end, the one that a JWT states of itself is taken.
    ///
    /// # Errors
    /// [`ImportError`].
    pub fn import(text: &SecretString, defaults: Defaults<'_>, now_ms: i64) -> Result<Self, ImportError> {
        let whole: Value = serde_json::from_str(text.expose_secret()).map_err(|_| ImportError::NotJson)?;
        let inner = ["tokens", "claudeAiOauth"].into_iter().find_map(|name| whole.get(name)).unwrap_or(&whole).clone();
        if !inner.is_object() {
            return Err(ImportError::NotJson);
        }
        let file: File = serde_json::from_value(inner).map_err(|_| ImportError::Member)?;
        let access = token(file.access_token.ok_or(ImportError::NoAccessToken)?)?;
        let expires_ms = match (file.expires_at, file.expires_in) {
            (Some(at), _) if at < MILLISECONDS_FROM => Some(at.saturating_mul(1_000)),
            (Some(at), _) => Some(at),
            (None, Some(seconds)) => Some(now_ms.saturating_add(seconds.saturating_mul(1_000))),
            (None, None) => jwt_end(access.expose_secret()),
        };
        let scopes = file
            .scopes
            .unwrap_or_else(|| file.scope.unwrap_or_default().split_ascii_whitespace().map(str::to_owned).collect());
        let refreshing = match file.refresh_token {
            None => None,
            Some(refresh) => {
                let own = file.token_endpoint;
                let body = file.token_body.unwrap_or(if own.is_some() { TokenBody::Form } else { defaults.body });
                let endpoint = own.or_else(|| defaults.endpoint.map(str::to_owned)).ok_or(ImportError::NoEndpoint)?;
                if !may_be_asked(&endpoint) {
                    return Err(ImportError::Endpoint);
                }
                Some(Refreshing {
                    token: token(refresh)?,
                    endpoint,
                    body,
                    client_id: file.client_id.or_else(|| defaults.client_id.map(str::to_owned)),
                    client_secret: file.client_secret.map(SecretString::from),
                })
            }
        };
        Ok(Self { access, issued_ms: now_ms, expires_ms, scopes, refreshing })
    }
}

fn token(text: String) -> Result<SecretString, ImportError> {
    let text = SecretString::from(text.trim());
    let fits = (1..=TOKEN_BYTES).contains(&text.expose_secret().len());
    if fits && text.expose_secret().bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(text)
    } else {
        Err(ImportError::Token)
    }
}

/// Looked at coarsely; whoever asks the endpoint reads it exactly.
fn may_be_asked(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    host.is_some_and(|host| !host.is_empty() && !host.contains('@')) && url.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The end that a JWT states; its signature is its issuer's to check.
fn jwt_end(token: &str) -> Option<i64> {
    let payload = token.split('.').nth(1)?;
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let claims: Value = serde_json::from_slice(&payload).ok()?;
    claims.get("exp")?.as_i64()?.checked_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000_000;
    const OWN: Defaults<'static> =
        Defaults { endpoint: Some("https://auth.example.com/token"), body: TokenBody::Json, client_id: Some("app") };

    fn read(text: &str, defaults: Defaults<'_>) -> Result<OauthCredential, ImportError> {
        OauthCredential::import(&SecretString::from(text), defaults, NOW)
    }

    #[test]
    fn files_of_several_tools_are_read() {
        let check = |text: &str, expires_ms: Option<i64>, scopes: &[&str]| {
            let found = read(text, OWN).unwrap();
            assert_eq!((found.access.expose_secret(), found.expires_ms), ("at", expires_ms), "{text}");
            assert_eq!(found.scopes, scopes, "{text}");
            let refreshing = found.refreshing.unwrap();
            assert_eq!((refreshing.token.expose_secret(), refreshing.client_id.as_deref()), ("rt", Some("app")));
            assert_eq!((refreshing.endpoint.as_str(), refreshing.body), (OWN.endpoint.unwrap(), TokenBody::Json));
        };
        check(
            r#"{"access_token":"at","refresh_token":" rt\n","expires_in":60,"scope":"a b"}"#,
            Some(NOW + 60_000),
            &["a", "b"],
        );
        check(
            r#"{"claudeAiOauth":{"accessToken":"at","refreshToken":"rt","expiresAt":1800000060000,"scopes":["a"]}}"#,
            Some(NOW + 60_000),
            &["a"],
        );
        check(r#"{"tokens":{"access_token":"at","refresh_token":"rt","id_token":"x"},"last_refresh":"y"}"#, None, &[]);
        check(r#"{"access_token":"at","refresh_token":"rt","expires_at":1800000060}"#, Some(NOW + 60_000), &[]);
    }

    #[test]
    fn a_jwt_states_its_own_end() {
        let token = format!("x.{}.y", URL_SAFE_NO_PAD.encode(r#"{"exp":1800000060}"#));
        let found = read(&format!(r#"{{"access_token":"{token}"}}"#), OWN).unwrap();
        assert_eq!(found.expires_ms, Some(NOW + 60_000));
        assert!(found.refreshing.is_none());
    }

    #[test]
    fn what_is_no_token_file_is_refused_without_quoting_it() {
        let check = |text: &str, defaults, expected| assert_eq!(read(text, defaults).unwrap_err(), expected, "{text}");
        check("token", OWN, ImportError::NotJson);
        check("[]", OWN, ImportError::NotJson);
        check("{}", OWN, ImportError::NoAccessToken);
        check(r#"{"access_token":""}"#, OWN, ImportError::Token);
        check(r#"{"access_token":"a b"}"#, OWN, ImportError::Token);
        check(r#"{"access_token":7}"#, OWN, ImportError::Member);
        let both = r#"{"access_token":"a","refresh_token":"r"}"#;
        check(both, Defaults::default(), ImportError::NoEndpoint);
        for endpoint in ["auth.example.com", "ftp://x", "https://", "https://u:p@x/token"] {
            check(both, Defaults { endpoint: Some(endpoint), ..OWN }, ImportError::Endpoint);
        }
    }
}
