//! Something to try without any provider's key: an upstream of our own, a channel that always fails, one that serves, and
//! a client key.

use anyhow::{Context, bail};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use waybill_scripted_upstream::{Reply, Script, ScriptedUpstream, Source};

use super::folder::{Addresses, Folder};
use super::greeting;

const GROUP: &str = "demo";
const KEY: &str = "demo";
const MODEL: &str = "demo-chat";
const KEY_FILE: &str = "demo-client-key";

/// The running demo.
pub struct Demo {
    upstream: ScriptedUpstream,
    /// Where its upstream is.
    pub url: String,
    /// A client key that may use it.
    pub client_key: String,
}

impl Demo {
    /// Stops its upstream.
    pub async fn stop(self) {
        self.upstream.stop().await;
    }
}

/// Starts the demo's upstream and sees to it that its channels, which name its address, and its key exist.
///
/// # Errors
/// The upstream can't be started, or the admin API refuses.
pub async fn start(folder: &Folder, addresses: &Addresses, admin_token: &SecretString) -> anyhow::Result<Demo> {
    let script = Script::new()
        .always("broken", Reply::error(500, "demo_failure"))
        .source("good", Source::default().saying("Because the first source failed, and the log remembers why."));
    let upstream = ScriptedUpstream::start(script).await.context("the demo's upstream")?;
    let channel = |name: &str, source: &str, priority: i32| {
        json!({
            "name": name,
            "provider": "openai",
            "base_url": upstream.base_url(source),
            "credential": "demo-credential",
            "models": [MODEL],
            "groups": [GROUP],
            "priority": priority,
            "weight": 1,
            "allow_private": true,
        })
    };
    let manifest = json!({
        "groups": [{ "name": GROUP }],
        "channels": [channel("demo-broken", "broken", 10), channel("demo-good", "good", 0)],
        "keys": [{ "name": KEY, "group": GROUP }],
    });
    let applied = apply(addresses, admin_token, &manifest).await?;
    let issued = applied.pointer(&format!("/tokens/{KEY}")).and_then(Value::as_str);
    if let Some(issued) = issued {
        folder.write_secret(KEY_FILE, &SecretString::from(issued.to_owned()))?;
    }
    let kept = folder.secret(KEY_FILE, || bail!("the demo's client key exists, but its file is lost: revoke it"));
    let client_key = match kept {
        Ok(key) => key.expose_secret().to_owned(),
        Err(error) => {
            greeting::notice(&format!("{error:#}"));
            String::new()
        }
    };
    let url = format!("http://127.0.0.1:{}", upstream.port());
    Ok(Demo { upstream, url, client_key })
}

async fn apply(addresses: &Addresses, admin_token: &SecretString, manifest: &Value) -> anyhow::Result<Value> {
    let client = reqwest::Client::builder().no_proxy().build().context("an HTTP client")?;
    let answer = client
        .post(format!("{}/api/v1/apply", addresses.admin_url))
        .bearer_auth(admin_token.expose_secret())
        .json(manifest)
        .send()
        .await
        .context("the admin API")?;
    let status = answer.status();
    let body: Value = answer.json().await.context("the admin API's answer")?;
    if !status.is_success() {
        bail!("the admin API refused the demo's channels ({status}): {body}");
    }
    Ok(body)
}
