//! The run: everything is started, measured in turns, and stopped.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use waybill_testkit::{ChannelSpec, Fleet, FleetOptions};

use crate::measure::{self, Latency, Load, Rounds};
use crate::peers::Peers;
use crate::process::{self, Running};
use crate::request::{HELD_MODEL, Kind, MODEL};
use crate::subject::Subject;
use crate::{fresh, nginx, report};

/// The measured proxy.
const PROXY: &str = "proxy-1";
/// The log, which answers the proxy and so has to get its turn while the peers stay awake.
const LOG: &str = "nats-server";
const GROUP: &str = "bench";
/// Time for everything to become quiet after its start.
const QUIET: Duration = Duration::from_secs(2);
/// Fresh replicas that are started.
const FRESH: usize = 5;
/// Runs of the events' cost.
const EVENT_RUNS: usize = 5;

/// What is measured and where it is written to.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: crate::Output,
    /// Fewer rounds: for a look while changing something.
    #[arg(long)]
    quick: bool,
    /// Only CPU time per request and per chunk.
    #[arg(long)]
    cpu_only: bool,
    /// Fail if a ratio of CPU time is far above its target in every round.
    #[arg(long)]
    check: bool,
}

/// All that was measured; lists are in the order of the subjects.
pub(crate) struct Figures {
    /// Names of what is compared.
    pub(crate) names: Vec<&'static str>,
    /// CPU time of small requests, large ones, and chunks.
    pub(crate) cpu: Vec<(Kind, Rounds)>,
    /// Latency; the last one is the upstream without anything in front.
    pub(crate) latency: Option<Latency>,
    /// KB of an open stream.
    pub(crate) held_kb: Vec<f64>,
    /// MB of the proxy that has served nobody yet.
    pub(crate) idle_mb: f64,
    /// CPU time of a request's events, in µs.
    pub(crate) events: Vec<f64>,
    /// Fresh replicas.
    pub(crate) fresh: Vec<fresh::Fresh>,
    /// How long it all took.
    pub(crate) took: Duration,
}

/// Measures and reports.
///
/// # Errors
/// Something can't be started, or fails under load.
pub(crate) async fn run(args: Args) -> Result<()> {
    let began = Instant::now();
    let folder = tempfile::tempdir()?;
    let peers = Peers::start(0)?;
    let upstream = peers.upstream;
    let options = FleetOptions { proxies: 1, probe_interval: Duration::from_secs(600), ..FleetOptions::default() };
    let fleet = Fleet::start(options).await;
    let token = set_up(&fleet, upstream).await;
    let (_pass_through, passing) = start_pass_through(upstream)?;
    let (_nginx, nginx) = start_nginx(folder.path(), upstream).await?;
    let mut subjects = vec![passing];
    let proxy = fleet.process(PROXY);
    let address = fleet.proxy(1).trim_start_matches("http://").parse().context("the proxy's address")?;
    subjects.push(Subject::new("waybill", address, vec![proxy.pid], &token));
    subjects.extend(nginx);
    step_back(&fleet, |name| ![PROXY, LOG].contains(&name));
    tokio::time::sleep(QUIET).await;
    let figures = measure(&args, &fleet, &peers, subjects, began).await;
    fleet.stop().await;
    let figures = figures?;
    report::tell(&figures, args.output.write.as_deref())?;
    if args.check { report::check(&figures) } else { Ok(()) }
}

async fn measure(
    args: &Args,
    fleet: &Fleet,
    peers: &Peers,
    mut subjects: Vec<Subject>,
    began: Instant,
) -> Result<Figures> {
    let rounds = if args.quick { 3 } else { 7 };
    let idle_mb = subjects.iter().find(|s| s.name == "waybill").map_or(Ok(0), Subject::resident)?;
    let mut figures = Figures {
        names: subjects.iter().map(|subject| subject.name).collect(),
        cpu: Vec::new(),
        latency: None,
        held_kb: Vec::new(),
        idle_mb: measure::kilobytes(idle_mb) / 1024.0,
        events: Vec::new(),
        fresh: Vec::new(),
        took: Duration::ZERO,
    };
    if !args.cpu_only {
        say("memory of open streams");
        for subject in &subjects {
            figures.held_kb.push(measure::held(subject).await?);
        }
    }
    for load in [
        Load { kind: Kind::Small, at_once: 16, requests: 2_500, rounds },
        Load { kind: Kind::Large, at_once: 8, requests: 600, rounds },
        Load { kind: Kind::Stream, at_once: 32, requests: 64, rounds: rounds.min(5) },
    ] {
        say(&format!("CPU time: {:?}", load.kind));
        figures.cpu.push((load.kind, measure::cpu(peers, &subjects, load).await?));
    }
    if !args.cpu_only {
        say("latency at a fixed rate");
        step_back(fleet, |name| name == LOG);
        peers.go_first();
        subjects.push(Subject::new("upstream", peers.upstream, Vec::new(), "unused"));
        let time = Duration::from_secs(if args.quick { 2 } else { 8 });
        figures.latency = Some(measure::latency(peers, &subjects, rounds.min(5), time).await?);
        say("cost of events");
        for _ in 0..EVENT_RUNS {
            figures.events.push(events(fleet)?);
        }
        say("fresh replicas");
        fresh::create_sources(fleet, peers.upstream).await;
        for number in 0..FRESH {
            figures.fresh.push(fresh::start(fleet, number).await?);
        }
    }
    figures.took = began.elapsed();
    Ok(figures)
}

/// Makes processes of the fleet step back, with all that they have started.
fn step_back(fleet: &Fleet, which: impl Fn(&str) -> bool) {
    for other in fleet.processes().iter().filter(|other| which(&other.name)) {
        process::family(other.pid).into_iter().for_each(process::step_back);
    }
}

fn say(what: &str) {
    println!("bench: {what}");
}

/// A group, two channels at the upstream, and a key.
async fn set_up(fleet: &Fleet, upstream: SocketAddr) -> String {
    let admin = fleet.admin();
    admin.group(GROUP).await;
    let url = format!("http://{upstream}/v1");
    for name in ["bench-1", "bench-2"] {
        admin.channel(ChannelSpec::new(name, &url).models([MODEL, HELD_MODEL]).groups([GROUP])).await;
    }
    let token = admin.key("bench", GROUP).await;
    fleet.everywhere(admin.config_position().await).await;
    token
}

fn start_pass_through(upstream: SocketAddr) -> Result<(Running, Subject)> {
    let program = std::env::current_exe().context("this program's own path")?;
    let spawned = Command::new(program)
        .args(["pass-through", "--upstream", &format!("http://{upstream}")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    let mut running = Running(spawned.context("the pass-through")?);
    let out = running.0.stdout.take().context("the pass-through's output")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    let address = line.trim().parse().with_context(|| format!("the pass-through's address: {line:?}"))?;
    let pid = running.0.id();
    Ok((running, Subject::new("pass-through", address, vec![pid], "sk-bench")))
}

async fn start_nginx(folder: &Path, upstream: SocketAddr) -> Result<(Option<Running>, Option<Subject>)> {
    let Some(program) = nginx::find() else {
        say("nginx isn't installed: without it");
        return Ok((None, None));
    };
    let (running, address) = nginx::start(&program, folder, upstream)?;
    // The worker is started by the master, which may need a moment.
    let end = Instant::now() + Duration::from_secs(5);
    let mut pids = process::family(running.0.id());
    while pids.len() < 2 && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(20)).await;
        pids = process::family(running.0.id());
    }
    Ok((Some(running), Some(Subject::new("nginx", address, pids, "sk-bench"))))
}

/// One run of the events' cost, in µs per request.
fn events(fleet: &Fleet) -> Result<f64> {
    let program = std::env::current_exe().context("this program's own path")?;
    let password: PathBuf = fleet.dir().join("secrets/nats-proxy");
    let addresses = std::fs::read_to_string(fleet.dir().join("dev.json")).context("the fleet's addresses")?;
    let addresses: serde_json::Value = serde_json::from_str(&addresses).context("the fleet's addresses")?;
    let nats = addresses.get("nats_url").and_then(serde_json::Value::as_str).context("the log's address")?;
    let output = Command::new(program)
        .args(["events", "--nats", nats])
        .arg("--password-file")
        .arg(password)
        .stdin(Stdio::null())
        .output()
        .context("the events' cost")?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().with_context(|| format!("the events' cost: {text}{}", String::from_utf8_lossy(&output.stderr)))
}
