use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::setting::{BINARY, alive, wait_until};

/// A parent with both servers; returns it with its servers' pids and its line.
fn parent(dir: &Path) -> (std::process::Child, Vec<u32>, String) {
    let mut parent = Command::new(BINARY).arg("up").arg(dir).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pids = ["nats_pid", "postgres_pid"].map(|name| {
        let rest = line.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name} in {line}")).1;
        rest.split([',', '}']).next().unwrap().parse().unwrap()
    });
    (parent, pids.to_vec(), line)
}

#[tokio::test]
async fn killing_the_parent_leaves_nothing_and_a_second_start_finds_the_data() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let (mut first, servers, _) = parent(dir.path());
    assert!(servers.iter().all(|pid| alive(*pid)));
    first.kill().unwrap();
    first.wait().unwrap();
    // At once, while the first servers may still be ending: the locks keep two servers out of one folder.
    let (mut second, successors, line) = parent(dir.path());
    wait_until("the first servers end", || servers.iter().all(|pid| !alive(*pid))).await;
    assert!(successors.iter().all(|pid| alive(*pid)), "{line}");
    // SIGTERM stops both in order.
    let status = Command::new("kill").arg(second.id().to_string()).status().unwrap();
    assert!(status.success());
    assert!(second.wait().unwrap().success());
    assert!(successors.iter().all(|pid| !alive(*pid)));
}
