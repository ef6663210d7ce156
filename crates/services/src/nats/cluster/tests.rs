use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use super::*;

/// Far below the minute for which a node may be waited for.
const SOON: Duration = Duration::from_secs(30);

/// Starts a cluster of three; at the first try, port `which` of node `node` is somebody else's.
async fn check(node: usize, which: usize) {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut given = 0;
    let ports = || {
        given += 1;
        let held = ports::hold::<PORTS>()?;
        if given != node {
            return Ok(held);
        }
        let mut ports = held.ports();
        ports[which] = taken.local_addr()?.port();
        Ok(Held::unheld(ports))
    };
    let (begun, config) = (Instant::now(), NatsConfig::new(dir.path().join("nats")));
    let cluster =
        NatsCluster::start_on(&Launcher::UtilLinux, &Finder::new(dir.path()), 3, config, ports).await.unwrap();
    assert!(begun.elapsed() < SOON, "node {node}, port {which}: {:?}", begun.elapsed());
    assert_eq!(given, 6, "each node was given other ports once");
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_client_port_that_somebody_took_from_the_last_node_costs_a_second_try() {
    check(3, 0).await;
}

#[tokio::test]
async fn a_monitor_port_that_somebody_took_from_the_second_node_costs_a_second_try() {
    check(2, 1).await;
}

#[tokio::test]
async fn a_cluster_port_that_somebody_took_from_the_first_node_costs_a_second_try() {
    check(1, 2).await;
}

#[tokio::test]
async fn a_port_that_is_always_taken_is_told_with_the_log_of_who_needs_it() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut given = 0;
    let ports = || {
        given += 1;
        let [_, monitor, cluster] = ports::hold::<PORTS>()?.ports();
        let client = if given % 3 == 0 { taken.local_addr()?.port() } else { ports::hold::<1>()?.ports()[0] };
        Ok(Held::unheld([client, monitor, cluster]))
    };
    let config = NatsConfig::new(dir.path().join("nats"));
    let fault = NatsCluster::start_on(&Launcher::UtilLinux, &Finder::new(dir.path()), 3, config, ports).await;
    let text = fault.unwrap_err().to_string();
    assert!(text.contains("n3/nats.log") && text.contains(super::super::PORT_TAKEN), "{text}");
    assert_eq!(given, 3 * PORT_TRIES);
}

#[test]
fn two_clusters_have_two_names_and_each_keeps_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    let first = name(&one, true).unwrap();
    assert_ne!(first, name(&other, true).unwrap());
    // The folder may have been moved since: the stores don't know.
    let moved = dir.path().join("moved");
    fs::rename(&one, &moved).unwrap();
    assert_eq!(name(&moved, false).unwrap(), first);
}

#[test]
fn stores_without_a_kept_name_are_of_the_cluster_that_all_once_were() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(name(dir.path(), false).unwrap(), "waybill");
}

#[test]
fn all_nodes_know_the_cluster_ports_of_all() {
    let dir = tempfile::tempdir().unwrap();
    let all = settings("wb", &NatsConfig::new(dir.path()), &[[1, 2, 3], [4, 5, 6], [7, 8, 9]]).unwrap();
    assert!(all.iter().all(|node| node.cluster.as_ref().unwrap().routes == [3, 6, 9]));
    assert_eq!(all.iter().map(|node| (node.port, node.monitor_port)).collect::<Vec<_>>(), [(1, 2), (4, 5), (7, 8)]);
}
