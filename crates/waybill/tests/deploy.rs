//! The files of `deploy/` start a fleet: three servers of the log with the users that the binary prints, set up, and every
//! role ready. Only addresses and paths are others than in containers.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail where it stands")]

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, Hasher as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use secrecy::ExposeSecret as _;
use serde_json::Value;
use tempfile::TempDir;
use waybill_services::{Finder, Launcher, Postgres, PostgresConfig};

const PATIENCE: Duration = Duration::from_secs(60);
const ROLES: [(&str, &str); 7] = [
    ("projector-1", "projector"),
    ("projector-2", "projector"),
    ("upkeep-1", "upkeep"),
    ("admin-1", "admin"),
    ("proxy-1", "proxy"),
    ("proxy-2", "proxy"),
    ("proxy-3", "proxy"),
];

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").canonicalize().unwrap()
}

/// A child that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn waybill() -> Command {
    Command::new(env!("CARGO_BIN_EXE_waybill"))
}

fn done(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// What stands for the addresses and folders of the containers.
struct Places {
    dir: TempDir,
    /// Listeners that keep a port until its user is started.
    kept: BTreeMap<u16, TcpListener>,
    replaced: Vec<(String, String)>,
}

impl Places {
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("waybill-deploy-").tempdir().unwrap();
        // Postgres may have to run as another user.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let secrets = dir.path().join("secrets");
        done(Command::new("sh").arg(deploy().join("secrets.sh")).arg(&secrets));
        let mut places = Self { dir, kept: BTreeMap::new(), replaced: Vec::new() };
        for node in 1..=3 {
            for port in [4222, 8222, 6222] {
                let here = format!("127.0.0.1:{}", places.port());
                places.replaced.push((format!("nats-{node}:{port}"), here));
            }
        }
        places.replaced.push(("/run/secrets".to_owned(), secrets.display().to_string()));
        places
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn port(&mut self) -> u16 {
        // A proxy claims its port some time before it listens there. Whoever asks for any port meanwhile gets one from
        // 32768 on, so these stand below.
        loop {
            let random = RandomState::new().build_hasher().finish() % 16_000;
            let port = 16_000 + u16::try_from(random).unwrap();
            if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
                self.kept.insert(port, listener);
                return port;
            }
        }
    }

    fn here(&self, there: &str) -> String {
        self.replaced.iter().find(|(from, _)| from == there).unwrap().1.clone()
    }

    /// A file of `deploy/` with these addresses and paths, and those of all.
    fn write(&self, from: &str, to: &str, own: &[(&str, String)]) -> PathBuf {
        let mut text = fs::read_to_string(deploy().join(from)).unwrap();
        for (there, here) in own.iter().map(|(there, here)| (*there, here)) {
            assert!(text.contains(there), "{from} doesn't say {there}");
            text = text.replace(there, here);
        }
        for (there, here) in &self.replaced {
            text = text.replace(there.as_str(), here);
        }
        assert!(!text.contains("0.0.0.0"), "{text}");
        let path = self.path(to);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn start(&mut self, name: &str, command: &mut Command) -> Running {
        // Everybody's ports are settled by now; from here on they are their users'.
        self.kept.clear();
        let log = File::create(self.path(&format!("{name}.log"))).unwrap();
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).stdin(Stdio::null()).spawn().unwrap();
        Running(child)
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.log"))).unwrap()
    }
}

/// Writes the configuration of a server, its users included.
fn server(places: &Places, node: usize) -> PathBuf {
    let name = format!("nats-{node}");
    let [client, monitor, cluster] = [4222, 8222, 6222].map(|port| places.here(&format!("{name}:{port}")));
    let own = [
        ("0.0.0.0:4222", client),
        ("0.0.0.0:8222", monitor),
        ("0.0.0.0:6222", cluster),
        ("\"/data\"", format!("{:?}", places.path(&format!("{name}/data")))),
    ];
    let config = places.write("nats/nats.conf", &format!("{name}/nats.conf"), &own);
    let users = places.path(&format!("{name}/users"));
    fs::create_dir_all(&users).unwrap();
    let printing = ["log", "nats-config", "--passwords"];
    done(waybill().args(printing).arg(places.path("secrets")).arg("--output").arg(users.join("authorization.conf")));
    config
}

/// Writes the configuration of a role; returns it and where its ops address is.
fn role(places: &mut Places, name: &str) -> (PathBuf, String) {
    let text = fs::read_to_string(deploy().join(format!("config/{name}.toml"))).unwrap();
    let ops = format!("127.0.0.1:{}", places.port());
    let mut own = vec![
        ("0.0.0.0:9102", ops.clone()),
        ("/var/lib/waybill", places.path(&format!("data/{name}")).display().to_string()),
    ];
    for listen in ["0.0.0.0:8080", "0.0.0.0:8081"] {
        if text.contains(listen) {
            own.push((listen, format!("127.0.0.1:{}", places.port())));
        }
    }
    (places.write(&format!("config/{name}.toml"), &format!("config/{name}.toml"), &own), ops)
}

/// Waits until a role is ready; returns what it says of each dependency.
async fn ready(http: &reqwest::Client, places: &Places, name: &str, ops: &str) -> BTreeMap<String, String> {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut last = String::new();
        if let Ok(answer) = http.get(format!("http://{ops}/readyz")).send().await {
            let ready = answer.status().is_success();
            last = answer.text().await.unwrap();
            if ready {
                let told: Value = serde_json::from_str(&last).unwrap();
                let all = told["dependencies"].as_array().unwrap();
                let text = |one: &Value, member: &str| one[member].as_str().unwrap().to_owned();
                return all.iter().map(|one| (text(one, "name"), text(one, "state"))).collect();
            }
        }
        assert!(Instant::now() < end, "{name} isn't ready: {last}\n{}", places.log(name));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deployed_files_start_a_fleet() {
    let mut places = Places::new();
    let finder = Finder::new(places.dir.path());
    let program = finder.nats_server().await.unwrap();
    let config = PostgresConfig { durable: false, ..PostgresConfig::new(places.path("postgres")) };
    let postgres = Postgres::start(&Launcher::UtilLinux, &finder, config).await.unwrap();
    fs::write(places.path("secrets/postgres-url"), postgres.url().expose_secret()).unwrap();

    let servers = [1, 2, 3].map(|node| (format!("nats-{node}"), server(&places, node)));
    let (operator, _) = role(&mut places, "operator");
    let roles = ROLES.map(|(name, command)| (name, command, role(&mut places, name)));
    let mut running = Vec::new();
    for (name, config) in servers {
        let mut command = Command::new(&program.path);
        running.push(places.start(&name, command.env("NATS_NAME", &name).arg("--config").arg(config)));
    }
    done(waybill().args(["log", "setup", "--replicas", "3", "--config"]).arg(&operator));
    let admin = places.path("config/admin-1.toml");
    let token = done(waybill().args(["admin", "bootstrap", "--config"]).arg(admin));
    assert!(token.starts_with("wb-admin-"), "{token}");

    for (name, command, (config, _)) in &roles {
        running.push(places.start(name, waybill().args([command, "--config"]).arg(config)));
    }
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    for (name, _, (_, ops)) in &roles {
        let says = ready(&http, &places, name, ops).await;
        assert_eq!(says["log_durability"], "copies: 3; every write is synced at 3 of 3 nodes", "{name}");
    }
    drop(running);
    postgres.destroy().await.unwrap();
}
