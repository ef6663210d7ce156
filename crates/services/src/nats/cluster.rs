//! Several nodes on the loopback interface that form one JetStream cluster. One node hides conflicts that only
//! replicated streams show, so whatever compares and sets is tested against three.

use super::config::{ClusterSettings, Settings};
use super::{Nats, NatsConfig, NatsError, PORT_TRIES, run, settle};
use crate::fetch::Finder;
use crate::shim::Launcher;

/// Most nodes of a cluster.
const MAX_NODES: usize = 5;

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
        let program = finder.nats_server().await?;
        let mut tries = 0;
        loop {
            tries += 1;
            let mut cluster = Self { nodes: Vec::new() };
            for settings in settings(nodes.clamp(1, MAX_NODES), &config)? {
                let child = run(launcher, &program, &settings).await?;
                cluster.nodes.push(Nats { launcher: launcher.clone(), program: program.clone(), settings, child });
            }
            match cluster.ready().await {
                Err(NatsError::Ended { tail, .. }) if tries < PORT_TRIES && tail.contains("address already in use") => {
                    cluster.stop().await?;
                }
                Err(other) => return Err(other),
                Ok(()) => return Ok(cluster),
            }
        }
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

    /// Waits until all nodes are healthy.
    ///
    /// # Errors
    /// [`NatsError`] of the first that isn't.
    pub async fn ready(&self) -> Result<(), NatsError> {
        for node in &self.nodes {
            node.ready().await?;
        }
        Ok(())
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

fn settings(nodes: usize, config: &NatsConfig) -> Result<Vec<Settings>, NatsError> {
    let mut all = Vec::with_capacity(nodes);
    let mut routes = Vec::with_capacity(nodes);
    for index in 1..=nodes {
        let (dir, [port, monitor_port, cluster_port]) = settle(&config.dir.join(format!("n{index}")), [None; 3])?;
        routes.push(cluster_port);
        all.push(Settings {
            name: format!("nats-{index}"),
            dir,
            port,
            monitor_port,
            sync_always: config.sync_always,
            users: config.users.clone(),
            max_store_bytes: config.max_store_bytes,
            cluster: Some(ClusterSettings { name: "waybill".into(), port: cluster_port, routes: Vec::new() }),
        });
    }
    for cluster in all.iter_mut().filter_map(|settings| settings.cluster.as_mut()) {
        cluster.routes.clone_from(&routes);
    }
    Ok(all)
}
