//! Creates the cluster, once: initdb, then our database by way of single-user mode, which needs no client.
//!
//! Both work in a folder beside, which becomes `data` by one rename: a cluster that was cut short is never taken for a
//! whole one.

use std::fs;
use std::time::Duration;

use rand::TryRng;
use rand::rngs::SysRng;
use secrecy::SecretString;

use super::place::Place;
use super::{DATABASE, PostgresError, USER};
use crate::fetch::Program;
use crate::files;
use crate::shim::Launcher;
use crate::supervise::Child;

/// initdb takes a second; on a slow disk that other work loads, far longer.
const INIT_DEADLINE: Duration = Duration::from_secs(120);
const PASSWORD_BYTES: usize = 24;
const SHELL: &str = "/bin/sh";

/// Makes sure that there is a cluster; returns its superuser's password.
pub(super) async fn cluster(
    launcher: &Launcher,
    program: &Program,
    place: &Place,
    durable: bool,
) -> Result<SecretString, PostgresError> {
    if place.major().is_some() {
        let password = fs::read_to_string(&place.password).map_err(place.fault("read", &place.password))?;
        return Ok(SecretString::from(password.trim()));
    }
    let beside = place.home.join("data.new");
    for leftover in [&beside, &place.data] {
        if leftover.exists() {
            fs::remove_dir_all(leftover).map_err(place.fault("remove", leftover))?;
        }
    }
    let password = new_password()?;
    files::write_private(&place.password, &password).map_err(place.fault("write", &place.password))?;
    place.hand_over(&place.password).map_err(place.fault("hand over", &place.password))?;

    let mut spec = place.spec("initdb", program.path.join("initdb"));
    spec = spec.args(["--username", USER, "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]);
    spec = spec.args(["--no-instructions", "--pgdata"]).args([&beside]).args(["--pwfile"]).args([&place.password]);
    if !durable {
        spec = spec.args(["--no-sync"]);
    }
    finish(launcher, place, spec, "initdb").await?;

    // The statement comes by standard input, which a child of ours doesn't have: a shell gives it.
    let script = format!("echo 'create database {DATABASE}' | exec \"$0\" --single -D \"$1\" postgres");
    let mut spec = place.spec("create database", SHELL.into());
    spec = spec.args(["-c".into(), script]).args([program.path.join("postgres")]).args([&beside]);
    finish(launcher, place, spec, "create database").await?;

    fs::rename(&beside, &place.data).map_err(place.fault("rename", &beside))?;
    Ok(SecretString::from(password))
}

async fn finish(
    launcher: &Launcher,
    place: &Place,
    spec: crate::supervise::Spec,
    step: &'static str,
) -> Result<(), PostgresError> {
    let child = Child::start(launcher, spec).await?;
    let ended = tokio::time::timeout(INIT_DEADLINE, child.wait()).await;
    if ended.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err(PostgresError::Init { step, log: place.log.clone(), tail: child.log_tail() })
}

/// Hexadecimal, so that it stands in a URL as it is.
fn new_password() -> Result<String, PostgresError> {
    let mut bytes = [0_u8; PASSWORD_BYTES];
    SysRng.try_fill_bytes(&mut bytes).map_err(|_| PostgresError::NoRandomness)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
