//! Runs a nats-server and a Postgres in a folder until it is told to stop, for work on the project by hand:
//! `waybill-services up DIR [nats|postgres]`. One line of JSON tells where they are. It holds no other logic.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use secrecy::ExposeSecret;
use tokio::signal::unix::{SignalKind, signal};
use waybill_services::{Finder, Launcher, Nats, NatsConfig, Postgres, PostgresConfig, shim};

const USAGE: &str = "usage: waybill-services up DIR [nats|postgres]";

fn main() -> ExitCode {
    shim::run_if_asked();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            let _nowhere_else_to_say_it = writeln!(io::stderr(), "{fault}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (dir, which) = match words.as_slice() {
        ["up", dir] => (PathBuf::from(dir), None),
        ["up", dir, which @ ("nats" | "postgres")] => (PathBuf::from(dir), Some(*which)),
        _ => return Err(USAGE.into()),
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(up(dir, which))
}

async fn up(dir: PathBuf, which: Option<&str>) -> Result<(), Box<dyn std::error::Error>> {
    let launcher = Launcher::current_exe()?;
    let finder = Finder::new(&dir);
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut facts = Vec::new();
    let nats = match which {
        Some("postgres") => None,
        _ => Some(Nats::start(&launcher, &finder, NatsConfig::new(dir.join("nats"))).await?),
    };
    let postgres = match which {
        Some("nats") => None,
        _ => Some(Postgres::start(&launcher, &finder, PostgresConfig::new(dir.join("postgres"))).await?),
    };
    if let Some(nats) = &nats {
        facts.push(format!(r#""nats":"{}","nats_pid":{}"#, nats.url(), nats.child().pid()));
    }
    if let Some(postgres) = &postgres {
        let (url, pid) = (postgres.url(), postgres.child().pid());
        facts.push(format!(r#""postgres":"{}","postgres_pid":{pid}"#, url.expose_secret()));
    }
    let mut out = io::stdout();
    writeln!(out, "{{{}}}", facts.join(","))?;
    out.flush()?;
    tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
    if let Some(postgres) = postgres {
        postgres.stop().await?;
    }
    if let Some(nats) = nats {
        nats.stop().await?;
    }
    Ok(())
}
