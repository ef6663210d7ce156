//! What is killed in which case.

/// One thing that is done to a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    /// `kill -9` of a proxy.
    Proxy(u16),
    /// `kill -9` of a proxy, and of its next start as soon as that runs: before it has sent what the first one left.
    ProxyTwice(u16),
    /// `kill -9` of the projector that leads the fold of traffic.
    Projector,
    /// `kill -9` of one that doesn't.
    Standby,
    /// `kill -9` of the only node of the log.
    Log,
    /// `kill -9` of the node that leads the traffic stream.
    Leader,
    /// `kill -9` of a node that doesn't.
    Follower,
    /// `kill -9` of Postgres.
    Postgres,
    /// SIGSTOP of the projector that leads the fold of traffic, until another one leads, and back.
    Freeze,
}

/// A case: what is done at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Its name.
    pub name: &'static str,
    /// What is done.
    pub blows: &'static [Blow],
}

const fn plan(name: &'static str, blows: &'static [Blow]) -> Plan {
    Plan { name, blows }
}

use Blow::{Follower, Freeze, Leader, Log, Postgres, Projector, Proxy, ProxyTwice, Standby};

/// All cases of a fleet whose log is a cluster of three.
pub const CLUSTER: &[Plan] = &[
    plan("proxy", &[Proxy(1)]),
    plan("proxy, and its next start at once", &[ProxyTwice(1)]),
    plan("projector", &[Projector]),
    plan("leader of the log", &[Leader]),
    plan("Postgres", &[Postgres]),
    plan("projector frozen past its lease", &[Freeze]),
    plan("proxy + proxy", &[Proxy(2), Proxy(3)]),
    plan("proxy + projector", &[Proxy(1), Projector]),
    plan("proxy + leader of the log", &[Proxy(2), Leader]),
    plan("proxy + Postgres", &[Proxy(3), Postgres]),
    plan("projector + projector", &[Projector, Standby]),
    plan("projector + leader of the log", &[Projector, Leader]),
    plan("projector + Postgres", &[Projector, Postgres]),
    plan("leader of the log + another node: no majority", &[Leader, Follower]),
    plan("leader of the log + Postgres", &[Leader, Postgres]),
];

/// Those of them that a test suite has time for.
pub const CLUSTER_FEW: &[Plan] = &[
    plan("proxy", &[Proxy(1)]),
    plan("Postgres + projector", &[Postgres, Projector]),
    plan("leader of the log", &[Leader]),
    plan("projector frozen past its lease", &[Freeze]),
    plan("proxy + leader of the log", &[Proxy(2), Leader]),
];

/// All cases of a fleet whose log is one node.
pub const SINGLE: &[Plan] = &[
    plan("the log", &[Log]),
    plan("the log + proxy", &[Log, Proxy(1)]),
    plan("the log + proxy, and its next start at once", &[Log, ProxyTwice(2)]),
    plan("the log + projector", &[Log, Projector]),
    plan("the log + Postgres", &[Log, Postgres]),
];

/// Those of them that a test suite has time for.
pub const SINGLE_FEW: &[Plan] = &[
    plan("Postgres", &[Postgres]),
    plan("the log + proxy, and its next start at once", &[Log, ProxyTwice(1)]),
    plan("projector", &[Projector]),
];
