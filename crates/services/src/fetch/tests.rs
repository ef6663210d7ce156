use std::os::unix::fs::PermissionsExt;

use super::*;

fn script(folder: &Path, name: &str, says: &str) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join(name), format!("#!/bin/sh\necho '{says}'\n")).unwrap();
    fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
}

fn postgres(folder: &Path, version: &str) {
    script(folder, "postgres", &format!("postgres (PostgreSQL) {version}"));
    script(folder, "initdb", "");
}

fn finder(cache: &Path) -> Finder {
    Finder { nats_server: None, postgres_bin: None, cache: cache.into(), installed: false, download: false }
}

#[tokio::test]
async fn the_newest_in_the_cache_is_taken_unless_the_data_need_another() {
    let dir = tempfile::tempdir().unwrap();
    postgres(&dir.path().join("wheel/pg16/bin"), "16.14");
    postgres(&dir.path().join("wheel/pg18/bin"), "18.4");
    postgres(&dir.path().join("wheel/.unpacking/bin"), "19.0");
    let found = async |major| finder(dir.path()).postgres(major).await.map(|found| found.version.major);
    assert_eq!(found(None).await.unwrap(), 18);
    assert_eq!(found(Some(16)).await.unwrap(), 16);
    let refused = found(Some(15)).await.unwrap_err().to_string();
    assert!(refused.contains("install Postgres 15"), "{refused}");
}

#[tokio::test]
async fn a_folder_without_initdb_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    script(&dir.path().join("bin"), "postgres", "postgres (PostgreSQL) 18.0");
    assert!(matches!(finder(dir.path()).postgres(None).await, Err(FetchError::Missing { .. })));
}

#[tokio::test]
async fn a_named_program_that_is_too_old_is_refused_instead_of_replaced() {
    let dir = tempfile::tempdir().unwrap();
    script(dir.path(), "nats-server", "nats-server: v2.9.10");
    let mut finder = finder(dir.path());
    finder.nats_server = Some(dir.path().join("nats-server"));
    let refused = finder.nats_server().await.unwrap_err().to_string();
    assert!(refused.contains("it is version 2.9.10, and 2.15.0 is needed"), "{refused}");
}

#[tokio::test]
async fn a_named_program_that_fits_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    script(dir.path(), "nats-server", "nats-server: v2.15.3");
    let path = fs::canonicalize(dir.path().join("nats-server")).unwrap();
    let mut finder = finder(&dir.path().join("cache"));
    finder.nats_server = Some(path.clone());
    let found = finder.nats_server().await.unwrap();
    assert_eq!(found, Program { path, version: Version { major: 2, minor: 15, patch: 3 } });
}
