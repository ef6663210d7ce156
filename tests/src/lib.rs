//! What the black-box suites in `tests/tests` share: a fleet with a scripted upstream, a group and a client key. Nothing
//! of the product is here.

#![expect(clippy::panic, reason = "a suite that can't be set up fails")]

pub mod chaos;
pub mod failover;
pub mod field_reports;
pub mod folding;
pub mod traffic;

use std::time::Duration;

use serde_json::{Value, json};
use waybill_testkit::upstream::{Script, ScriptedUpstream, Source};
use waybill_testkit::{Admin, ChannelSpec, Chat, Fleet, FleetOptions, Story, until, wait_until};

/// How long a replica may take to know what was configured.
const CONFIGURED: Duration = Duration::from_secs(10);

/// A fleet with what nearly every suite needs.
#[derive(Debug)]
pub struct Bench {
    /// The fleet. It holds a group `default` and a key `suite`.
    pub fleet: Fleet,
    /// The upstream of all channels; a source's name is its channel's.
    pub upstream: ScriptedUpstream,
    /// The token of the key `suite`.
    pub key: String,
}

impl Bench {
    /// A bench with so many proxies.
    pub async fn of(proxies: u16) -> Self {
        Self::start(FleetOptions { proxies, ..FleetOptions::default() }).await
    }

    /// A bench with such a fleet.
    ///
    /// # Panics
    /// When anything of it can't be had.
    pub async fn start(options: FleetOptions) -> Self {
        let upstream = match ScriptedUpstream::start(Script::new()).await {
            Ok(upstream) => upstream,
            Err(error) => panic!("no scripted upstream: {error}"),
        };
        let fleet = Fleet::start(options).await;
        fleet.admin().group("default").await;
        let key = fleet.admin().key("suite", "default").await;
        Self { fleet, upstream, key }
    }

    /// The admin API.
    #[must_use]
    pub fn admin(&self) -> &Admin {
        self.fleet.admin()
    }

    /// A channel of this name, at the upstream's source of this name.
    #[must_use]
    pub fn spec(&self, name: &str) -> ChannelSpec {
        ChannelSpec::new(name, &self.upstream.base_url(name))
    }

    /// Creates a channel for `models` whose upstream behaves like `source`; gives its source, e.g. `channel:1`.
    pub async fn channel(&self, name: &str, models: &[&str], priority: i32, source: Source) -> String {
        self.upstream.set_source(name, source);
        self.admin().channel(self.spec(name).models(models.iter().copied()).priority(priority)).await
    }

    /// Applies a manifest.
    pub async fn apply(&self, manifest: Value) -> Value {
        self.admin().post("/apply", manifest).await
    }

    /// Waits until every replica has all that was configured so far, credentials included.
    ///
    /// # Panics
    /// When one hasn't within 10 s.
    pub async fn configured(&self) {
        self.fleet.everywhere(self.admin().config_position().await).await;
        for number in 1..=self.fleet.proxies().len() {
            let proxy = format!("proxy-{number}");
            wait_until(CONFIGURED, format_args!("{proxy} has all credentials"), async || {
                let state = self.fleet.state(&proxy).await.to_string();
                until(!state.contains("no_credential"), || state.clone())
            })
            .await;
        }
    }

    /// Waits until the fold, too, goes by the configuration that is in force now: a reset ends what opened before that.
    ///
    /// # Panics
    /// When it doesn't within 20 s.
    pub async fn adopted(&self) {
        let position = self.admin().config_position().await;
        wait_until(Duration::from_secs(20), "the fold goes by the newest edit", async || {
            let all = self.fleet.events().await;
            let markers = all.iter().filter(|event| event.get("type").is_some_and(|kind| kind == "config_applied"));
            let newest = markers.filter_map(|event| event.pointer("/data/position")?.as_u64()).max();
            until(newest >= Some(position), || format!("{newest:?} of {position}"))
        })
        .await;
    }

    /// A chat request of the key `suite` to a proxy (from 1).
    #[must_use]
    pub fn chat(&self, proxy: usize, model: &str) -> Chat {
        Chat::new(self.fleet.http(), self.fleet.proxy(proxy), &self.key, model)
    }

    /// The history of the request that the client calls `id`, once its end is readable.
    ///
    /// # Panics
    /// When there is none within 20 s.
    pub async fn story_of_client_id(&self, id: &str) -> Story {
        let query = format!("client_request_id={id}");
        let request = wait_until(Duration::from_secs(20), format_args!("a request called {id}"), async || {
            let found = self.admin().requests(&query).await;
            found.first().and_then(|row| Some(row.get("request_id")?.as_str()?.to_owned())).ok_or("none yet")
        })
        .await;
        self.admin().history(&request).await
    }
}

/// A manifest entry of a channel at `base_url`.
#[must_use]
pub fn channel_entry(name: &str, base_url: &str, models: &[&str], priority: i32) -> Value {
    json!({
        "name": name, "base_url": base_url, "models": models, "priority": priority, "groups": ["default"],
        "credential": format!("sk-of-{name}"), "allow_private": true,
    })
}
