//! Trying a channel or an account: whether it works, and which models its upstream has.

use serde_json::{Value, json};

use super::api::Api;
use super::named::Named;
use super::output::{Table, list, member, plain};

/// Asks a source for one token, and tells what came of it.
pub(super) async fn tested(of: &Named, api: &Api, which: &str, model: Option<String>) -> anyhow::Result<()> {
    let answer = api.post(&[of.many, which, "test"], &[("model", model)], &json!({})).await?;
    if api.wants_json() {
        api.out().json(&answer)?;
    } else {
        let mut text = format!(
            "{} as {}: {} (HTTP {}, {} ms, rule {})",
            member(&answer, "model"),
            member(&answer, "upstream_model"),
            member(&answer, "kind"),
            member(&answer, "status"),
            member(&answer, "took_ms"),
            member(&answer, "rule")
        );
        for (name, pointer) in [
            ("code", "/error/code"),
            ("type", "/error/type"),
            ("message", "/error/message"),
            ("connection", "/transport"),
        ] {
            if let Some(value) = answer.pointer(pointer).filter(|value| !value.is_null()) {
                text.push_str(&format!("\n  {name}: {}", plain(value)));
            }
        }
        api.out().line(&text)?;
    }
    if answer.get("ok") == Some(&Value::Bool(true)) { Ok(()) } else { anyhow::bail!("the {} doesn't work", of.one) }
}

/// Asks a source's upstream for its models.
pub(super) async fn fetched(of: &Named, api: &Api, which: &str) -> anyhow::Result<()> {
    let answer = api.post(&[of.many, which, "fetch-models"], &[], &json!({})).await?;
    if api.wants_json() {
        return Ok(api.out().json(&answer)?);
    }
    let new = list(&answer, "not_offered_yet");
    let mut table = Table::new(&["model", "offered"]);
    for model in list(&answer, "models") {
        table.row([plain(model), plain(&Value::Bool(!new.contains(model)))]);
    }
    Ok(api.out().table(&table, "the upstream lists no models")?)
}
