//! The folder of a development fleet: `.waybill/`, with what must survive between starts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a running fleet writes down for the command line and for tests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Addresses {
    /// Base URL of the admin API.
    pub admin_url: String,
    /// An admin token.
    pub admin_token: String,
    /// A client key, where the demo made one.
    pub client_key: Option<String>,
    /// Base URLs of the proxies.
    pub proxies: Vec<String>,
    /// Every process of the fleet.
    pub processes: Vec<Process>,
    /// Base URL of the demo's upstream, where it runs.
    pub demo_url: Option<String>,
    /// URLs of the log's nodes, parted by commas.
    pub nats_url: String,
    /// File with the URL of the database.
    pub postgres_url_file: String,
}

/// One process of the fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Its name, e.g. `proxy-1`.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// Base URL of its health and metrics, where it has them.
    pub ops_url: Option<String>,
    /// Base URL of its monitoring pages, where it is a node of the log.
    pub monitor_url: Option<String>,
}

/// The folder, locked for this process.
pub struct Folder {
    root: PathBuf,
    _lock: File,
}

impl Folder {
    /// Creates and locks the folder.
    ///
    /// # Errors
    /// It can't be written, or another fleet runs in it.
    pub fn open(root: &Path) -> anyhow::Result<Self> {
        let failed = || format!("can't use the folder {}", root.display());
        fs::create_dir_all(root).with_context(failed)?;
        let root = root.canonicalize().with_context(failed)?;
        for name in ["secrets", "etc", "log", "data", "run"] {
            fs::create_dir_all(root.join(name)).with_context(failed)?;
        }
        fs::set_permissions(root.join("secrets"), fs::Permissions::from_mode(0o700)).with_context(failed)?;
        fs::write(root.join(".gitignore"), "*\n").with_context(failed)?;
        let lock = File::create(root.join("run/lock")).with_context(failed)?;
        if let Err(error) = lock.try_lock() {
            bail!("another fleet runs in {} ({error}); stop it first, or give --dir", root.display());
        }
        Ok(Self { root, _lock: lock })
    }

    /// A path inside.
    #[must_use]
    pub fn path(&self, inside: &str) -> PathBuf {
        self.root.join(inside)
    }

    /// A secret that is made once and kept in a file that only its owner reads.
    ///
    /// # Errors
    /// The file can't be read or written, or `make` fails.
    pub fn secret(
        &self,
        name: &str,
        make: impl FnOnce() -> anyhow::Result<SecretString>,
    ) -> anyhow::Result<SecretString> {
        let path = self.secret_path(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(SecretString::from(text.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let secret = make()?;
                self.write_secret(name, &secret)?;
                Ok(secret)
            }
            Err(error) => Err(error).with_context(|| format!("can't read {}", path.display())),
        }
    }

    /// Where a secret is kept.
    #[must_use]
    pub fn secret_path(&self, name: &str) -> PathBuf {
        self.root.join("secrets").join(name)
    }

    /// Writes a secret down.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write_secret(&self, name: &str, secret: &SecretString) -> anyhow::Result<()> {
        write_private(&self.secret_path(name), secret.expose_secret().as_bytes())
    }

    /// Where the addresses are written.
    #[must_use]
    pub fn addresses_path(&self) -> PathBuf {
        self.root.join("dev.json")
    }

    /// Writes the addresses down; readers see the old file or the new one, never a part.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write_addresses(&self, addresses: &Addresses) -> anyhow::Result<()> {
        let text = serde_json::to_vec_pretty(addresses)?;
        let beside = self.root.join("run/dev.json");
        write_private(&beside, &text)?;
        fs::rename(&beside, self.addresses_path()).context("can't write dev.json")
    }

    /// Writes a role's configuration and gives its path.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write_config(&self, name: &str, config: &Value) -> anyhow::Result<PathBuf> {
        let path = self.root.join("etc").join(format!("{name}.toml"));
        let text = toml::to_string_pretty(config).context("a configuration that can't be written as TOML")?;
        write_private(&path, text.as_bytes())?;
        Ok(path)
    }
}

fn write_private(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let failed = || format!("can't write {}", path.display());
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).with_context(failed)?;
    file.write_all(content).with_context(failed)
}
