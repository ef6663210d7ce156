//! The table of crates and arrows, as data. A new row or arrow needs an ADR.

/// What one crate may use.
#[derive(Debug)]
pub(super) struct Rule {
    /// Folder below `crates` (or `tests`).
    pub(super) name: &'static str,
    /// Crates of ours that it may use.
    pub(super) may_use: &'static [&'static str],
    /// Whether it may use all of them.
    pub(super) any: bool,
}

/// An outside crate that only a few of ours may use.
#[derive(Debug)]
pub(super) struct Guard {
    pub(super) package: &'static str,
    pub(super) only_in: &'static [&'static str],
}

const fn floor(name: &'static str, may_use: &'static [&'static str]) -> Rule {
    Rule { name, may_use, any: false }
}

const RULES: [Rule; 22] = [
    // Floor 0: nothing of ours below.
    floor("event", &[]),
    floor("wire", &[]),
    floor("secret", &[]),
    floor("services", &[]),
    floor("scripted-upstream", &[]),
    // Floor 1.
    floor("domain", &["event"]),
    // Floor 2.
    floor("journal", &["event"]),
    // Floor 3.
    floor("journal-nats", &["event", "journal"]),
    floor("read-model", &["event", "domain"]),
    floor("upstream", &["event", "domain", "wire", "secret"]),
    // Floor 4.
    floor("proxy", &["event", "domain", "wire", "journal", "upstream", "secret"]),
    floor("projector", &["event", "domain", "journal", "read-model"]),
    floor("upkeep", &["event", "domain", "wire", "journal", "upstream", "secret"]),
    floor("audit", &["event", "domain", "journal", "read-model"]),
    floor("admin", &["event", "domain", "wire", "journal", "read-model", "upstream", "audit", "console", "secret"]),
    floor("console", &[]),
    // Floor 5: the binary.
    floor(
        "waybill",
        &[
            "event",
            "domain",
            "wire",
            "secret",
            "services",
            "scripted-upstream",
            "journal",
            "journal-nats",
            "read-model",
            "upstream",
            "proxy",
            "projector",
            "upkeep",
            "audit",
            "admin",
            "console",
        ],
    ),
    // Development.
    Rule { name: "testkit", may_use: &[], any: true },
    Rule { name: "tests", may_use: &[], any: true },
    Rule { name: "simulation", may_use: &[], any: true },
    Rule { name: "bench", may_use: &[], any: true },
    floor("xtask", &[]),
];

/// What tests of any crate may use beside its own row.
pub(super) const TEST_CRATES: [&str; 3] = ["testkit", "services", "scripted-upstream"];

/// In tests too: a test that opens its own connection to the bus or the database goes around the crate that owns it.
pub(super) const GUARDED: [Guard; 14] = [
    Guard { package: "async-nats", only_in: &["journal-nats", "testkit", "tests", "xtask"] },
    Guard { package: "sqlx", only_in: &["read-model", "testkit", "tests", "xtask"] },
    Guard { package: "reqwest", only_in: &["waybill", "testkit", "tests", "bench", "xtask"] },
    Guard { package: "hyper-rustls", only_in: &["upstream"] },
    Guard { package: "clap", only_in: &["waybill", "bench", "tests", "xtask"] },
    Guard { package: "tracing-subscriber", only_in: &["waybill", "testkit", "tests"] },
    // Secrets are handled in one place.
    Guard { package: "chacha20poly1305", only_in: &["secret"] },
    Guard { package: "hmac", only_in: &["secret"] },
    // Whatever waits or draws lots stays out of the pure crates; these name who may.
    Guard { package: "tokio", only_in: &IMPURE },
    Guard { package: "tokio-util", only_in: &IMPURE },
    Guard { package: "tokio-stream", only_in: &IMPURE },
    Guard {
        package: "axum",
        only_in: &["proxy", "projector", "upkeep", "admin", "waybill", "testkit", "tests", "simulation", "bench"],
    },
    Guard { package: "rand", only_in: &IMPURE },
    Guard { package: "parking_lot", only_in: &IMPURE },
];

/// Every crate but the pure ones.
const IMPURE: [&str; 19] = [
    "secret",
    "services",
    "scripted-upstream",
    "journal",
    "journal-nats",
    "read-model",
    "upstream",
    "proxy",
    "projector",
    "upkeep",
    "audit",
    "admin",
    "console",
    "waybill",
    "testkit",
    "tests",
    "simulation",
    "bench",
    "xtask",
];

/// The row of a folder.
pub(super) fn rule(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.name == name)
}

/// Name of the package in a folder.
pub(super) fn package_of(name: &str) -> String {
    match name {
        "waybill" | "xtask" => name.to_owned(),
        _ => format!("waybill-{name}"),
    }
}

/// Folder of a package of ours; `None` when it isn't ours.
pub(super) fn crate_of(package: &str) -> Option<&str> {
    match package {
        "waybill" | "xtask" => Some(package),
        _ => package.strip_prefix("waybill-"),
    }
}
