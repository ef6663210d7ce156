//! What caused the reasons: the announcement of a block or an opening with the attempt behind it, the failed refresh, the
//! operator's edit.

use waybill_domain::history::{StoryLine, TransitionRow};
use waybill_event::Source;
use waybill_read_model::StoreError;

use super::Reason;
use crate::State;
use crate::api::story::edits;

/// Newest announcements of a source that are looked through.
const ANNOUNCEMENTS: u32 = 100;
/// Newest edits of a source that are looked through.
const EDITS: u32 = 20;

/// Adds what the read model knows of the causes.
///
/// # Errors
/// [`StoreError`]; the reasons stay as they were.
pub(in crate::api) async fn attach(state: &State, source: Source, reasons: &mut [Reason]) -> Result<(), StoreError> {
    let full = |reason: &Reason| matches!(reason.why, "concurrency" | "rpm" | "no_models" | "no_group");
    if reasons.iter().all(full) {
        return Ok(());
    }
    let happened = state.reads().transitions(source, None, ANNOUNCEMENTS).await?;
    let said: Vec<TransitionRow> = reasons.iter().filter_map(|reason| announced(reason, &happened)).cloned().collect();
    let mut causes = state.reads().causes(source, &said).await?;
    let refusal = failed_refresh(&happened);
    let by_hand = |reason: &Reason| matches!(reason.why, "disabled_by_operator" | "held_open");
    let done = if reasons.iter().any(by_hand) { edits(state, source, None, EDITS).await? } else { Vec::new() };
    for reason in reasons {
        if let Some(row) = announced(reason, &happened) {
            reason.evidence.push(StoryLine::happened(row, causes.remove(&row.id)));
        }
        if matches!(reason.why, "disabled_by_verdict" | "credential_expired") {
            reason.evidence.extend(refusal.map(|row| StoryLine::happened(row, None)));
        }
        let edit = match reason.why {
            "disabled_by_operator" => done.iter().find(|line| line.event.ends_with("_disabled")),
            "held_open" => {
                done.iter().find(|line| line.event.starts_with("intervention_") && line.model == reason.model)
            }
            _ => None,
        };
        reason.evidence.extend(edit.cloned());
    }
    Ok(())
}

/// The announcement that set what a reason is about, as last told.
fn announced<'a>(reason: &Reason, happened: &'a [TransitionRow]) -> Option<&'a TransitionRow> {
    let subject = reason.subject.as_deref()?;
    let sets = |row: &TransitionRow| matches!(row.kind.as_str(), "block_set" | "breaker_opened" | "source_disabled");
    happened.iter().find(|row| row.subject == subject && sets(row))
}

/// The last refresh, if it failed.
fn failed_refresh(happened: &[TransitionRow]) -> Option<&TransitionRow> {
    let last = happened.iter().find(|row| row.subject == "credential")?;
    (last.kind == "credential_refresh_failed").then_some(last)
}
