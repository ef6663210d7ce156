//! The log is away under load, while sources fail: everything is served, nothing can be edited, and what is told late is
//! history, not evidence.

use std::collections::BTreeMap;
use std::time::Instant;

use reqwest::Method;
use serde_json::json;
use waybill_testkit::upstream::{Reply, Source};

use super::truth::{self, Sides};
use super::{Case, Ground, mix, refold};

const NAME: &str = "away";

/// Takes the only node of the log away for as long as the scale says, and gives it back.
pub async fn away(ground: &mut Ground) -> Case {
    let began = Instant::now();
    let mut case = Case::named("the log is away");
    if let Some(late_after) = ground.scale.late_after {
        let after = u64::try_from(late_after.as_millis()).unwrap_or(u64::MAX);
        ground.bench.admin().policy(json!({"late_after_ms": after})).await;
    }
    calm(ground);
    ground.bench.configured().await;
    let load = ground.load(|n| mix::served(NAME, n));
    tokio::time::sleep(ground.scale.calm).await;
    // Everything up to here is known, so that what follows is of the time without the log.
    refold::advance(ground, &mut case).await;
    let (before, late) = (ground.refold.transitions.len(), ground.refold.late);

    let gone = Instant::now();
    ground.bench.fleet.take_away("nats-server");
    failing(ground);
    let (bad, away) = (ground.scale.bad, ground.scale.away);
    let mut edits: BTreeMap<u16, usize> = BTreeMap::new();
    let (mut bad_until, mut calls) = (Some(gone + bad), Vec::new());
    while gone.elapsed() < away {
        let edit = json!({"name": format!("edit-{}", edits.values().sum::<usize>())});
        let reply = ground.bench.admin().ask(Method::POST, "/groups", Some(&edit)).await;
        *edits.entry(reply.status).or_default() += 1;
        calls.extend(ground.calls());
        if bad_until.is_some_and(|until| Instant::now() >= until) {
            bad_until = None;
            calm(ground);
        }
        tokio::time::sleep(ground.scale.calm / 4).await;
    }
    let sent_away = load.sent();
    ground.bench.fleet.give_back();
    let back = Instant::now();
    tokio::time::sleep(ground.scale.calm).await;
    let seen = load.stop().await;
    ground.rest().await;
    let drained = back.elapsed();

    if edits.keys().any(|status| *status != 503) {
        case.violations.push(format!("edits without the log were answered otherwise than with 503: {edits:?}"));
    }
    case.notes.push(format!("{} edits answered 503", edits.values().sum::<usize>()));
    case.notes.push(format!(
        "away for {:.0} s, {sent_away} requests until then; all told {:.1} s after its return",
        back.duration_since(gone).as_secs_f64(),
        drained.as_secs_f64()
    ));
    truth::check(ground, &mut case, NAME, Sides { seen, calls, ..Sides::default() }).await;
    refold::check(ground, &mut case).await;
    no_consequences(ground, &mut case, before, late);
    case.took = began.elapsed();
    case
}

/// Sources as they are when nothing is wrong.
fn calm(ground: &Ground) {
    for name in ["failing", "limited", "steady"] {
        ground.bench.upstream.set_source(name, Source::default());
    }
}

/// Every source but the last one fails: one by faults, one by a limit that would block it for long.
fn failing(ground: &Ground) {
    let upstream = &ground.bench.upstream;
    upstream.set_source("failing", Source::default().then(Reply::error(500, "server_error")));
    let limited = Reply::error(429, "rate_limit_exceeded").header("retry-after", "600");
    upstream.set_source("limited", Source::default().then(limited));
}

/// What was told late has tripped no breaker and set no block, in the fold and in the replicas' views, which were
/// compared with it.
fn no_consequences(ground: &Ground, case: &mut Case, before: usize, late: u64) {
    let late = ground.refold.late - late;
    if late == 0 {
        case.violations.push("no evidence came late: nothing is proved".to_owned());
    }
    case.notes.push(format!("{late} outcomes came too late to be evidence"));
    let after: Vec<_> = ground.refold.transitions.iter().skip(before).collect();
    if !after.is_empty() {
        case.violations.push(format!("late evidence had consequences: {after:?}"));
    }
    case.notes.push(format!("transitions of breakers and blocks since it went away: {}", after.len()));
}
