//! `waybill dev`: the whole product on one machine. A real nats-server and a real Postgres, every role as a process of
//! its own with an identity of its own in the log, and an upstream to try it with; all of it ends with this process.

mod demo;
mod fleet;
mod folder;
mod greeting;
mod roles;
mod servers;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use secrecy::ExposeSecret;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_services::Launcher;

use self::fleet::Fleet;
use self::folder::Folder;
use self::servers::Servers;

/// Run the whole product on this machine.
#[derive(Debug, Clone, Args)]
pub struct Dev {
    /// Number of proxies.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub proxies: u16,
    /// Number of projectors: one leads, the others stand by.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4))]
    pub projectors: u16,
    /// Number of upkeep processes: they share the work.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4))]
    pub upkeeps: u16,
    /// Nodes of the log: 1, or 3 that hold three copies of everything.
    #[arg(long, default_value = "1", value_parser = ["1", "3"])]
    pub nats_nodes: String,
    /// Folder for everything the fleet keeps.
    #[arg(long, default_value = ".waybill")]
    pub dir: PathBuf,
    /// Leave the demo's upstream, channels and key out.
    #[arg(long)]
    pub no_demo: bool,
    /// First interval between probes of a disabled source, in milliseconds.
    #[arg(long, default_value_t = 10_000)]
    pub probe_interval_ms: u64,
    /// Time between a proxy's "not ready" and its end of accepting at a stop, in milliseconds.
    #[arg(long, default_value_t = 0)]
    pub drain_delay_ms: u64,
    /// Time open requests get to finish at a stop, in milliseconds.
    #[arg(long, default_value_t = 5_000)]
    pub grace_ms: u64,
    /// Largest size of a proxy's outbox, in bytes.
    #[arg(long, default_value_t = 1 << 30)]
    pub outbox_max_bytes: u64,
    /// Life of a slot of a limit in the store, in milliseconds.
    #[arg(long, default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(5_000..=3_600_000))]
    pub slot_life_ms: u64,
    /// When a request counts as recorded: `pipelined` (in the outbox) or `acked` (in the log).
    #[arg(long, default_value = "pipelined", value_parser = ["pipelined", "acked"])]
    pub durability: String,
    /// Largest size of the traffic stream, in bytes.
    #[arg(long, default_value_t = 4 << 30)]
    pub traffic_max_bytes: i64,
}

impl Dev {
    /// Nodes of the log.
    #[must_use]
    pub fn nats_nodes(&self) -> usize {
        if self.nats_nodes == "3" { 3 } else { 1 }
    }
}

/// Runs the fleet until the process is asked to stop.
///
/// # Errors
/// Something can't be started. What had been started is stopped before this returns.
pub async fn run(args: Dev) -> anyhow::Result<()> {
    let tasks = TaskTracker::new();
    let stop = CancellationToken::new();
    tasks.spawn(crate::signals::cancel_when_asked(stop.clone())?);
    let folder = Folder::open(&args.dir)?;
    let launcher = Launcher::current_exe().context("the running binary's own path")?;

    let ran = async {
        greeting::step("starting nats-server and Postgres (fetching them first where they aren't installed)");
        let mut servers = Servers::start(&launcher, &folder, args.nats_nodes()).await?;
        let ran = run_roles(&args, &folder, &launcher, &mut servers, &stop).await;
        servers.stop().await;
        ran
    };
    let ran = ran.await;
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    ran
}

async fn run_roles(
    args: &Dev,
    folder: &Folder,
    launcher: &Launcher,
    servers: &mut Servers,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let prepared = tokio::select! {
        prepared = roles::prepare(args, folder, servers) => prepared?,
        () = stop.cancelled() => return Ok(()),
    };
    greeting::step("starting the roles");
    let mut fleet = Fleet::start(launcher, folder, servers, &prepared).await?;
    let served = serve_until_stopped(args, folder, &prepared, (&mut fleet, servers), stop).await;
    greeting::step("stopping");
    fleet.stop().await;
    drop(prepared.reserved);
    served
}

async fn serve_until_stopped(
    args: &Dev,
    folder: &Folder,
    prepared: &roles::Prepared,
    (fleet, servers): (&mut Fleet, &mut Servers),
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    tokio::select! {
        ready = fleet.ready() => ready?,
        () = stop.cancelled() => return Ok(()),
    }
    let demo =
        if args.no_demo { None } else { Some(demo::start(folder, &fleet.addresses(), &prepared.admin_token).await?) };
    let mut addresses = fleet.addresses();
    addresses.admin_token = prepared.admin_token.expose_secret().to_owned();
    if let Some(demo) = &demo {
        addresses.client_key = Some(demo.client_key.clone());
        addresses.demo_url = Some(demo.url.clone());
    }
    folder.write_addresses(&addresses)?;
    greeting::ready(&addresses, demo.is_some(), args.dir != Path::new(".waybill"));
    fleet.supervise(folder, servers, addresses, stop).await;
    if let Some(demo) = demo {
        demo.stop().await;
    }
    Ok(())
}
