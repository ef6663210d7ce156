//! How long a fresh replica takes from its start until it is ready, when there are many sources.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use waybill_testkit::Fleet;

use crate::process::{self, Running};

/// Sources that a fresh replica finds.
pub(crate) const SOURCES: usize = 2_000;
/// Sources that are created with one call.
const PER_CALL: usize = 250;
/// How long a replica may take before the run gives up.
const DEADLINE: Duration = Duration::from_secs(30);

/// Creates the sources, beside those that are there.
pub(crate) async fn create_sources(fleet: &Fleet, upstream: SocketAddr) {
    for first in (0..SOURCES).step_by(PER_CALL) {
        let channel = |number: usize| {
            json!({
                "name": format!("many-{number}"),
                "provider": "openai",
                "base_url": format!("http://{upstream}/v1"),
                "credential": format!("sk-many-{number}"),
                "models": [format!("many-{}", number % 50)],
                "groups": ["many"],
                "priority": number % 3,
                "weight": 1,
                "allow_private": true,
            })
        };
        let channels: Vec<_> = (first..first + PER_CALL).map(channel).collect();
        let manifest = json!({"groups": [{"name": "many"}], "channels": channels, "keys": []});
        fleet.admin().post("/apply", manifest).await;
    }
}

/// What a fresh replica did.
pub(crate) struct Fresh {
    /// From the start of the process until it says that it is ready, in ms.
    pub(crate) ready_ms: f64,
    /// CPU time it used until then, in ms.
    pub(crate) cpu_ms: f64,
    /// What it holds then, in MB.
    pub(crate) resident_mb: f64,
}

/// Starts a replica with a folder of its own, waits until it is ready, and ends it.
///
/// # Errors
/// It doesn't become ready.
pub(crate) async fn start(fleet: &Fleet, number: usize) -> Result<Fresh> {
    let folder = tempfile::tempdir()?;
    let ops = free_port()?;
    let config = configuration(&fleet.dir(), folder.path(), number, ops)?;
    let mut command = Command::new(Fleet::binary());
    command.arg("proxy").arg("--config").arg(config);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    let child = Running(command.spawn().context("a fresh replica")?);
    let pid = child.0.id();
    process::pin_measured(pid);
    while !ready(ops).await {
        if began.elapsed() > DEADLINE {
            bail!("a fresh replica isn't ready after {DEADLINE:?}");
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let ready_ms = began.elapsed().as_secs_f64() * 1e3;
    let cpu_ms = process::cpu(&[pid]).as_secs_f64() * 1e3;
    let resident_mb = crate::measure::kilobytes(process::resident(&[pid])?) / 1024.0;
    Ok(Fresh { ready_ms, cpu_ms, resident_mb })
}

fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

/// The configuration of the fleet's proxy, with its own name, ports and folder.
fn configuration(fleet: &Path, folder: &Path, number: usize, ops: SocketAddr) -> Result<std::path::PathBuf> {
    let text = fs::read_to_string(fleet.join("etc/proxy-1.toml")).context("the proxy's configuration")?;
    let mut config: toml::Table = text.parse().context("the proxy's configuration")?;
    config.insert("name".to_owned(), format!("fresh-{number}").into());
    config.insert("ops_listen".to_owned(), ops.to_string().into());
    config.insert("data_dir".to_owned(), folder.display().to_string().into());
    let proxy = config.get_mut("proxy").and_then(toml::Value::as_table_mut).context("no section `proxy`")?;
    proxy.insert("listen".to_owned(), free_port()?.to_string().into());
    let path = folder.join("fresh.toml");
    fs::write(&path, config.to_string())?;
    Ok(path)
}

async fn ready(ops: SocketAddr) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect(ops).await?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).await?;
        std::io::Result::Ok(head)
    };
    asked.await.is_ok_and(|head| head.starts_with(b"HTTP/1.1 200"))
}
