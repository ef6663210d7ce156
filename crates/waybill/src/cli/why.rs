//! `waybill why`.

use clap::Args;
use serde_json::Value;

use super::accounts::{evidence, headroom};
use super::api::Api;
use super::output::{list, member, plain};

/// Tell why a source serves or doesn't, until when, what caused it and who was sent elsewhere.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// The source, as account:ID, channel:ID or by its name.
    source: String,
    /// How far back requests are counted that went elsewhere, in seconds; 900 without it.
    #[arg(long, value_name = "SECONDS")]
    since: Option<u64>,
}

impl Why {
    pub(super) async fn run(self, api: &Api) -> anyhow::Result<()> {
        let since = [("since_s", self.since.map(|since| since.to_string()))];
        let answer = api.get(&["sources", &self.source, "why"], &since).await?;
        if api.wants_json() {
            return Ok(api.out().json(&answer)?);
        }
        let mut out = api.out();
        for line in told(&answer) {
            out.line(&line)?;
        }
        Ok(())
    }
}

/// The sentences, each reason followed by what caused it.
fn told(answer: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for sentence in list(answer, "says").iter().map(plain) {
        let of_it = |reason: &&Value| sentence == format!("{}.", member(reason, "text"));
        let reason = list(answer, "reasons").iter().find(of_it);
        lines.push(sentence.clone());
        lines.extend(reason.into_iter().flat_map(evidence));
    }
    if !list(answer, "headroom").is_empty() {
        lines.push(format!("Used of its plan, as last told: {}.", headroom(answer)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_reason_is_followed_by_what_caused_it() {
        let text = "its upstream told it to wait because of rate_limited until U (59 min 3 s left); it ends by itself";
        let answer = json!({
            "says": ["max doesn't serve.", format!("{text}."), "3 requests went elsewhere because of 429, the last one R."],
            "reasons": [{"text": text, "evidence": [{"at": "T", "text": "blocked (hint) because of rate_limited until U",
                "details": ["caused by request R", "HTTP 429"]}]}],
            "headroom": [{"name": "primary", "used_percent": 100.0}],
        });
        insta::assert_snapshot!(told(&answer).join("\n"));
    }
}
