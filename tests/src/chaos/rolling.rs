//! A rolling restart under load, as an operator does it: each replica is asked to stop, and the next one when the last is
//! ready again.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use std::sync::Arc;

use waybill_testkit::{Haproxy, Load, until, wait_until};

use super::ground::RECOVERED;
use super::truth::{self, Sides};
use super::{Case, Ground, mix, refold};

/// The deployment's balancer looks twice a second: until it has seen a replica, nobody goes to it.
const SEEN_READY: Duration = Duration::from_secs(1);

/// What clients talk to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Through {
    /// A front that does what the deployment's balancer is told to do.
    Front,
    /// The deployment's balancer itself, with its file; the case is left out where it isn't installed.
    Haproxy,
}

/// Restarts all replicas in turn until so many requests were sent as the scale says. `None` where the balancer isn't
/// installed.
pub async fn rolling(ground: &mut Ground, through: Through) -> Option<Case> {
    let began = Instant::now();
    let haproxy = match through {
        Through::Front => None,
        Through::Haproxy => Some(Haproxy::start(&ground.bench.fleet, &config()).await?),
    };
    let (name, prefix) = match through {
        Through::Front => ("rolling restart", "roll"),
        Through::Haproxy => ("rolling restart behind HAProxy", "haproxy"),
    };
    let mut case = Case::named(name);
    refold::advance(ground, &mut case).await;
    let boots = all_boots(ground);
    let ends = all_ends(ground);
    let front = haproxy.as_ref().map_or_else(|| Arc::clone(&ground.front), |running| Arc::new(running.front()));
    let load = Load::start(front, &ground.bench.key, ground.scale.rate, |n| mix::served(prefix, n));
    tokio::time::sleep(ground.scale.calm).await;
    let (mut restarts, mut calls) = (0, Vec::new());
    // All three, and again until there were requests enough.
    while restarts == 0 || load.sent() < ground.scale.rolling {
        for proxy in 1..=ground.bench.fleet.proxies().len() {
            restart(ground, &format!("proxy-{proxy}")).await;
            restarts += 1;
            calls.extend(ground.calls());
        }
    }
    tokio::time::sleep(ground.scale.calm).await;
    let seen = load.stop().await;
    ground.rest().await;
    let streams = seen.iter().filter(|seen| seen.asked.stream).count();
    truth::check(ground, &mut case, prefix, Sides { seen, calls, ..Sides::default() }).await;
    refold::check(ground, &mut case).await;
    stops_were_clean(ground, &mut case, &boots, &ends);
    case.notes.push(format!("{restarts} restarts; {streams} of the requests were streams"));
    case.took = began.elapsed();
    Some(case)
}

fn config() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/haproxy/haproxy.cfg")
}

async fn restart(ground: &Ground, name: &str) {
    let fleet = &ground.bench.fleet;
    let before = fleet.terminate(name);
    wait_until(RECOVERED, format_args!("{name} is started again"), async || {
        let now = fleet.process(name);
        until(now.pid != before, || format!("{now:?}"))
    })
    .await;
    ground.all_ready().await;
    tokio::time::sleep(SEEN_READY).await;
}

type PerProxy<T> = BTreeMap<String, T>;

fn names(ground: &Ground) -> impl Iterator<Item = String> {
    (1..=ground.bench.fleet.proxies().len()).map(|proxy| format!("proxy-{proxy}"))
}

fn all_boots(ground: &Ground) -> PerProxy<usize> {
    names(ground).map(|name| (name.clone(), ground.log.boots_of(&name).len())).collect()
}

fn all_ends(ground: &Ground) -> PerProxy<usize> {
    names(ground).map(|name| (name.clone(), ground.bench.fleet.ends_of(&name).len())).collect()
}

/// Every stop ended with code 0, and the last event of each boot that was stopped says that its outbox is drained.
fn stops_were_clean(ground: &Ground, case: &mut Case, boots: &PerProxy<usize>, ends: &PerProxy<usize>) {
    let (mut stops, mut closed) = (0, 0);
    for name in names(ground) {
        let before = ends.get(&name).copied().unwrap_or_default();
        for end in ground.bench.fleet.ends_of(&name).into_iter().skip(before) {
            stops += 1;
            if end != "exit status: 0" {
                case.violations.push(format!("{name} ended with {end}"));
            }
        }
        // The boot that ran at first was known before or not; the one that runs now isn't stopped.
        let known = boots.get(&name).copied().unwrap_or_default().saturating_sub(1);
        let all = ground.log.boots_of(&name);
        let stopped = all.len().saturating_sub(1);
        for (last, drained) in all.into_iter().take(stopped).skip(known) {
            closed += usize::from(drained);
            if !drained {
                case.violations.push(format!("the last event of a boot of {name} ({last}) isn't outbox_drained"));
            }
        }
    }
    if stops == 0 || closed < stops {
        case.violations.push(format!("{stops} stops, and only {closed} boots that end with outbox_drained"));
    }
    case.notes.push(format!("{stops} stops with exit code 0, {closed} boots that end with outbox_drained"));
}
