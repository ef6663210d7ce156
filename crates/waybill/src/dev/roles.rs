//! What is prepared before the roles start: streams, secrets, the first admin token, and a configuration per process.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use waybill_journal_nats::{NatsConfig, Role, SetupConfig};
use waybill_secret::{KeyRing, Peppers};

use super::Dev;
use super::folder::Folder;
use super::servers::Servers;

/// One process to be started.
#[derive(Debug, Clone)]
pub struct RoleProcess {
    /// Its name, e.g. `proxy-1`.
    pub name: String,
    /// The subcommand that runs it.
    pub command: &'static str,
    /// Its configuration.
    pub config: PathBuf,
    /// Where its log goes.
    pub log: PathBuf,
    /// Base URL of its health and metrics.
    pub ops_url: String,
    /// Lower ones are stopped first.
    pub stop_rank: u8,
}

/// All that is prepared.
pub struct Prepared {
    /// The processes, in the order of their start.
    pub processes: Vec<RoleProcess>,
    /// Base URL of the admin API.
    pub admin_url: String,
    /// Base URLs of the proxies.
    pub proxy_urls: Vec<String>,
    /// Time a proxy takes at a stop, at most: until it stops accepting, and for what is open then.
    pub grace: Duration,
    /// Holds the ports of all that listens.
    pub reserved: Reserved,
    /// An admin token.
    pub admin_token: SecretString,
}

/// Prepares everything.
///
/// # Errors
/// A store refuses, or a file can't be written.
pub async fn prepare(args: &Dev, folder: &Folder, servers: &Servers) -> anyhow::Result<Prepared> {
    let operator = connect(servers, Role::Operator).await?;
    let usual = if args.nats_nodes() < 3 { SetupConfig::single_node() } else { SetupConfig::three_nodes() };
    let streams = SetupConfig { traffic_max_bytes: args.traffic_max_bytes, ..usual };
    crate::role::log::set_up(&operator, &streams).await?;
    operator.close().await;
    folder.secret("key-ring", || Ok(KeyRing::generate()?.to_text()))?;
    let peppers = folder.secret("peppers", || Ok(Peppers::generate()?.to_text()))?;
    let peppers = Peppers::parse(&peppers).context("secrets/peppers")?;
    let admin_token = first_admin_token(folder, servers, &peppers).await?;

    let mut roster = Roster { folder, servers, ports: Ports::of_last_run(folder), processes: Vec::new() };
    let admin_port = roster.ports.take("admin")?;
    let postgres = json!({ "url_file": folder.secret_path("postgres-url") });
    let ring = folder.secret_path("key-ring");
    let peppers = folder.secret_path("peppers");
    for number in 1..=args.projectors {
        roster.add(&format!("projector-{number}"), Role::Projector, 2, json!({ "postgres": postgres }))?;
    }
    let own = json!({
        "postgres": postgres,
        "secrets": { "key_ring_file": ring, "peppers_file": peppers },
        "admin": { "listen": format!("127.0.0.1:{admin_port}") },
    });
    roster.add("admin-1", Role::Admin, 1, own)?;
    for number in 1..=args.upkeeps {
        let own = json!({
            "secrets": { "key_ring_file": ring },
            "upkeep": { "probe_interval_ms": args.probe_interval_ms },
        });
        roster.add(&format!("upkeep-{number}"), Role::Upkeep, 1, own)?;
    }
    let mut proxy_urls = Vec::new();
    for number in 1..=args.proxies {
        let name = format!("proxy-{number}");
        let port = roster.ports.take(&name)?;
        proxy_urls.push(format!("http://127.0.0.1:{port}"));
        let own = json!({
            "secrets": { "key_ring_file": ring, "peppers_file": peppers },
            "proxy": {
                "listen": format!("127.0.0.1:{port}"),
                "outbox_max_bytes": args.outbox_max_bytes,
                "durability": args.durability,
                "drain_delay_ms": args.drain_delay_ms,
                "grace_ms": args.grace_ms,
                "slot_life_ms": args.slot_life_ms,
            },
        });
        roster.add(&name, Role::Proxy, 0, own)?;
    }
    Ok(Prepared {
        processes: roster.processes,
        admin_url: format!("http://127.0.0.1:{admin_port}"),
        proxy_urls,
        grace: Duration::from_millis(args.drain_delay_ms + args.grace_ms),
        reserved: roster.ports.reserved,
        admin_token,
    })
}

/// The processes as they are added, each with its configuration.
struct Roster<'a> {
    folder: &'a Folder,
    servers: &'a Servers,
    ports: Ports,
    processes: Vec<RoleProcess>,
}

impl Roster<'_> {
    fn add(&mut self, name: &str, role: Role, stop_rank: u8, own: Value) -> anyhow::Result<()> {
        let ops = self.ports.take(&format!("{name}-ops"))?;
        let mut config = json!({
            "name": name,
            "ops_listen": format!("127.0.0.1:{ops}"),
            "data_dir": self.folder.path(&format!("data/{name}")),
            "nats": {
                "urls": self.servers.nats_urls(),
                "user": role.user(),
                "password_file": self.folder.secret_path(&format!("nats-{}", role.user())),
            },
        });
        if let (Value::Object(config), Value::Object(own)) = (&mut config, own) {
            config.extend(own);
        }
        self.processes.push(RoleProcess {
            name: name.to_owned(),
            command: role.user(),
            config: self.folder.write_config(name, &config)?,
            log: self.folder.path(&format!("log/{name}.log")),
            ops_url: format!("http://127.0.0.1:{ops}"),
            stop_rank,
        });
        Ok(())
    }
}

async fn connect(servers: &Servers, role: Role) -> anyhow::Result<waybill_journal_nats::Connection> {
    let config = NatsConfig::new(
        servers.nats_urls(),
        role.user().to_owned(),
        servers.password(role),
        format!("dev-{}", role.user()),
    );
    waybill_journal_nats::connect(config).await.with_context(|| format!("connecting as {}", role.user()))
}

async fn first_admin_token(folder: &Folder, servers: &Servers, peppers: &Peppers) -> anyhow::Result<SecretString> {
    let connection = connect(servers, Role::Admin).await?;
    let kept = folder.secret("admin-token", || Ok(SecretString::default()))?;
    let token = if kept.expose_secret().is_empty() {
        let token = waybill_admin::bootstrap(connection.journal(), peppers, "dev", false).await?;
        folder.write_secret("admin-token", &token)?;
        token
    } else {
        kept
    };
    connection.close().await;
    Ok(token)
}

/// Ports that stay the same from start to start as long as nobody else takes them, so that addresses once copied go on
/// working.
struct Ports {
    file: PathBuf,
    known: serde_json::Map<String, Value>,
    reserved: Reserved,
}

/// Ports held for the fleet's processes: bound and never listened on, so that nobody else gets them, also while a
/// process is being started again.
#[derive(Default)]
pub struct Reserved {
    sockets: Vec<TcpSocket>,
}

impl Reserved {
    /// Holds a port; `wanted`, if it is to be had, any free one otherwise.
    fn hold(&mut self, wanted: u16) -> std::io::Result<u16> {
        let bound = |port: u16, shared: bool| {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseport(shared)?;
            // Connections of the last run that the system still remembers don't take a port; a held socket does.
            socket.set_reuseaddr(!shared)?;
            socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
            Ok::<_, std::io::Error>((socket.local_addr()?.port(), socket))
        };
        // Another fleet may hold the port in the same way; only who asks for it alone is told so.
        let held = bound(wanted, false).and_then(|alone| {
            drop(alone);
            bound(wanted, true)
        });
        let (port, socket) = held.or_else(|_| bound(0, true))?;
        self.sockets.push(socket);
        Ok(port)
    }
}

impl Ports {
    fn of_last_run(folder: &Folder) -> Self {
        let file = folder.path("run/ports.json");
        let known = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Self { file, known, reserved: Reserved::default() }
    }

    fn last(&self, name: &str) -> u16 {
        self.known.get(name).and_then(Value::as_u64).and_then(|p| u16::try_from(p).ok()).unwrap_or(0)
    }

    /// The port of one listener, held for it.
    fn take(&mut self, name: &str) -> anyhow::Result<u16> {
        let port = self.reserved.hold(self.last(name)).context("no free port")?;
        self.known.insert(name.to_owned(), port.into());
        std::fs::write(&self.file, serde_json::to_vec(&self.known)?).context("run/ports.json")?;
        Ok(port)
    }
}
