//! Rules of verdicts: what is shipped, what each scope says otherwise, and what candidates would say.

use axum::Json as Body;
use axum::extract::State as Held;
use axum::response::IntoResponse;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use waybill_domain::catalog::rules::{self, Act};
use waybill_domain::catalog::{Catalog, Command, decide, policy};
use waybill_domain::verdict::rule::RecordedCase;
use waybill_domain::verdict::{Report, RuleSet, Rulebook};
use waybill_event::config::{Entity, PolicyScope, Preset, RuleLayer, Rules};
use waybill_event::{ConfigPosition, LogTime};
use waybill_read_model::read::ConfigHistoryQuery;
use waybill_upstream::observe::recorded;

use super::channels::given;
use super::requests::page;
use super::view::{self, Subject};
use super::{Answer, answer_edit};
use crate::State;
use crate::edit::{Author, EditError};
use crate::problem::Problem;
use crate::request::{Expected, Json, Query, because};

/// Since when differences are summed up, if nothing is said.
const DAY_MICROS: i64 = 86_400_000_000;

/// Whose rules are shown.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// The scope; without one all are listed.
    scope: Option<String>,
}

/// What a scope shall say.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetRules {
    /// `global` (the default), `provider:NAME` or `channel:X`.
    scope: Option<String>,
    /// The version edited; 0 where the scope has no rules of its own yet.
    expected_version: Option<u64>,
    /// The layer to put in force, whole.
    live: Option<RuleLayer>,
    /// The layer that is to look on, whole; null ends that.
    #[serde(default, deserialize_with = "given")]
    candidate: Option<Option<RuleLayer>>,
    reason: Option<String>,
}

/// Whose candidate is promoted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PromoteRules {
    scope: Option<String>,
    expected_version: Option<u64>,
    reason: Option<String>,
}

/// What is to be in force again.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RevertRules {
    scope: Option<String>,
    expected_version: Option<u64>,
    /// The version whose rules are wanted; the one before the present if nothing is said. 0: none.
    to: Option<u64>,
    reason: Option<String>,
}

/// A pasted failure, and where it happened.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TestRules {
    /// What came, in the fields of the catalogue of failures.
    given: RecordedCase,
    /// Where it came from: `global` (the default), `provider:NAME` or `channel:X`.
    scope: Option<String>,
    /// A layer to try as if it were in force there.
    live: Option<RuleLayer>,
}

/// Since when differences are wanted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Since {
    /// Requests that came then or later; the last day if nothing is said.
    since: Option<LogTime>,
    limit: Option<u32>,
}

fn scope_of(catalog: &Catalog, text: Option<&str>) -> Result<PolicyScope, Problem> {
    let scope = policy::scope(catalog, text.unwrap_or("global")).map_err(EditError::from)?;
    if Rules::fits(&scope) {
        return Ok(scope);
    }
    Err(Problem::invalid("scope", "must be global, provider:NAME or channel:X: a verdict is on a source"))
}

fn held(catalog: &Catalog, scope: &PolicyScope) -> Value {
    let none = Rules { scope: scope.clone(), live: RuleLayer::default(), candidate: None, version: 0 };
    view::rules(catalog.rules.get(scope).map_or(&none, AsRef::as_ref))
}

pub(super) async fn show(Held(state): Held<State>, Query(which): Query<Which>) -> Answer {
    let catalog = state.fold().view().catalog;
    if let Some(text) = which.scope {
        let scope = scope_of(&catalog, Some(&text))?;
        return Ok(Body(held(&catalog, &scope)).into_response());
    }
    let rules: Vec<Value> = catalog.rules.values().map(|rules| view::rules(rules)).collect();
    let shipped = RuleSet::builtin().data();
    let shown = json!({
        "shipped": {"version": shipped.version, "rules": shipped.rules().count(), "presets": Preset::ALL},
        "rules": rules,
    });
    Ok(Body(shown).into_response())
}

pub(super) async fn shipped() -> Answer {
    Ok(Body(RuleSet::builtin().data()).into_response())
}

async fn edit(state: &State, author: &Author, scope: PolicyScope, expected: u64, act: Act) -> Answer {
    let mut command = Command::Rules(rules::Command { scope: scope.clone(), expected, act });
    answer_edit(state, author, &mut command, StatusCode::OK, Some(Subject::Rules(scope))).await
}

pub(super) async fn set(
    Held(state): Held<State>,
    author: Author,
    expected: Expected,
    Json(set): Json<SetRules>,
) -> Answer {
    let author = because(author, set.reason)?;
    let catalog = state.fold().view().catalog;
    let scope = scope_of(&catalog, set.scope.as_deref())?;
    let expected = expected.needed(set.expected_version)?;
    let act = match (set.live, set.candidate) {
        (Some(live), None) => Act::Publish(live),
        (None, Some(candidate)) => Act::Shadow(candidate),
        (Some(_), Some(_)) | (None, None) => {
            return Err(Problem::invalid(
                "live",
                "say either what is to be in force (live) or what is to look on (candidate)",
            ));
        }
    };
    edit(&state, &author, scope, expected, act).await
}

pub(super) async fn promote(
    Held(state): Held<State>,
    author: Author,
    expected: Expected,
    Json(wanted): Json<PromoteRules>,
) -> Answer {
    let author = because(author, wanted.reason)?;
    let scope = scope_of(&state.fold().view().catalog, wanted.scope.as_deref())?;
    let expected = expected.needed(wanted.expected_version)?;
    edit(&state, &author, scope, expected, Act::Promote).await
}

pub(super) async fn revert(
    Held(state): Held<State>,
    author: Author,
    expected: Expected,
    Json(wanted): Json<RevertRules>,
) -> Answer {
    let author = because(author, wanted.reason)?;
    let catalog = state.fold().view().catalog;
    let scope = scope_of(&catalog, wanted.scope.as_deref())?;
    let expected = expected.needed(wanted.expected_version)?;
    let live = match wanted.to.unwrap_or_else(|| expected.saturating_sub(1)) {
        0 => RuleLayer::default(),
        version => former(&state, &scope, version).await?,
    };
    edit(&state, &author, scope, expected, Act::Publish(live)).await
}

/// What was in force at a version, from the history of edits.
async fn former(state: &State, scope: &PolicyScope, version: u64) -> Result<RuleLayer, Problem> {
    let mut before = None;
    loop {
        let query = ConfigHistoryQuery {
            entity: Some(Rules::ENTITY.to_owned()),
            entity_id: Some(scope.subject_id()),
            before,
            limit: 100,
        };
        let rows = state.reads().edits(&query).await?;
        let Some(last) = rows.last() else {
            return Err(Problem::not_found(format!("the rules of {scope} have no version {version}")));
        };
        before = Some(last.position);
        if let Some(row) = rows.iter().find(|row| row.version == version) {
            let live = row.state.get("live").cloned().unwrap_or_default();
            let unreadable = |_| Problem::invalid("to", format!("version {version} can't be used by this program"));
            return serde_json::from_value(live).map_err(unreadable);
        }
    }
}

pub(super) async fn shadow(Held(state): Held<State>, Query(wanted): Query<Since>) -> Answer {
    let day_ago = || LogTime::from_micros(state.now().as_micros().saturating_sub(DAY_MICROS));
    let since = wanted.since.unwrap_or_else(day_ago);
    let report = state.reads().shadows(since, page(wanted.limit)?).await?;
    let shown = json!({"since": since, "failures": report.failures, "differences": report.differences});
    Ok(Body(shown).into_response())
}

/// What the rules in force say of a pasted failure, and what a layer would say that isn't published.
pub(super) async fn test(Held(state): Held<State>, Json(wanted): Json<TestRules>) -> Answer {
    let catalog = state.fold().view().catalog;
    let scope = scope_of(&catalog, wanted.scope.as_deref())?;
    let mut given = wanted.given;
    let source = match &scope {
        PolicyScope::Source { source } => {
            let provider = catalog.entity(*source).map(|entity| entity.provider().to_owned());
            given.provider_hint = provider.unwrap_or(given.provider_hint);
            Some(*source)
        }
        PolicyScope::Provider { provider } => {
            given.provider_hint.clone_from(provider);
            None
        }
        _ => None,
    };
    let seen = recorded(&given);
    let said = |rulebook: &Rulebook| Report::of(&rulebook.classify(source, &seen), &seen);
    let mut shown = json!({"verdict": said(&catalog.rulebook())});
    if let Some(live) = wanted.live {
        let expected = catalog.rules.get(&scope).map_or(0, |rules| rules.version);
        let command = rules::Command { scope, expected, act: Act::Publish(live) };
        let mut tried = Catalog::clone(&catalog);
        for change in decide(&catalog, &Command::Rules(command)).map_err(EditError::from)? {
            tried.adopt(&change, ConfigPosition(tried.position.0 + 1));
        }
        if let Some(fields) = shown.as_object_mut() {
            let verdict = serde_json::to_value(said(&tried.rulebook())).unwrap_or_default();
            fields.insert("tried".to_owned(), verdict);
        }
    }
    Ok(Body(shown).into_response())
}
