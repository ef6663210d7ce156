use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use secrecy::ExposeSecret;
use waybill_services::{Launcher, Postgres, PostgresConfig, PostgresError};

use super::setting::{alive, finder, launcher, processes_in, wait_until};

fn config(dir: &Path) -> PostgresConfig {
    PostgresConfig { durable: false, ..PostgresConfig::new(dir) }
}

/// Runs a statement with psql; the fetched and the installed servers both have one.
fn query(postgres: &Postgres, statement: &str) -> String {
    let output = Command::new(postgres.bin().join("psql"))
        .args([
            "--no-psqlrc",
            "--tuples-only",
            "--no-align",
            "--quiet",
            "--set=ON_ERROR_STOP=1",
            "--command",
            statement,
        ])
        .arg(postgres.url().expose_secret())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test]
async fn data_outlive_a_kill_a_stop_and_a_second_start() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("pg");
    let mut postgres = Postgres::start(&launcher(), &finder(dir.path()), config(&home)).await.unwrap();
    query(&postgres, "create table t as select 1 as n");
    // The kill leaves a postmaster.pid; the server clears it by itself once it sees that nobody holds it.
    postgres.kill9().await.unwrap();
    assert!(postgres.data().join("postmaster.pid").exists());
    postgres.restart().await.unwrap();
    query(&postgres, "insert into t values (2)");
    postgres.stop().await.unwrap();
    assert!(!alive(postgres.child().pid()));
    drop(postgres);
    let again = Postgres::start(&Launcher::UtilLinux, &finder(dir.path()), config(&home)).await.unwrap();
    assert_eq!(query(&again, "select string_agg(n::text, ',' order by n) from t"), "1,2");
    let data = again.data().to_owned();
    again.stop().await.unwrap();
    assert_eq!(processes_in(&data), Vec::<u32>::new());
}

#[tokio::test]
async fn a_closed_folder_above_is_no_obstacle() {
    let dir = tempfile::tempdir().unwrap();
    // As a home is.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let home = dir.path().join("pg");
    let postgres = Postgres::start(&launcher(), &finder(dir.path()), config(&home)).await.unwrap();
    assert_eq!(query(&postgres, "select current_user || ' ' || current_database()"), "waybill waybill");
    assert_eq!(query(&postgres, "show listen_addresses"), "127.0.0.1");
    let location = fs::read_to_string(home.join("location"));
    if rustix::process::geteuid().is_root() {
        assert_eq!(location.unwrap().trim(), postgres.data().parent().unwrap().to_str().unwrap());
    } else {
        assert!(location.is_err());
        assert!(postgres.data().starts_with(&home));
    }
    let outer = postgres.data().parent().unwrap().parent().unwrap().to_owned();
    postgres.destroy().await.unwrap();
    assert!(!home.join("location").exists());
    assert_eq!(outer.exists(), outer == fs::canonicalize(&home).unwrap());
}

#[tokio::test]
async fn an_open_folder_keeps_its_data_and_closes_them_to_others() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let home = dir.path().join("pg");
    let postgres = Postgres::start(&launcher(), &finder(dir.path()), config(&home)).await.unwrap();
    assert!(postgres.data().starts_with(fs::canonicalize(&home).unwrap()));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(postgres.data()), 0o700);
    assert_eq!(mode(&postgres.data().parent().unwrap().join("password")), 0o600);
    let wrong = postgres.url().expose_secret().replace(":", ":x");
    let refused = Command::new(postgres.bin().join("psql")).arg(wrong).env("PGCONNECT_TIMEOUT", "5").output().unwrap();
    assert!(!refused.status.success());
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn dropping_the_handle_ends_every_process_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("pg");
    let postgres = Postgres::start(&launcher(), &finder(dir.path()), config(&home)).await.unwrap();
    let (pid, data) = (postgres.child().pid(), postgres.data().to_owned());
    assert!(processes_in(&data).contains(&pid));
    drop(postgres);
    wait_until("the server ends", || processes_in(&data).is_empty()).await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_an_error_with_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut config = config(&dir.path().join("pg"));
    config.port = Some(taken.local_addr().unwrap().port());
    let refused = Postgres::start(&launcher(), &finder(dir.path()), config).await;
    assert!(matches!(&refused, Err(PostgresError::Ended { tail, .. }) if tail.contains("in use")), "{refused:?}");
}
