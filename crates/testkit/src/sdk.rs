//! The real SDKs: installed once per version into a cache folder, then used by scripts of the suites.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

/// Versions of the SDKs.
const PINS: &str = include_str!("../../../tests/sdk/pins.json");
/// How long a script may take.
const RUN_DEADLINE: Duration = Duration::from_secs(120);
/// How long an installation may take.
const INSTALL_DEADLINE: Duration = Duration::from_secs(300);

/// Runs a Python script of `tests/sdk` with the pinned SDKs, and gives what it printed.
///
/// # Panics
/// When an SDK can't be installed, or the script fails; the panic shows all it said.
pub async fn python(script: &str, env: &[(&str, &str)]) -> String {
    let modules = installed("python").await;
    run("python3", script, env, ("PYTHONPATH", &modules)).await
}

/// Runs a Node script of `tests/sdk` with the pinned SDKs, and gives what it printed.
///
/// # Panics
/// As [`python`].
pub async fn node(script: &str, env: &[(&str, &str)]) -> String {
    let modules = installed("node").await.join("node_modules");
    run("node", script, env, ("NODE_PATH", &modules)).await
}

async fn run(program: &str, script: &str, env: &[(&str, &str)], modules: (&str, &Path)) -> String {
    let path = scripts().join(script);
    let mut command = Command::new(program);
    command.arg(&path).env(modules.0, modules.1).envs(env.iter().copied());
    // Everything is on this machine, whatever the environment says of proxies.
    command.env("NO_PROXY", "*").env("no_proxy", "*").env("PYTHONDONTWRITEBYTECODE", "1");
    match output(command, RUN_DEADLINE).await {
        Ok(printed) => printed,
        Err(why) => panic!("{}: {why}", path.display()),
    }
}

async fn output(mut command: Command, deadline: Duration) -> Result<String, String> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(deadline, command.output()).await {
        Ok(output) => output.map_err(|error| error.to_string())?,
        Err(_) => return Err(format!("not done within {deadline:?}")),
    };
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(printed)
    } else {
        Err(format!("{}\n{printed}\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/sdk")
}

/// The folder with the SDKs of a language; installs them where they aren't yet.
async fn installed(language: &str) -> PathBuf {
    let pins: Value = serde_json::from_str(PINS).unwrap_or_default();
    let wanted = pins.get(language).and_then(Value::as_object).cloned().unwrap_or_default();
    let wanted: Vec<(String, String)> =
        wanted.into_iter().map(|(name, version)| (name, version.as_str().unwrap_or_default().to_owned())).collect();
    let mut label = vec![language.to_owned()];
    label.extend(wanted.iter().map(|(name, version)| format!("{name}-{version}")));
    let cache = cache();
    if let Err(error) = fs::create_dir_all(&cache) {
        panic!("{}: {error}", cache.display());
    }
    let folder = cache.join(label.join("_"));
    if folder.is_dir() {
        return folder;
    }
    // One installer at a time; who waited finds the work done.
    let lock_path = cache.join(format!("{language}.lock"));
    let waiting = lock_path.clone();
    let locked = tokio::task::spawn_blocking(move || File::create(waiting).and_then(|file| file.lock().map(|()| file)));
    let _held = match locked.await {
        Ok(Ok(lock)) => lock,
        other => panic!("can't lock {}: {other:?}", lock_path.display()),
    };
    if !folder.is_dir() {
        install(language, &wanted, &folder).await;
    }
    folder
}

async fn install(language: &str, wanted: &[(String, String)], folder: &Path) {
    let beside = folder.with_extension("part");
    let _absent_is_fine = fs::remove_dir_all(&beside);
    let mut command;
    if language == "python" {
        command = Command::new("python3");
        command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"]).arg(&beside);
        command.args(wanted.iter().map(|(name, version)| format!("{name}=={version}")));
    } else {
        command = Command::new("npm");
        command.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&beside);
        command.args(wanted.iter().map(|(name, version)| format!("{name}@{version}")));
    }
    if let Err(why) = output(command, INSTALL_DEADLINE).await {
        panic!("can't install {wanted:?} for {language}: {why}");
    }
    if let Err(error) = fs::rename(&beside, folder) {
        panic!("{}: {error}", folder.display());
    }
}

fn cache() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map_or_else(std::env::temp_dir, PathBuf::from).join(".cache");
    base.filter(|path| path.is_absolute()).unwrap_or_else(home).join("waybill/sdk")
}
