//! Kills, freezes, cuts off and restarts parts of whole fleets in full size, and prints what held. `cargo xtask chaos`
//! builds the binary and runs this. Ends with an error where anything was wrong.

#![expect(clippy::print_stdout, reason = "a scorecard is this program's output")]

use std::process::ExitCode;
use std::time::Duration;

use waybill_tests::chaos::{CLUSTER, Case, Ground, Plan, SINGLE, Scale, Scorecard, Through, away, kills, rolling};

/// As the deployment has it by default: four looks of its balancer.
const DRAIN_DELAY: Duration = Duration::from_secs(2);

struct Args {
    scale: Scale,
    write: Option<String>,
    only: Option<String>,
}

fn args() -> Result<Args, String> {
    let mut args = Args { scale: Scale::full(), write: None, only: None };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--write" => args.write = Some(value),
            "--only" => args.only = Some(value),
            "--rate" => args.scale.rate = value.parse().map_err(|error| format!("--rate {value}: {error}"))?,
            _ => return Err(format!("there is no option {name}")),
        }
    }
    Ok(args)
}

fn told(case: &Case) {
    println!("{}{case:#?}", case.row());
}

impl Args {
    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    fn of(&self, plans: &[Plan]) -> Vec<Plan> {
        plans.iter().filter(|plan| self.wants(plan.name)).copied().collect()
    }
}

async fn cluster(args: &Args) -> Vec<Case> {
    let plans = args.of(CLUSTER);
    let restarts = [("rolling restart", Through::Front), ("rolling restart behind HAProxy", Through::Haproxy)];
    let restarts: Vec<_> = restarts.into_iter().filter(|(name, _)| args.wants(name)).collect();
    let mut cases = Vec::new();
    if plans.is_empty() && restarts.is_empty() {
        return cases;
    }
    let mut ground = Ground::start(3, args.scale, DRAIN_DELAY).await;
    cases.extend(kills(&mut ground, &plans, told).await);
    for (_, through) in restarts {
        let case = rolling(&mut ground, through).await;
        case.iter().for_each(told);
        cases.extend(case);
    }
    ground.bench.fleet.stop().await;
    cases
}

async fn single(args: &Args) -> Vec<Case> {
    let plans = args.of(SINGLE);
    let mut cases = Vec::new();
    let is_away = args.wants("the log is away");
    if plans.is_empty() && !is_away {
        return cases;
    }
    let mut ground = Ground::start(1, args.scale, DRAIN_DELAY).await;
    cases.extend(kills(&mut ground, &plans, told).await);
    if is_away {
        let case = away(&mut ground).await;
        told(&case);
        cases.push(case);
    }
    ground.bench.fleet.stop().await;
    cases
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let args = match args() {
        Ok(args) => args,
        Err(why) => {
            println!("chaos: {why}");
            return ExitCode::FAILURE;
        }
    };
    let mut scorecard = Scorecard::default();
    for (fleet, cases) in [
        ("A log of three nodes, three copies of everything", cluster(&args).await),
        ("A log of one node", single(&args).await),
    ] {
        if !cases.is_empty() {
            scorecard.add(fleet, cases);
        }
    }
    let page = scorecard.page(args.scale);
    println!("{page}");
    if let Some(path) = &args.write
        && let Err(error) = std::fs::write(path, &page)
    {
        println!("chaos: {path}: {error}");
        return ExitCode::FAILURE;
    }
    if scorecard.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
