//! Checks what a fleet is deployed with, without an engine: the composition names only what is there, every role's
//! configuration is one and fits its service, and whatever can be checked by its own program is.

mod compose;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace::{self, cargo};
use compose::{Compose, Service};

const COMPOSITION: &str = "docker-compose.yml";
/// Where the roles' configurations are, here and in a container.
const CONFIGS: (&str, &str) = ("deploy/config", "/etc/waybill");
/// Where secrets are in a container.
const SECRETS: &str = "/run/secrets";
/// How many of each there must be: by role, or by the beginning of the image's name.
const ROLES: [(&str, usize); 4] = [("proxy", 3), ("projector", 2), ("upkeep", 1), ("admin", 1)];
const IMAGES: [(&str, usize); 3] = [("nats:", 3), ("postgres:", 1), ("haproxy:", 1)];

/// Checks everything.
pub(crate) fn run(root: &Path) -> Result<()> {
    let path = root.join(COMPOSITION);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let composition = compose::parse(&text).with_context(|| format!("cannot understand {}", path.display()))?;
    let mut faults = composition.faults();
    faults.extend(counts(&composition));
    faults.extend(mounts(root, &composition));
    faults.extend(made_secrets(root, &composition)?);
    faults.extend(configurations(root, &composition)?);
    if !faults.is_empty() {
        bail!("{COMPOSITION} and what it names:\n  {}", faults.join("\n  "));
    }
    by_their_own_programs(root)?;
    println!("deploy: {} services", composition.services.len());
    Ok(())
}

fn counts(composition: &Compose) -> Vec<String> {
    let services = || composition.services.values().filter(|service| service.lasts());
    let roles = ROLES.map(|(role, wanted)| {
        let found = services().filter(|service| service.config().is_some_and(|(of, _)| of == role)).count();
        (role, wanted, found)
    });
    let images = IMAGES.map(|(image, wanted)| {
        let found =
            services().filter(|service| service.image.as_deref().is_some_and(|of| of.starts_with(image))).count();
        (image, wanted, found)
    });
    let all = roles.into_iter().chain(images);
    all.filter(|(_, wanted, found)| wanted != found)
        .map(|(what, wanted, found)| format!("there should be {wanted} of {what}, there are {found}"))
        .collect()
}

/// Files and folders of ours that containers see.
fn mounts(root: &Path, composition: &Compose) -> Vec<String> {
    let mounted =
        composition.services.iter().flat_map(|(name, service)| service.volumes.iter().map(move |v| (name, v)));
    let mut faults: Vec<String> = mounted
        .filter_map(|(name, volume)| Some((name, volume.split(':').next().filter(|from| from.starts_with("./"))?)))
        .filter(|(_, from)| !root.join(from).exists())
        .map(|(name, from)| format!("{name} mounts {from}, which isn't there"))
        .collect();
    for build in composition.services.values().filter_map(|service| service.build.as_ref()) {
        if !root.join(&build.context).join(&build.dockerfile).is_file() {
            faults.push(format!("{} isn't there", build.dockerfile));
        }
    }
    faults
}

/// What the script makes against what is asked for.
fn made_secrets(root: &Path, composition: &Compose) -> Result<Vec<String>> {
    let folder = std::env::temp_dir().join(format!("waybill-deploy-check-{}", std::process::id()));
    let made = Command::new("sh").arg(root.join("deploy/secrets.sh")).arg(&folder).output();
    let made = made.context("sh can't be run").and_then(|output| match output.status.success() {
        true => Ok(()),
        false => bail!("deploy/secrets.sh: {}", String::from_utf8_lossy(&output.stderr).trim()),
    });
    let listed = made.and_then(|()| fs::read_dir(&folder).context("what the script made"));
    let names: Result<BTreeSet<String>> =
        listed.and_then(|entries| entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect());
    let removed = fs::remove_dir_all(&folder);
    let names = names?;
    removed.context("the folder of secrets")?;
    let wanted: BTreeSet<String> = composition
        .secrets
        .values()
        .map(|secret| secret.file.rsplit('/').next().unwrap_or_default().to_owned())
        .collect();
    let missing = wanted.difference(&names).map(|name| format!("deploy/secrets.sh doesn't make {name}"));
    let unused = names.difference(&wanted).map(|name| format!("deploy/secrets.sh makes {name}, which nobody asks for"));
    Ok(missing.chain(unused).collect())
}

/// Each role's configuration: it is there, it is one, and it belongs to its service.
fn configurations(root: &Path, composition: &Compose) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let mut used = BTreeSet::new();
    for (name, service) in &composition.services {
        let Some((role, inside)) = service.config() else { continue };
        let Some(file) = inside.strip_prefix(CONFIGS.1).map(|file| file.trim_start_matches('/')) else {
            faults.push(format!("{name} reads {inside}, which isn't below {}", CONFIGS.1));
            continue;
        };
        let path = root.join(CONFIGS.0).join(file);
        used.insert(path.clone());
        if !path.is_file() {
            faults.push(format!("{name} reads {file}, which isn't in {}", CONFIGS.0));
            continue;
        }
        faults.extend(fits(name, role, service, &path)?);
        if let Err(error) = printed(root, &path) {
            faults.push(format!("{file} is no configuration: {error:#}"));
        }
    }
    let there = workspace::files(&root.join(CONFIGS.0), &["toml"])?;
    let unused = there.into_iter().filter(|path| !used.contains(path));
    faults.extend(unused.map(|path| format!("nobody reads {}", path.display())));
    Ok(faults)
}

fn fits(name: &str, role: &str, service: &Service, path: &Path) -> Result<Vec<String>> {
    let config = workspace::manifest(path)?;
    let mut faults = Vec::new();
    let text =
        |table: &toml::Table, key: &str| table.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned();
    if ROLES.iter().any(|(role, _)| name.starts_with(&format!("{role}-"))) && text(&config, "name") != name {
        faults.push(format!("{name} calls itself {}", text(&config, "name")));
    }
    let empty = toml::Table::new();
    let nats = config.get("nats").and_then(toml::Value::as_table).unwrap_or(&empty);
    if text(nats, "promise") != "replicated" {
        faults.push(format!("{name} doesn't hold the log against what three nodes promise"));
    }
    let user = if role == "log" { "operator" } else { role };
    if text(nats, "user") != user {
        faults.push(format!("{name} speaks to the log as {:?}", text(nats, "user")));
    }
    let named: BTreeSet<String> = secrets_in(&toml::Value::Table(config));
    let given: BTreeSet<String> = service.secrets.iter().cloned().collect();
    faults.extend(named.difference(&given).map(|secret| format!("{name} isn't given the secret {secret}")));
    faults.extend(given.difference(&named).map(|secret| format!("{name} is given {secret}, which it has no use for")));
    Ok(faults)
}

/// The secrets whose files a configuration names.
fn secrets_in(value: &toml::Value) -> BTreeSet<String> {
    match value {
        toml::Value::String(text) => {
            text.strip_prefix(SECRETS).map(|name| name.trim_start_matches('/').to_owned()).into_iter().collect()
        }
        toml::Value::Array(items) => items.iter().flat_map(secrets_in).collect(),
        toml::Value::Table(table) => table.values().flat_map(secrets_in).collect(),
        toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) | toml::Value::Datetime(_) => {
            BTreeSet::new()
        }
    }
}

/// The product reads it.
fn printed(root: &Path, path: &PathBuf) -> Result<()> {
    let mut command = cargo(root, &["run", "--quiet", "--package", "waybill", "--", "config", "print", "--config"]);
    let output = command.arg(path).output().context("waybill can't be run")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// What has a checker of its own, where that is installed.
fn by_their_own_programs(root: &Path) -> Result<()> {
    let balancer = root.join("deploy/haproxy/haproxy.cfg");
    if has("haproxy", &["-v"]) {
        workspace::run(Command::new("haproxy").args(["-q", "-c", "-f"]).arg(balancer))?;
    } else {
        println!("deploy: no haproxy here, its configuration isn't checked by it");
    }
    if has("docker", &["compose", "version"]) {
        workspace::run(Command::new("docker").current_dir(root).args(["compose", "config", "--quiet"]))?;
    } else {
        println!("deploy: no docker compose here, {COMPOSITION} isn't checked by it");
    }
    Ok(())
}

fn has(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}
