//! The kill matrix: one case after the other against one fleet under load.

use std::time::Instant;

use reqwest::Method;
use waybill_testkit::{Stream, until, wait_until};

use super::ground::RECOVERED;
use super::truth::{self, Killed, Sides};
use super::{Blow, Case, Ground, Plan, mix, refold};

/// Runs the cases in their order; `told` hears of each as it ends.
pub async fn kills(ground: &mut Ground, plans: &[Plan], mut told: impl FnMut(&Case)) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (number, plan) in plans.iter().enumerate() {
        let began = Instant::now();
        let mut case = Case::named(plan.name);
        let prefix = format!("kill{number}");
        one(ground, &mut case, &prefix, plan.blows).await;
        if ground.scale.refold_each || number + 1 == plans.len() {
            refold::check(ground, &mut case).await;
        }
        case.took = began.elapsed();
        told(&case);
        cases.push(case);
    }
    cases
}

async fn one(ground: &Ground, case: &mut Case, prefix: &str, blows: &[Blow]) {
    let named = prefix.to_owned();
    let load = ground.load(move |n| mix::asked(&named, n));
    tokio::time::sleep(ground.scale.calm).await;
    let killed = strike(ground, case, blows).await;
    tokio::time::sleep(ground.scale.calm).await;
    let seen = load.stop().await;
    ground.rest().await;
    truth::check(ground, case, prefix, Sides { seen, killed, ..Sides::default() }).await;
}

/// Which process a blow hits now.
async fn target(ground: &Ground, blow: Blow) -> String {
    let fleet = &ground.bench.fleet;
    let projector = async || {
        let leads = async || fleet.fold_leader("traffic").await.ok_or("nobody leads");
        wait_until(RECOVERED, "somebody leads the fold of traffic", leads).await
    };
    let leader = async || {
        let leads = async || fleet.stream_leader(Stream::Traffic).await.ok_or("nobody leads");
        wait_until(RECOVERED, "a node leads the traffic stream", leads).await
    };
    let other = |prefix: &str, than: &str| {
        let mut names = fleet.processes().into_iter().map(|process| process.name);
        names.find(|name| name.starts_with(prefix) && name != than).unwrap_or_default()
    };
    match blow {
        Blow::Proxy(number) | Blow::ProxyTwice(number) => format!("proxy-{number}"),
        Blow::Projector | Blow::Freeze => projector().await,
        Blow::Standby => other("projector-", &projector().await),
        Blow::Log => "nats-server".to_owned(),
        Blow::Leader => leader().await,
        Blow::Follower => other("nats-", &leader().await),
        Blow::Postgres => "postgres".to_owned(),
    }
}

/// Does it, and waits until all is itself again. Says which proxies were killed, and when.
async fn strike(ground: &Ground, case: &mut Case, blows: &[Blow]) -> Vec<Killed> {
    let fleet = &ground.bench.fleet;
    let mut targets = Vec::new();
    for blow in blows {
        targets.push((*blow, target(ground, *blow).await));
    }
    let (mut killed, mut before) = (Vec::new(), Vec::new());
    let began = Instant::now();
    for (blow, name) in &targets {
        if matches!(blow, Blow::Proxy(_) | Blow::ProxyTwice(_)) {
            killed.push(Killed { proxy: name.clone(), at: Instant::now() });
        }
        if *blow == Blow::Freeze {
            freeze(ground, case, name).await;
        } else {
            before.push((*blow, name.clone(), fleet.kill9(name)));
        }
    }
    for (blow, name, pid) in before {
        started_again(ground, &name, pid).await;
        if matches!(blow, Blow::ProxyTwice(_)) {
            killed.push(Killed { proxy: name.clone(), at: Instant::now() });
            let next = fleet.kill9(&name);
            started_again(ground, &name, next).await;
        }
    }
    recovered(ground).await;
    let names: Vec<&str> = targets.iter().map(|(_, name)| name.as_str()).collect();
    case.notes.push(format!("{}: all well after {:.1} s", names.join(", "), began.elapsed().as_secs_f64()));
    killed
}

/// Waits until a process runs again under another id than `before`.
async fn started_again(ground: &Ground, name: &str, before: u32) {
    wait_until(RECOVERED, format_args!("{name} is started again"), async || {
        let now = ground.bench.fleet.process(name);
        until(now.pid != before, || format!("{now:?}"))
    })
    .await;
}

/// Freezes a projector until another one leads in its place, and lets it go on.
async fn freeze(ground: &Ground, case: &mut Case, name: &str) {
    let fleet = &ground.bench.fleet;
    fleet.sigstop(name);
    let began = Instant::now();
    for fold in ["selector", "traffic", "config"] {
        wait_until(RECOVERED, format_args!("another one leads {fold}"), async || {
            let leader = fleet.fold_leader(fold).await;
            until(leader.as_deref().is_some_and(|leader| leader != name), || format!("{leader:?}"))
        })
        .await;
    }
    case.notes.push(format!("another one leads after {:.1} s", began.elapsed().as_secs_f64()));
    tokio::time::sleep(ground.scale.calm).await;
    fleet.sigcont(name);
}

/// Waits until every role is ready, every node of the log is healthy, edits are taken and the tables are read.
async fn recovered(ground: &Ground) {
    let fleet = &ground.bench.fleet;
    for process in fleet.processes() {
        let Some(url) = &process.monitor_url else { continue };
        wait_until(RECOVERED, format_args!("{} is healthy", process.name), async || {
            let answer = fleet.http().get(format!("{url}/healthz")).send().await;
            let seen = format!("{answer:?}");
            until(answer.is_ok_and(|answer| answer.status().is_success()), || seen)
        })
        .await;
    }
    ground.all_ready().await;
    for fold in ["selector", "traffic", "config"] {
        wait_until(RECOVERED, format_args!("somebody leads {fold}"), async || {
            let leader = fleet.fold_leader(fold).await;
            until(leader.is_some(), || "nobody")
        })
        .await;
    }
    wait_until(RECOVERED, "the tables can be asked", async || {
        let reply = ground.bench.admin().ask(Method::GET, "/requests?limit=1", None).await;
        until(reply.status == 200, || format!("{} {}", reply.status, reply.text))
    })
    .await;
}
