//! A channel's credential, from where no process list shows it.

use std::io::Read as _;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use super::Usage;

/// Longest credential, in bytes.
const BYTES: u64 = 64 * 1024;

/// Where the credential is read from.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct Credential {
    /// Environment variable that holds the credential.
    #[arg(long, value_name = "NAME")]
    credential_env: Option<String>,
    /// File that holds the credential; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    credential_file: Option<PathBuf>,
}

/// Reads a credential from the environment.
pub(super) fn from_env(name: &str) -> anyhow::Result<SecretString> {
    match std::env::var(name) {
        Ok(text) if !text.trim().is_empty() => Ok(SecretString::from(text)),
        Ok(_) | Err(_) => Err(Usage(format!("the environment variable {name} doesn't hold a credential")).into()),
    }
}

/// Reads a credential from a file, or from standard input.
pub(super) fn from_file(path: &std::path::Path) -> anyhow::Result<SecretString> {
    let mut text = String::new();
    if path.as_os_str() == "-" {
        std::io::stdin()
            .take(BYTES)
            .read_to_string(&mut text)
            .context("can't read a credential from standard input")?;
    } else {
        let file = std::fs::File::open(path);
        let mut file = file.with_context(|| format!("can't read {}", path.display()))?.take(BYTES);
        file.read_to_string(&mut text).with_context(|| format!("can't read {}", path.display()))?;
    }
    Ok(SecretString::from(text.trim().to_owned()))
}

/// An account's login as the API takes it: a token file's object, or the text of an access token alone.
pub(super) fn login(read: &SecretString) -> Result<Value, Usage> {
    let text = read.expose_secret().trim();
    let login = if text.starts_with('{') { serde_json::from_str(text) } else { Ok(Value::from(text)) };
    // What a reader of JSON says may quote the text.
    login.map_err(|_| Usage("the token file is no JSON object".to_owned()))
}

impl Credential {
    /// Puts the credential into a body, if one is given.
    pub(super) fn put(&self, body: &mut Map<String, Value>) -> anyhow::Result<()> {
        let credential = match (&self.credential_env, &self.credential_file) {
            (Some(name), _) => from_env(name)?,
            (None, Some(path)) => from_file(path)?,
            (None, None) => return Ok(()),
        };
        body.insert("credential".to_owned(), credential.expose_secret().into());
        Ok(())
    }
}
