//! Everything the admin role depends on, with its state and how far behind it is.

use axum::Json as Body;
use axum::extract::State as Held;
use axum::response::IntoResponse;
use serde_json::json;

use super::Answer;
use crate::State;

pub(super) async fn show(Held(state): Held<State>) -> Answer {
    let dependencies = state.dependencies().await;
    let ready = dependencies.iter().all(|dependency| dependency.ready);
    Ok(Body(json!({"ready": ready, "at": state.now(), "dependencies": dependencies})).into_response())
}
