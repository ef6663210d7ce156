//! Policies: the numbers in force, and what each scope overrides.

use axum::Json as Body;
use axum::extract::State as Held;
use axum::response::IntoResponse;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use waybill_domain::catalog::{Catalog, Command, policy};
use waybill_event::config::{Policy, PolicyScope, RequestOverrides, RequestPolicy, SelectorOverrides, SelectorPolicy};

use super::view::{self, Subject};
use super::{Answer, answer_edit};
use crate::State;
use crate::edit::{Author, EditError};
use crate::request::{Expected, Json, Query, because};

/// Which policy is shown.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// The scope; without one all are listed.
    scope: Option<String>,
}

/// What a scope shall override.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetPolicy {
    /// `global` (the default), `provider:NAME`, `channel:X`, `channel:X/MODEL`, `group:X`, `route:X` or `key:X`.
    scope: Option<String>,
    /// The version edited; 0 where the scope has no policy of its own yet.
    expected_version: Option<u64>,
    /// Numbers of the selector fold, all that the scope overrides; left out they stay.
    selector: Option<SelectorOverrides>,
    /// Numbers of requests, all that the scope overrides; left out they stay.
    request: Option<RequestOverrides>,
    reason: Option<String>,
}

pub(super) async fn show(Held(state): Held<State>, Query(which): Query<Which>) -> Answer {
    let catalog = state.fold().view().catalog;
    if let Some(text) = which.scope {
        let scope = policy::scope(&catalog, &text).map_err(EditError::from)?;
        // What nobody has any more is shown as long as something is set for it.
        if !catalog.policies.contains_key(&scope) {
            policy::exists(&catalog, &scope).map_err(EditError::from)?;
        }
        return Ok(Body(one(&catalog, &scope)).into_response());
    }
    let set: Vec<Value> = catalog.policies.values().map(|policy| view::policy(policy)).collect();
    let answer = json!({
        "built_in": {"selector": SelectorPolicy::default(), "request": RequestPolicy::default()},
        "global": one(&catalog, &PolicyScope::Global),
        "policies": set,
    });
    Ok(Body(answer).into_response())
}

/// What a scope overrides, and what is in force there.
fn one(catalog: &Catalog, scope: &PolicyScope) -> Value {
    let none = Policy {
        scope: scope.clone(),
        selector: SelectorOverrides::default(),
        request: RequestOverrides::default(),
        version: 0,
    };
    let own = catalog.policies.get(scope).map_or(&none, AsRef::as_ref);
    let mut shown = view::policy(own);
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("in_force".to_owned(), in_force(catalog, scope, own));
    }
    shown
}

fn in_force(catalog: &Catalog, scope: &PolicyScope, own: &Policy) -> Value {
    let global = catalog.policies.get(&PolicyScope::Global);
    let selector = global.map_or_else(SelectorPolicy::default, |g| SelectorPolicy::default().with(&g.selector));
    let request = global.map_or_else(RequestPolicy::default, |g| RequestPolicy::default().with(&g.request));
    match scope {
        PolicyScope::Global => json!({"selector": selector, "request": request}),
        PolicyScope::Provider { .. } => json!({"selector": selector.with(&own.selector)}),
        PolicyScope::Source { source } => json!({"selector": catalog.selector_policy(*source)}),
        PolicyScope::Model { source, .. } => {
            json!({"selector": catalog.selector_policy(*source).with(&own.selector)})
        }
        PolicyScope::Group { group } => json!({"request": catalog.request_policy(*group, None, None)}),
        // A route or key overrides whatever the group of a request says.
        PolicyScope::Route { .. } | PolicyScope::Key { .. } => json!({"request": request.with(&own.request)}),
    }
}

pub(super) async fn set(
    Held(state): Held<State>,
    author: Author,
    expected: Expected,
    Json(set): Json<SetPolicy>,
) -> Answer {
    let author = because(author, set.reason)?;
    let catalog = state.fold().view().catalog;
    let scope = policy::scope(&catalog, set.scope.as_deref().unwrap_or("global")).map_err(EditError::from)?;
    let expected = expected.needed(set.expected_version)?;
    let held = catalog.policies.get(&scope);
    let selector = set.selector.or_else(|| held.map(|policy| policy.selector)).unwrap_or_default();
    let request = set.request.or_else(|| held.map(|policy| policy.request)).unwrap_or_default();
    let mut command = Command::Policy(policy::Command::Set { scope: scope.clone(), expected, selector, request });
    answer_edit(&state, &author, &mut command, StatusCode::OK, Some(Subject::Policy(scope))).await
}
