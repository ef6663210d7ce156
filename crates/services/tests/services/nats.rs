use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use secrecy::SecretString;
use waybill_services::{Launcher, Nats, NatsCluster, NatsConfig, NatsUser};

use super::setting::{alive, finder, launcher};

/// Speaks a few lines of the server's text protocol; returns the lines it answers until `PONG` or an error.
fn talk(port: u16, lines: &[&str]) -> Vec<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    for line in lines {
        stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    }
    stream.write_all(b"PING\r\n").unwrap();
    let mut answers = Vec::new();
    for line in BufReader::new(stream).lines() {
        let line = line.unwrap();
        let last = line == "PONG" || line.starts_with("-ERR");
        answers.push(line);
        if last {
            break;
        }
    }
    answers
}

#[tokio::test]
async fn a_node_starts_is_killed_comes_back_on_its_port_and_stops() {
    let dir = tempfile::tempdir().unwrap();
    let mut nats =
        Nats::start(&launcher(), &finder(dir.path()), NatsConfig::new(dir.path().join("nats"))).await.unwrap();
    let (port, pid) = (nats.port(), nats.child().pid());
    assert!(talk(port, &[r#"CONNECT {"verbose":false}"#]).iter().any(|line| line == "PONG"));
    nats.kill9().await.unwrap();
    assert!(!alive(pid));
    nats.restart().await.unwrap();
    assert_eq!(nats.port(), port);
    assert!(talk(port, &[r#"CONNECT {"verbose":false}"#])[0].contains(r#""jetstream":true"#));
    let pid = nats.child().pid();
    nats.stop().await.unwrap();
    assert!(!alive(pid));
}

#[tokio::test]
async fn a_user_may_do_what_its_subjects_allow_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = NatsConfig::new(dir.path().join("nats"));
    config.sync_always = true;
    config.users = vec![NatsUser {
        name: "proxy".into(),
        password: SecretString::from("open sesame"),
        publish: vec!["wb.traffic.>".into()],
        subscribe: vec!["wb.config.>".into()],
    }];
    let nats = Nats::start(&Launcher::UtilLinux, &finder(dir.path()), config).await.unwrap();
    let connect = r#"CONNECT {"verbose":false,"user":"proxy","pass":"open sesame"}"#;
    let allowed = talk(nats.port(), &[connect, "SUB wb.config.x 1", "PUB wb.traffic.x 0", ""]);
    assert_eq!(allowed.last().unwrap(), "PONG", "{allowed:?}");
    let denied = talk(nats.port(), &[connect, "PUB wb.config.x 0", ""]);
    assert!(denied.last().unwrap().contains("Permissions Violation"), "{denied:?}");
    let stranger = talk(nats.port(), &[r#"CONNECT {"verbose":false}"#]);
    assert!(stranger.last().unwrap().contains("Authorization Violation"), "{stranger:?}");
    let pid = nats.child().pid();
    drop(nats);
    super::setting::wait_until("the server ends with its handle", || !alive(pid)).await;
}

#[tokio::test]
async fn three_nodes_form_a_cluster_and_outlive_the_loss_of_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster =
        NatsCluster::start(&launcher(), &finder(dir.path()), 3, NatsConfig::new(dir.path())).await.unwrap();
    assert_eq!(cluster.url().split(',').count(), 3);
    cluster.kill9(1).await.unwrap();
    let answer = talk(cluster.nodes()[0].port(), &[r#"CONNECT {"verbose":false}"#]);
    assert_eq!(answer.last().unwrap(), "PONG");
    cluster.restart(1).await.unwrap();
    cluster.ready().await.unwrap();
    cluster.stop().await.unwrap();
    assert!(cluster.nodes().iter().all(|node| !alive(node.child().pid())));
}
