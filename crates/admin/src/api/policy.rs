//! Policies: the numbers in force, and setting them.

use axum::Json as Body;
use axum::extract::State as Held;
use axum::response::IntoResponse;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use waybill_domain::catalog::{Command, policy};
use waybill_event::Source;
use waybill_event::config::{PolicyScope, SelectorPolicy};

use super::view::{self, Subject};
use super::{Answer, answer_edit};
use crate::State;
use crate::edit::Author;
use crate::problem::Problem;
use crate::request::{Expected, Json, because};

/// The numbers of a scope.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetPolicy {
    /// `global` (the default) or a source such as `channel:1`.
    scope: Option<String>,
    /// The version edited; 0 where the scope has no policy of its own yet.
    expected_version: Option<u64>,
    selector: SelectorPolicy,
    reason: Option<String>,
}

pub(super) async fn show(Held(state): Held<State>) -> Answer {
    let catalog = state.fold().view().catalog;
    let built_in = json!({"version": 0, "selector": SelectorPolicy::default()});
    let global = catalog.policies.get(&PolicyScope::Global).map_or(built_in, |p| view::policy(p));
    let mut sources = Map::new();
    for (scope, policy) in catalog.policies.iter() {
        match scope {
            PolicyScope::Global => {}
            PolicyScope::Source { source } => {
                sources.insert(source.to_string(), view::policy(policy));
            }
        }
    }
    Ok(Body(json!({"global": global, "sources": Value::Object(sources)})).into_response())
}

pub(super) async fn set(
    Held(state): Held<State>,
    author: Author,
    expected: Expected,
    Json(set): Json<SetPolicy>,
) -> Answer {
    let author = because(author, set.reason)?;
    let scope = match set.scope.as_deref() {
        None | Some("global") => PolicyScope::Global,
        Some(text) => {
            let source: Source = text.parse().map_err(|error| Problem::invalid("scope", format!("{error}")))?;
            PolicyScope::Source { source }
        }
    };
    let expected = expected.needed(set.expected_version)?;
    let mut command = Command::Policy(policy::Command::Set { scope: scope.clone(), expected, selector: set.selector });
    answer_edit(&state, &author, &mut command, StatusCode::OK, Some(Subject::Policy(scope))).await
}
