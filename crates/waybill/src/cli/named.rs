//! What channels, groups, keys and routes share on the command line: they are shown, switched and ended alike, and edits
//! of them are told alike.

use serde_json::{Value, json};

use super::api::Api;
use super::output::edited;
use super::reason::{Switching, members};

/// Entities of one kind.
pub(super) struct Named {
    /// The word for one.
    pub(super) one: &'static str,
    /// The word for many, as paths have it.
    pub(super) many: &'static str,
}

impl Named {
    /// Shows one, by id or name.
    pub(super) async fn show(&self, api: &Api, which: &str) -> anyhow::Result<()> {
        let shown = api.get(&[self.many, which], &[]).await?;
        if api.wants_json() { Ok(api.out().json(&shown)?) } else { Ok(api.out().line(&members(&shown))?) }
    }

    /// Tells what an edit came to.
    pub(super) fn told(&self, api: &Api, answer: &Value, done: &str) -> anyhow::Result<()> {
        if api.wants_json() {
            Ok(api.out().json(answer)?)
        } else {
            Ok(api.out().line(&edited(answer, self.one, done))?)
        }
    }

    pub(super) async fn enable(&self, api: &Api, which: &str, switching: &Switching) -> anyhow::Result<()> {
        let answer = api.post(&[self.many, which, "enable"], &switching.parameters(), &json!({})).await?;
        self.told(api, &answer, "enabled")
    }

    pub(super) async fn disable(&self, api: &Api, which: &str, switching: &Switching) -> anyhow::Result<()> {
        let answer = api.post(&[self.many, which, "disable"], &switching.parameters(), &json!({})).await?;
        self.told(api, &answer, "disabled")
    }

    /// Ends one for good; `done` is the word for that.
    pub(super) async fn end(&self, api: &Api, which: &str, switching: &Switching, done: &str) -> anyhow::Result<()> {
        let answer = api.delete(&[self.many, which], &switching.parameters()).await?;
        self.told(api, &answer, done)
    }
}
