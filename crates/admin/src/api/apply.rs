//! Applying a manifest: one atomic batch, or only its diff.

use axum::Json as Body;
use axum::extract::State as Held;
use axum::response::IntoResponse;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use waybill_domain::catalog::manifest::{Manifest, Plan};

use super::{Answer, answer_committed, member};
use crate::State;
use crate::edit::{Author, EditError, ManifestWish};
use crate::request::{Json, Query};

/// How a manifest is applied.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct How {
    /// Whether only the diff is wanted.
    #[serde(default)]
    dry_run: bool,
}

fn steps(plan: &Plan) -> Value {
    plan.steps.iter().map(|step| serde_json::to_value(&step.diff).unwrap_or(Value::Null)).collect()
}

pub(super) async fn apply(
    Held(state): Held<State>,
    author: Author,
    Query(how): Query<How>,
    Json(manifest): Json<Manifest>,
) -> Answer {
    let peppers = std::sync::Arc::clone(state.peppers());
    let mut wish =
        ManifestWish::new(state.credentials().clone(), peppers, manifest, state.now()).map_err(EditError::from)?;
    if how.dry_run {
        let catalog = state.editor().newest().await?;
        let plan = wish.rehearse(&catalog)?;
        let shown = json!({"dry_run": true, "position": catalog.position, "steps": steps(plan)});
        return Ok(Body(shown).into_response());
    }
    let committed = state.editor().edit(&author, &mut wish).await?;
    let mut shown = member("dry_run", false);
    shown.insert("steps".to_owned(), steps(wish.plan()));
    let tokens: Map<String, Value> =
        wish.into_tokens().map(|(name, token)| (name, token.expose().to_owned().into())).collect();
    shown.insert("tokens".to_owned(), tokens.into());
    Ok(answer_committed(&state, &committed, StatusCode::OK, shown).await)
}
