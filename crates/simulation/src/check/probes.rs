//! Probes: while the store is within reach, at most so many probes of an opening are under way in the whole fleet as the
//! policy says.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use waybill_event::{Body, RequestId};

use super::log::Log;
use crate::fleet::Fleet;
use crate::ground::Ground;
use crate::upstream::Call;

/// How long before a call its permit may have been asked for.
const CLAIMING: Duration = Duration::from_millis(300);

/// Checks them, and says how many there were.
pub fn check(ground: &Ground, fleet: &Fleet, log: &Log) -> u64 {
    let mut clients: BTreeMap<RequestId, u64> = BTreeMap::new();
    // What was claimed for the attempt that begins next.
    let mut openings: BTreeMap<RequestId, String> = BTreeMap::new();
    let mut probes: BTreeMap<(u64, usize), String> = BTreeMap::new();
    let mut attempts: BTreeMap<RequestId, usize> = BTreeMap::new();
    for placed in &log.events {
        let Some((id, _)) = placed.event.draft.request else { continue };
        match &placed.event.draft.body {
            Body::RequestAdmitted(admitted) => {
                let client =
                    admitted.client_request_id.as_deref().and_then(|id| id.strip_prefix("client-")?.parse().ok());
                clients.extend(client.map(|client| (id, client)));
            }
            Body::BreakerHalfOpened(half) => {
                openings.insert(id, half.opening.clone());
            }
            Body::AttemptStarted(_) => {
                let nth = attempts.entry(id).or_default();
                if let (Some(client), Some(opening)) = (clients.get(&id), openings.remove(&id)) {
                    probes.insert((*client, *nth), opening);
                }
                *nth += 1;
            }
            _ => {}
        }
    }
    let calls = fleet.calls.lock();
    let mut nth: BTreeMap<u64, usize> = BTreeMap::new();
    let mut under_way: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in calls.iter() {
        let Some(client) = call.client else { continue };
        let number = nth.entry(client).or_default();
        if let Some(opening) = probes.get(&(client, *number)) {
            under_way.entry(opening.as_str()).or_default().push(call);
        }
        *number += 1;
    }
    for (opening, calls) in &under_way {
        let well: Vec<&&Call> = calls.iter().filter(|call| is_well(ground, call)).collect();
        // However late one begins, fewer than the policy allows are still undecided.
        let most = usize::try_from(ground.setting.half_open_probes).unwrap_or(1);
        for (n, one) in well.iter().enumerate() {
            let others = well.iter().take(n).filter(|before| one.begun < before.decided.unwrap_or(one.begun)).count();
            if others >= most {
                ground.violated("too many probes of one opening at once", &format!("{opening}: {one:?} {well:?}"));
            }
        }
    }
    under_way.values().map(|calls| calls.len() as u64).sum()
}

/// Whether the caller and the store had nothing between them, from the claim to the decision.
fn is_well(ground: &Ground, call: &Call) -> bool {
    let from = call.begun.checked_sub(CLAIMING).unwrap_or(call.begun);
    ground.was_well(&call.who, from, call.decided.unwrap_or_else(Instant::now))
}
