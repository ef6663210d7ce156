//! Selection tables: each is re-derived from the log at the positions that it records, the replica's own events included,
//! and must come out as it was.

use std::sync::Arc;

use waybill_domain::catalog::Ability;
use waybill_domain::history::Placed;
use waybill_domain::selector::factors::effective;
use waybill_domain::selector::table::{Row, Table};
use waybill_domain::selector::{Load, Revisions, View};
use waybill_event::traffic::{SelectionTable, TableCandidate};
use waybill_event::{Body, Mark};

use super::log::Log;
use super::reference::{Reference, Wanted};
use crate::ground::Ground;

/// The recorded tables, in order.
pub fn tables(log: &Log) -> impl Iterator<Item = (&Placed, &SelectionTable)> {
    log.events.iter().filter_map(|placed| match &placed.event.draft.body {
        Body::SelectionTable(table) => Some((placed, table)),
        _ => None,
    })
}

/// The states that the tables were judged by.
pub fn wanted(log: &Log) -> Wanted {
    let mut wanted = Wanted::new();
    for candidate in tables(log).flat_map(|(_, table)| &table.candidates) {
        if let Some(position) = candidate.position {
            wanted.entry(position).or_default().insert(candidate.source);
        }
    }
    wanted
}

/// Checks them, and says how many came out as they were recorded.
pub fn check(ground: &Ground, log: &Log, reference: &Reference) -> u64 {
    let mut right = 0;
    for (placed, recorded) in tables(log) {
        let derived = derive(placed, recorded, log, reference);
        match derived {
            Ok(derived) if derived == *recorded => right += 1,
            Ok(derived) => {
                let text = format!("{}: recorded {recorded:?} derived {derived:?}", placed.event.identity);
                ground.violated("a table isn't what the log gives", &text);
            }
            Err(why) => ground.violated("a table can't be re-derived", &format!("{}: {why}", placed.event.identity)),
        }
    }
    right
}

fn derive(
    placed: &Placed,
    recorded: &SelectionTable,
    log: &Log,
    reference: &Reference,
) -> Result<SelectionTable, String> {
    let config = placed.event.draft.config.ok_or("it names no configuration")?;
    let catalog = usize::try_from(config.0).ok().and_then(|at| log.catalogs.get(at));
    let catalog = catalog.ok_or("its configuration isn't in the log")?;
    let model: Arc<str> = recorded.model.as_str().into();
    let abilities = catalog.index().model(recorded.group, &model).ok_or("nobody serves its model")?;
    let owner = placed.event.identity.mark().ok_or("it has no mark")?;
    let mut rows = Vec::new();
    for ability in abilities.iter() {
        let candidate = recorded.candidates.iter().find(|candidate| candidate.source == ability.source);
        let candidate = candidate.ok_or_else(|| format!("{} is missing", ability.source))?;
        let view = view(owner, ability, candidate, log, reference)?;
        let by_hand = catalog.catalog().by_hand(ability.source, &ability.upstream_model);
        let mut row = Row::judge(ability, Some(&view), Load::default(), by_hand, recorded.as_of);
        // Load is a recorded input.
        row.factors.load = candidate.factors.load;
        row.effective = effective(row.weight, row.factors);
        rows.push(row);
    }
    Ok(Table::of((recorded.group, model), rows, recorded.as_of, config, 100).to_event())
}

/// The view of a source that the replica had.
fn view(
    owner: &Mark,
    ability: &Ability,
    candidate: &TableCandidate,
    log: &Log,
    reference: &Reference,
) -> Result<View, String> {
    let source = candidate.source;
    let mut view = View::new(source, owner.producer.clone(), owner.boot);
    view.adopt(Revisions { credential: ability.credential_revision.unwrap_or(0), base_url: ability.base_url_revision });
    if let Some(position) = candidate.position {
        let state = reference.states.get(&(position, source));
        view.replace(state.ok_or_else(|| format!("{source} has no state at {position}"))?.clone());
    }
    let Some((first, last)) = candidate.own else { return Ok(view) };
    for n in first..=last {
        let mark = Mark { n, ..owner.clone() };
        let event = log.of_mark(&mark).ok_or_else(|| format!("own event {mark} isn't in the log"))?;
        view.own(&event.event);
    }
    Ok(view)
}
