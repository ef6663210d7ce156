//! Where the admin API is and with which token: flags, then the environment, then the file of a running `waybill dev`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use secrecy::SecretString;
use serde::Deserialize;

use super::Usage;
use super::api::Api;

/// The file that a development fleet writes, in the current folder or above.
const DEV_FILE: &str = ".waybill/dev.json";

/// Where the admin API is.
#[derive(Debug, Args)]
pub(crate) struct Connection {
    /// Base URL of the admin API. By default that of the `waybill dev` that runs here.
    #[arg(
        long,
        env = "WAYBILL_ADMIN_URL",
        hide_env_values = true,
        global = true,
        value_name = "URL",
        help_heading = "Connection"
    )]
    admin_url: Option<String>,
    /// File with the admin token. By default `WAYBILL_ADMIN_TOKEN`, or that of the `waybill dev` that runs here.
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    admin_token_file: Option<PathBuf>,
    /// Print the answer as JSON.
    #[arg(long, global = true)]
    json: bool,
}

/// What is read of a development fleet's file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DevFile {
    admin_url: Option<String>,
    admin_token: Option<SecretString>,
}

impl Connection {
    /// The API to talk to.
    pub(super) fn open(self) -> anyhow::Result<Api> {
        let dev = match (&self.admin_url, &self.admin_token_file) {
            (Some(_), Some(_)) => DevFile::default(),
            (None | Some(_), None) | (None, Some(_)) => dev_file(&std::env::current_dir()?)?,
        };
        let token = match &self.admin_token_file {
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
                Some(SecretString::from(text.trim().to_owned()))
            }
            None => std::env::var("WAYBILL_ADMIN_TOKEN").ok().map(SecretString::from).or(dev.admin_token),
        };
        let missing = |what: &str| {
            Usage(format!(
                "{what}; start `waybill dev` here, or set WAYBILL_ADMIN_URL and WAYBILL_ADMIN_TOKEN (or --admin-url and --admin-token-file)"
            ))
        };
        let url = self.admin_url.or(dev.admin_url).ok_or_else(|| missing("where the admin API is isn't known"))?;
        let token = token.ok_or_else(|| missing("no admin token is known"))?;
        Api::new(&url, token, self.json)
    }
}

fn dev_file(from: &Path) -> anyhow::Result<DevFile> {
    let found = from.ancestors().map(|folder| folder.join(DEV_FILE)).find(|path| path.is_file());
    let Some(path) = found else { return Ok(DevFile::default()) };
    let text = std::fs::read(&path).with_context(|| format!("can't read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} isn't what `waybill dev` writes", path.display()))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn the_file_of_a_fleet_is_found_from_below() {
        let root = tempfile::tempdir().unwrap();
        let below = root.path().join("a/b");
        std::fs::create_dir_all(&below).unwrap();
        std::fs::create_dir_all(root.path().join(".waybill")).unwrap();
        let text = r#"{"admin_url": "http://127.0.0.1:1", "admin_token": "t", "proxies": ["x"]}"#;
        std::fs::write(root.path().join(DEV_FILE), text).unwrap();
        let found = dev_file(&below).unwrap();
        assert_eq!(found.admin_url.as_deref(), Some("http://127.0.0.1:1"));
        assert_eq!(found.admin_token.unwrap().expose_secret(), "t");
        std::fs::write(root.path().join(DEV_FILE), "{").unwrap();
        assert!(dev_file(&below).is_err());
    }
}
