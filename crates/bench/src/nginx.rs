//! nginx as a reverse proxy, where it is installed (or named by `NGINX`).

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::process::Running;

/// The program, if there is one.
pub(crate) fn find() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("NGINX") {
        return Some(given.into());
    }
    let path = std::env::var_os("PATH")?;
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/local/sbin")]);
    folders.map(|folder| folder.join("nginx")).find(|program| program.is_file())
}

/// Starts it with one worker in front of `upstream`, with all that it keeps in `folder`.
///
/// # Errors
/// It can't be started.
pub(crate) fn start(program: &Path, folder: &Path, upstream: SocketAddr) -> Result<(Running, SocketAddr)> {
    let listen = TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr()).context("a port for nginx")?;
    let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("  {kind}_temp_path {}/{kind};\n", folder.display()))
        .collect();
    let user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" };
    let config = format!(
        "{user}daemon off;\nworker_processes 1;\npid {folder}/pid;\nerror_log {folder}/error.log;\nevents {{ \
         worker_connections 16384; }}\nhttp {{\n{temp}  access_log off;\n  client_max_body_size 64m;\n  \
         client_body_buffer_size 256k;\n  keepalive_requests 1000000;\n  upstream bench {{ server {upstream}; keepalive \
         256; keepalive_requests 1000000; }}\n  server {{\n    listen {listen};\n    location / {{\n      proxy_pass \
         http://bench;\n      proxy_http_version 1.1;\n      proxy_set_header Connection \"\";\n      proxy_buffering \
         off;\n      proxy_read_timeout 300s;\n    }}\n  }}\n}}\n",
        folder = folder.display(),
    );
    let path = folder.join("nginx.conf");
    fs::write(&path, config).context("nginx's configuration")?;
    let child = Command::new(program)
        .arg("-c")
        .arg(&path)
        .arg("-p")
        .arg(folder)
        .arg("-e")
        .arg(folder.join("error.log"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("can't start {}", program.display()))?;
    Ok((Running(child), listen))
}
