//! Several nodes on the loopback interface that form one JetStream cluster. One node hides conflicts that only
//! replicated streams show, so whatever compares and sets is tested against three.

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::config::{ClusterSettings, Settings};
use super::{Nats, NatsConfig, NatsError, PORT_TRIES, PORTS, all_ready};
use crate::fetch::{Finder, Program};
use crate::files;
use crate::ports::{self, Held};
use crate::shim::Launcher;

/// Most nodes of a cluster.
const MAX_NODES: usize = 5;
/// Where a cluster's name is kept, next to the nodes' folders: the nodes' stores name it.
const NAME_FILE: &str = "cluster-name";
/// What stands before a cluster's name, and the whole name of one whose stores know it by nothing else.
const NAME: &str = "waybill";

/// A running cluster. Dropping it stops all nodes.
#[derive(Debug)]
pub struct NatsCluster {
    nodes: Vec<Nats>,
}

impl NatsCluster {
    /// Starts `nodes` (1 to 5) servers in folders below `config.dir` on free ports, and waits until all are healthy. The
    /// ports in `config` are not used.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn start(
        launcher: &Launcher,
        finder: &Finder,
        nodes: usize,
        config: NatsConfig,
    ) -> Result<Self, NatsError> {
        Self::start_on(launcher, finder, nodes, config, ports::hold).await
    }

    /// As [`NatsCluster::start`], on the ports that `ports` gives each node.
    async fn start_on(
        launcher: &Launcher,
        finder: &Finder,
        nodes: usize,
        config: NatsConfig,
        mut ports: impl FnMut() -> io::Result<Held<PORTS>>,
    ) -> Result<Self, NatsError> {
        let program = finder.nats_server().await?;
        let nodes = nodes.clamp(1, MAX_NODES);
        let from_nothing = (1..=nodes).all(|node| !node_dir(&config, node).join("store").exists());
        let name = name(&config.dir, from_nothing).map_err(config.unusable())?;
        let mut tries = 0;
        loop {
            tries += 1;
            let held: io::Result<Vec<_>> = (0..nodes).map(|_| ports()).collect();
            let cluster = Self::launch(launcher, &program, &name, &config, held.map_err(config.unusable())?).await?;
            match cluster.ready().await {
                Err(fault) if tries < PORT_TRIES && fault.port_was_taken() => {
                    cluster.stop().await?;
                    if from_nothing {
                        cluster.forget()?;
                    }
                }
                other => return other.map(|()| cluster),
            }
        }
    }

    /// Starts the nodes, without waiting.
    async fn launch(
        launcher: &Launcher,
        program: &Program,
        name: &str,
        config: &NatsConfig,
        held: Vec<Held<PORTS>>,
    ) -> Result<Self, NatsError> {
        let mut cluster = Self { nodes: Vec::with_capacity(held.len()) };
        let ports: Vec<_> = held.iter().map(Held::ports).collect();
        for (settings, held) in settings(name, config, &ports)?.into_iter().zip(held) {
            cluster.nodes.push(Nats::launch(launcher, program, settings, held).await?);
        }
        Ok(cluster)
    }

    /// Removes what the stopped nodes of a cluster have stored that never came up: half a beginning, which no later start
    /// need go on from.
    fn forget(&self) -> Result<(), NatsError> {
        for node in &self.nodes {
            let store = node.settings.dir.join("store");
            match fs::remove_dir_all(&store) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(NatsError::Prepare { path: store, source });
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// All nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Nats] {
        &self.nodes
    }

    /// Where clients connect, all nodes parted by commas.
    #[must_use]
    pub fn url(&self) -> String {
        self.nodes.iter().map(Nats::url).collect::<Vec<_>>().join(",")
    }

    /// Waits until all nodes are healthy. They are looked at together: nodes that have never met don't choose a leader
    /// before all of them are there, so the end of one keeps the others waiting.
    ///
    /// # Errors
    /// [`NatsError::Ended`] as soon as one has ended, [`NatsError::NotReady`] when one isn't healthy in time.
    pub async fn ready(&self) -> Result<(), NatsError> {
        all_ready(&self.nodes).await
    }

    /// Kills a node as a power cut would.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn kill9(&self, node: usize) -> Result<(), NatsError> {
        self.nodes.get(node).ok_or(NatsError::NoSuchNode(node))?.kill9().await
    }

    /// Starts a node again on its ports and store, without waiting until it is healthy: that may need the others.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn restart(&mut self, node: usize) -> Result<(), NatsError> {
        self.nodes.get_mut(node).ok_or(NatsError::NoSuchNode(node))?.relaunch().await
    }

    /// Stops all nodes in good order.
    ///
    /// # Errors
    /// [`NatsError`] of the first that can't be stopped.
    pub async fn stop(&self) -> Result<(), NatsError> {
        for node in &self.nodes {
            node.stop().await?;
        }
        Ok(())
    }
}

fn node_dir(config: &NatsConfig, node: usize) -> PathBuf {
    config.dir.join(format!("n{node}"))
}

/// The cluster's name: one of its own, so that nodes of two clusters that come upon each other don't take each other for
/// theirs. It stays with the folder, since the stores hold it.
fn name(dir: &Path, from_nothing: bool) -> io::Result<String> {
    let dir = files::created(dir)?;
    let file = dir.join(NAME_FILE);
    match fs::read_to_string(&file) {
        Ok(kept) => Ok(kept.trim().to_owned()),
        Err(fault) if fault.kind() != io::ErrorKind::NotFound => Err(fault),
        Err(_) if !from_nothing => Ok(NAME.to_owned()),
        Err(_) => {
            let name = format!("{NAME}-{}", files::short_name(&dir));
            files::write_private(&file, &name)?;
            Ok(name)
        }
    }
}

fn settings(name: &str, config: &NatsConfig, ports: &[[u16; PORTS]]) -> Result<Vec<Settings>, NatsError> {
    let routes: Vec<u16> = ports.iter().map(|[_, _, cluster]| *cluster).collect();
    let nodes = (1..).zip(ports).map(|(node, [port, monitor_port, cluster_port])| {
        Ok(Settings {
            name: format!("nats-{node}"),
            dir: files::created(&node_dir(config, node)).map_err(config.unusable())?,
            port: *port,
            monitor_port: *monitor_port,
            sync_always: config.sync_always,
            users: config.users.clone(),
            max_store_bytes: config.max_store_bytes,
            cluster: Some(ClusterSettings { name: name.to_owned(), port: *cluster_port, routes: routes.clone() }),
        })
    });
    nodes.collect()
}
