//! Checks of single fields. Each gives the value as it will be stored.

use std::collections::HashSet;

use url::Url;
use waybill_event::config::{Capabilities, ChannelModel, CheckBy, Limits, ProbeSettings, SessionWindow, Target};
use waybill_event::{GroupId, NanoUsd, Source};

use super::command::Rejection;
use super::{Catalog, GroupRef};

/// Longest name of an entity, in characters.
pub(super) const NAME_CHARS: usize = 64;
/// Longest model name, in bytes: with [`MODELS`] of them an edit stays well below a message's 1 MiB.
pub(super) const MODEL_BYTES: usize = 200;
/// Models of one channel or one key.
pub(super) const MODELS: usize = 1_000;
/// Targets of one route.
const TARGETS: usize = 16;
/// Groups of one channel or route.
pub(super) const GROUPS: usize = 100;
/// Longest base URL, in bytes.
pub(super) const URL_BYTES: usize = 2_048;
/// Greatest weight; products of weight and factors stay far inside 64 bits.
pub(super) const WEIGHT: u32 = 1_000_000;
/// Greatest distance of a priority from 0.
pub(super) const PRIORITY: i32 = 1_000_000;
/// Greatest factor on prices, in thousandths.
pub(super) const MULTIPLIER_MILLI: u32 = 1_000_000;

pub(super) fn name(field: &str, text: &str) -> Result<String, Rejection> {
    let text = text.trim();
    let fits = (1..=NAME_CHARS).contains(&text.chars().count());
    if !fits || text.chars().any(char::is_control) {
        return Err(Rejection::invalid(field, format!("must be 1 to {NAME_CHARS} printable characters")));
    }
    // Paths of the API can't hold them.
    if matches!(text, "." | "..") {
        return Err(Rejection::invalid(field, "can't be . or ..: it couldn't be named in a path"));
    }
    // Whoever names an id must not get what is called like it, nor the other way round.
    if text.parse::<u64>().is_ok() || text.parse::<Source>().is_ok() {
        return Err(Rejection::invalid(field, "can't be a number or a source's id: what has that id would be meant"));
    }
    Ok(text.to_owned())
}

pub(super) fn provider(text: &str) -> Result<String, Rejection> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    if (1..=32).contains(&text.len()) && text.bytes().all(allowed) {
        Ok(text.to_owned())
    } else {
        Err(Rejection::invalid("provider", "must be 1 to 32 of a-z, 0-9, _ and -"))
    }
}

pub(super) fn base_url(text: &str) -> Result<String, Rejection> {
    let wrong = |message: &str| Rejection::invalid("base_url", message);
    let text = text.trim();
    if text.len() > URL_BYTES {
        return Err(wrong("is too long"));
    }
    let url = Url::parse(text).map_err(|e| Rejection::invalid("base_url", format!("is no URL: {e}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("must begin with http:// or https://"));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(wrong("has no host"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("must not hold a user or a password: a credential belongs into the credential"));
    }
    if url.fragment().is_some() {
        return Err(wrong("must not have a fragment"));
    }
    if url.query_pairs().any(|(name, _)| may_be_secret(&name)) {
        return Err(wrong("must not have a key or a token in its query: a credential belongs into the credential"));
    }
    Ok(text.to_owned())
}

/// Whether a parameter's name says that its value is a credential: base URLs are shown and logged.
fn may_be_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    ["key", "token", "secret", "pass", "pwd", "auth", "sig", "credential", "code"]
        .iter()
        .any(|word| name.contains(word))
}

pub(super) fn model(field: &str, text: &str) -> Result<(), Rejection> {
    if text.is_empty() || text.len() > MODEL_BYTES || text.chars().any(char::is_control) || text.trim() != text {
        let message = format!("must be 1 to {MODEL_BYTES} bytes of printable characters without blanks around");
        return Err(Rejection::invalid(field, message));
    }
    Ok(())
}

fn distinct<'a>(field: &str, texts: impl Iterator<Item = &'a str>) -> Result<(), Rejection> {
    let mut seen = HashSet::new();
    for (i, text) in texts.enumerate() {
        if !seen.insert(text) {
            return Err(Rejection::invalid(format!("{field}/{i}"), format!("{text:?} is named twice")));
        }
    }
    Ok(())
}

fn at_most<T>(field: &str, items: &[T], limit: usize) -> Result<(), Rejection> {
    if items.len() > limit {
        return Err(Rejection::invalid(field, format!("may hold at most {limit}")));
    }
    Ok(())
}

pub(super) fn channel_models(models: &[ChannelModel]) -> Result<Vec<ChannelModel>, Rejection> {
    at_most("models", models, MODELS)?;
    for (i, m) in models.iter().enumerate() {
        model(&format!("models/{i}/name"), &m.name)?;
        if let Some(upstream) = &m.upstream {
            model(&format!("models/{i}/upstream"), upstream)?;
        }
        capabilities(&format!("models/{i}/capabilities"), &m.capabilities)?;
    }
    distinct("models", models.iter().map(|m| m.name.as_str()))?;
    // An upstream name that says nothing new is left out, so that equal settings are equal states.
    let plain = |m: &ChannelModel| ChannelModel {
        name: m.name.clone(),
        upstream: m.upstream.clone().filter(|upstream| *upstream != m.name),
        capabilities: m.capabilities,
    };
    Ok(models.iter().map(plain).collect())
}

fn capabilities(field: &str, declared: &Capabilities) -> Result<(), Rejection> {
    for (name, value) in [("context_window", declared.context_window), ("max_body_bytes", declared.max_body_bytes)] {
        if value == Some(0) {
            return Err(Rejection::invalid(
                format!("{field}/{name}"),
                "must be at least 1; leave out what isn't known",
            ));
        }
    }
    Ok(())
}

pub(super) fn targets(targets: &[Target]) -> Result<Vec<Target>, Rejection> {
    if targets.is_empty() {
        return Err(Rejection::invalid("targets", "must name at least one model"));
    }
    at_most("targets", targets, TARGETS)?;
    for (i, target) in targets.iter().enumerate() {
        model(&format!("targets/{i}/model"), &target.model)?;
        capabilities(&format!("targets/{i}/capabilities"), &target.capabilities)?;
    }
    distinct("targets", targets.iter().map(|target| target.model.as_str()))?;
    Ok(targets.to_vec())
}

pub(super) fn key_models(models: &[String]) -> Result<Vec<String>, Rejection> {
    at_most("models", models, MODELS)?;
    for (i, m) in models.iter().enumerate() {
        model(&format!("models/{i}"), m)?;
    }
    distinct("models", models.iter().map(String::as_str))?;
    Ok(models.to_vec())
}

pub(super) fn group(catalog: &Catalog, field: &str, group: &GroupRef) -> Result<GroupId, Rejection> {
    let found = match group {
        GroupRef::Id(id) => catalog.groups.get(id),
        GroupRef::Name(name) => catalog.group_named(name),
    };
    found.map(|g| g.id).ok_or_else(|| Rejection::invalid(field, format!("there is no group {group}")))
}

pub(super) fn groups(catalog: &Catalog, groups: &[GroupRef]) -> Result<Vec<GroupId>, Rejection> {
    at_most("groups", groups, GROUPS)?;
    let mut found = Vec::with_capacity(groups.len());
    for (i, named) in groups.iter().enumerate() {
        let field = format!("groups/{i}");
        let id = group(catalog, &field, named)?;
        if found.contains(&id) {
            return Err(Rejection::invalid(field, format!("group {named} is named twice")));
        }
        found.push(id);
    }
    Ok(found)
}

pub(super) fn weight(weight: u32) -> Result<u32, Rejection> {
    if weight > WEIGHT {
        return Err(Rejection::invalid("weight", format!("must be at most {WEIGHT}")));
    }
    Ok(weight)
}

pub(super) fn priority(priority: i32) -> Result<i32, Rejection> {
    if !(-PRIORITY..=PRIORITY).contains(&priority) {
        return Err(Rejection::invalid("priority", format!("must be between -{PRIORITY} and {PRIORITY}")));
    }
    Ok(priority)
}

pub(super) fn multiplier(milli: u32) -> Result<u32, Rejection> {
    if milli > MULTIPLIER_MILLI {
        return Err(Rejection::invalid("multiplier_milli", format!("must be at most {MULTIPLIER_MILLI}")));
    }
    Ok(milli)
}

/// Greatest limit: each slot of one is a key in the store.
pub(super) const LIMIT: u32 = 10_000;
/// Shortest and longest window of a session's spending, in seconds.
const SESSION_S: std::ops::RangeInclusive<u32> = 60..=7 * 86_400;

/// Most that a session may be allowed to spend: a million dollars.
const SESSION_MOST: NanoUsd = NanoUsd(1_000_000 * 1_000_000_000);

pub(super) fn session_window(window: SessionWindow) -> Result<SessionWindow, Rejection> {
    if !(NanoUsd(1)..=SESSION_MOST).contains(&window.limit) {
        return Err(Rejection::invalid("session_window/usd", "must be more than $0 and at most $1,000,000"));
    }
    if !SESSION_S.contains(&window.seconds) {
        let (least, most) = (SESSION_S.start(), SESSION_S.end());
        return Err(Rejection::invalid("session_window/seconds", format!("must be between {least} and {most}")));
    }
    Ok(window)
}

/// Shortest and longest time between checks, in seconds.
const CHECK_EVERY_S: std::ops::RangeInclusive<u32> = 10..=86_400;

pub(super) fn probe(probe: &ProbeSettings, models: &[ChannelModel]) -> Result<ProbeSettings, Rejection> {
    if let Some(name) = &probe.model
        && !models.iter().any(|model| model.name == *name)
    {
        return Err(Rejection::invalid("probe/model", format!("it has no model {name:?}")));
    }
    if let Some(every) = probe.check_every_s
        && !CHECK_EVERY_S.contains(&every)
    {
        let (least, most) = (CHECK_EVERY_S.start(), CHECK_EVERY_S.end());
        return Err(Rejection::invalid("probe/check_every_s", format!("must be between {least} and {most}")));
    }
    if probe.checks_count && probe.check_by == CheckBy::Models {
        let message = "a list of models says that the source can be reached, not that it serves: check by chat";
        return Err(Rejection::invalid("probe/checks_count", message));
    }
    Ok(probe.clone())
}

pub(super) fn limits(at: &str, limits: Limits) -> Result<Limits, Rejection> {
    let Limits { max_concurrent, requests_per_minute } = limits;
    for (field, limit) in [("max_concurrent", max_concurrent), ("requests_per_minute", requests_per_minute)] {
        if limit.is_some_and(|limit| limit > LIMIT) {
            return Err(Rejection::invalid(format!("{at}/{field}"), format!("must be at most {LIMIT}")));
        }
        if limit == Some(0) {
            return Err(Rejection::invalid(
                format!("{at}/{field}"),
                "must be at least 1; disable what is limited to let nothing through",
            ));
        }
    }
    Ok(limits)
}
